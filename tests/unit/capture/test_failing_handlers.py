"""Faults of the interpreter itself: wherever one comes, Python goes on from there as if alone."""

import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

import glasshouse as gh
from glasshouse.capture.rules.opcodes import HANDLERS


def adder(n):
    def add(x, *more, by=2):
        total = [x + n + by, *more]
        return total[0]

    return add


def loops(x, n):
    done = []
    for i, y in enumerate(z * n for z in (1, 2, 3)):
        try:
            if y == 4:
                raise ValueError(f"{y:>3}")
            done.append(adder(i)(x, *done[:1], by=y))
        except ValueError as error:
            done.append(str(error))
            continue
        finally:
            n += 1
    return done, n


def patterns(x, n):
    results = []
    for subject in ([x, n], {"a": n, "b": x}, (n,), n):
        match subject:
            case [first, second]:
                results.append((first + second, len(results)))
            case {"a": a, **rest}:
                results.append((a, list(rest)))
            case [int(one)]:
                results.append(one)
            case int():
                results.append(f"{subject!r:>{n}}")
    return results, [{k: v for k, v in [("a", n), ("b", 1)] if v}, {n, n + 1}, (n, *results[2:])]


def contexts(x, n):
    with gh.no_grad():
        y = x * n

        def scaled(z):
            nonlocal n
            n += 1
            return z * n + y

        first, *others = [scaled(x), scaled(y), scaled]
    del others[-1]
    return first, others, n, not n, -n, n if n > 2 and first is not None or others else 0


def closes(x, n):
    add = lambda z: z + n  # noqa: E731
    return [add(x)]


def catches(x, n):
    results = []
    for i in (1, 2):
        try:
            results.append((lambda: n)() + [][i])
        except IndexError:
            results.append(i)
    return results


FUNCTIONS = [loops, patterns, contexts, closes, catches]


def shown(result) -> str:
    return repr(result)


def outcomes(fn, captured=None) -> list[str]:
    called = captured or fn
    return [shown(called(gh.ones(2), n)) for n in (1, 2, 2, 3)]


FAULT = "a fault of the interpreter"


def failing(handler, nth: int):
    """A handler with a fault in every n-th call."""
    calls = 0

    def run(tracer, frame, ins):
        nonlocal calls
        calls += 1
        if calls % nth == 0:
            raise AttributeError(FAULT)
        handler(tracer, frame, ins)

    return run


def inject(names) -> None:
    """Call the functions with a fault in each handler in turn."""
    want = {fn: outcomes(fn) for fn in FUNCTIONS}
    gh.capture.config.raise_internal_errors = False
    for name in names:
        before = HANDLERS[name]
        for nth in (1, 3):
            print(name, nth, flush=True)
            HANDLERS[name] = failing(before, nth)
            try:
                for fn in FUNCTIONS:
                    check(fn, want[fn], (name, nth, fn))
            finally:
                HANDLERS[name] = before


def check(fn, want: list[str], where) -> None:
    """All calls are right. Only where Python cannot go on the fault itself may be raised."""
    try:
        assert outcomes(fn, gh.optimize("eager")(fn)) == want, where
    except AttributeError as error:
        if str(error) != FAULT:
            raise


def spoil(names) -> None:
    """Call the functions with handlers that leave one item too few, or too many, on the stack:
    what comes of that may be wrong, but comes from Python's own checks or ours."""
    gh.capture.config.raise_internal_errors = False
    for name in names:
        before = HANDLERS[name]
        for change in (lambda s: s and s.pop(), lambda s: s and s.append(s[-1])):
            print(name, flush=True)
            HANDLERS[name] = lambda t, f, ins, h=before, c=change: (h(t, f, ins), c(f.stack))
            for fn in FUNCTIONS:
                with suppress(Exception):
                    outcomes(fn, gh.optimize("eager")(fn))
        HANDLERS[name] = before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("inject", "tests.HANDLERS"),
        (
            "spoil",
            "('MAKE_CELL', 'LOAD_CLOSURE', 'COPY', 'BUILD_TUPLE', 'GET_LEN', 'PUSH_EXC_INFO')",
        ),
    ],
)
def test_a_fault_in_each_handler(how, names):
    """In a process of its own, which would show a crash of Python."""
    code = f"""
        import sys
        sys.path.insert(0, {__file__.rpartition("/")[0]!r})
        import test_failing_handlers as tests
        tests.{how}({names})
    """
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, (ran.stdout[-100:], ran.stderr[-2000:])


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_trace_ends_at_any_instruction(fn):
    want = outcomes(fn)
    for most in range(1, 260, 3):
        with gh.capture.config.override(max_instructions=most):
            assert outcomes(fn, gh.optimize("eager")(fn)) == want, most
