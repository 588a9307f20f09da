"""Resume functions: their stacks are checked, they are shared, and calls of them take no stack."""

import dis
import sys
import traceback
import types

import pytest

import glasshouse as gh
from glasshouse.capture.bytecode import instructions
from glasshouse.capture.bytecode.instructions import WrongStack, decoded, make_resume, verify_resume


def sample(items, other):
    total = [0, *items]
    with open(other) if other else memoryview(b"") as result:
        for i, x in enumerate(items):
            try:
                total[i] += x if x > 2 else len(str(x, *[]))
            except (ValueError, TypeError) as error:
                total.append(f"{error!r:>4}")
                continue
            finally:
                del x
    return {k: [v for v in total if v] for k in "ab"}, result


def codes():
    """Code of all kinds: this file's, the library's and the standard library's."""
    names = [sample, traceback.TracebackException.__init__, types.prepare_class, dis.dis]
    names += [gh.optim.AdamW.step, gh.nn.Module.__setattr__, dis.get_instructions]
    waiting, results = [getattr(fn, "__wrapped__", fn).__code__ for fn in names], []
    while waiting:
        code = waiting.pop()
        waiting += [x for x in code.co_consts if isinstance(x, types.CodeType)]
        results += [] if code.co_flags & instructions.GENERATORS else [code]
    return results


@pytest.mark.parametrize("code", codes(), ids=lambda code: code.co_qualname)
def test_depths_and_resume_functions(code):
    result = decoded(code)
    reached = 0
    for i, ins in enumerate(result.instructions):
        depth = result.depth_at(i)
        assert depth <= code.co_stacksize
        if depth < 0:
            continue
        reached += 1
        for captured in (True, False):
            check_resume(code, ins.offset, depth, captured)
    assert reached > len(result.instructions) // 2


def check_resume(code, offset, depth, captured):
    result = make_resume(code, offset, (False,) * depth, frozenset(), captured)
    assert verify_resume(result, code, offset) is None
    for wrong in {depth - 1, depth + 1} - {-1}:
        with pytest.raises(WrongStack, match="items on the stack"):
            make_resume(code, offset, (False,) * wrong, frozenset(), captured)


def test_broken_code_is_refused():
    code = sample.__code__
    result = decoded(code)
    at = next(i for i, x in enumerate(result.instructions) if x.op == "FOR_ITER")
    offset, depth = result.instructions[at].offset, result.depth_at(at)
    output = make_resume(code, offset, (False,) * depth, frozenset(), True)
    units = (len(output.co_code) - len(code.co_code)) // 2
    pop = bytes((dis.opmap["POP_TOP"], 0))
    jump = output.co_code[2 * units - 2 : 2 * units]
    broken = output.co_code[: 2 * units - 2] + pop + jump + code.co_code
    with pytest.raises(WrongStack):
        verify_resume(output.replace(co_code=broken), code, offset)
    with pytest.raises(WrongStack):
        verify_resume(output.replace(co_stacksize=0), code, offset)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_branches_in_a_row_share_resume_functions(count):
    body = "".join(f"    if c[{i}]: x = x + {i + 1}\n    x = x * 2\n" for i in range(count))
    names, graphs = {}, []
    exec(f"def f(x, *c):\n{body}    return x\n", names)

    def compiler(module, example_inputs):
        graphs.append(module)
        return module.forward

    fast = gh.optimize(compiler)(names["f"])
    for bits in range(2**count):
        flags = [gh.tensor([float(bits >> i & 1)]) for i in range(count)]
        assert fast(gh.ones(2), *flags).tolist() == names["f"](gh.ones(2), *flags).tolist()
    assert len(graphs) <= 2 * count + 1


@pytest.mark.slow
def test_loop_with_breaks_takes_no_stack():
    def fn(x, n):
        for _ in range(n):
            gh.graph_break()
            x = x + 1
        return x

    fast = gh.optimize("eager")(fn)
    rounds = 2 * sys.getrecursionlimit()
    assert fast(gh.zeros(1), rounds).tolist() == [rounds]
    assert fast(gh.zeros(1), rounds).tolist() == [rounds]
    assert len(fast.capture.entries) < 10


def test_traceback_has_one_frame_for_one_function():
    def fn(x):
        gh.graph_break()
        y = x + 1
        gh.graph_break()
        raise ValueError(y.shape)

    fast = gh.optimize("eager")(fn)
    for _ in range(2):
        with pytest.raises(ValueError, match="2,") as error:
            fast(gh.ones(2))
        frames = [f for f in traceback.extract_tb(error.value.__traceback__) if f.name == "fn"]
        assert len(frames) == 1
        assert frames[0].lineno == fn.__code__.co_firstlineno + 4
