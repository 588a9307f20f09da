"""The fifteen traps of a frame-evaluation JIT, one by one, with PyTorch's tensors."""

import asyncio
import contextlib
import gc
import math
import pdb  # noqa: T100
import sys
import weakref

import pytest

torch = pytest.importorskip("torch")

from same_outcome import same_story  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.capture.bytecode.native import native  # noqa: E402

X = torch.linspace(-1, 1, 3)
close = torch.testing.assert_close


def in_context(fn, *args, calls=3):
    """Return the results of calls of fn whose frames come through the hook."""
    with gh.optimize("eager"):
        return [fn(*args) for _ in range(calls)]


def references(thing, call) -> int:
    """How many references to a thing 50 calls leave behind."""
    call(), call()
    gc.collect()
    before = sys.getrefcount(thing)
    for _ in range(50):
        call()
    gc.collect()
    return sys.getrefcount(thing) - before


def test_01_a_frame_that_does_not_run_is_cleared_by_the_evaluator():
    def fn(a, *rest, k=None, **more):
        return a * 2, k

    def fails(a, *rest, k=None, **more):
        raise ValueError("no")

    def call(fn):
        with gh.optimize("eager"), contextlib.suppress(ValueError):
            fn(x, thing, k=thing, m=thing)

    thing, x = object(), X.clone()
    for watched in (thing, x):
        assert references(watched, lambda: call(fn)) == 0
        assert references(watched, lambda: call(fails)) == 0


def test_02_replacements_have_room_on_the_stack():
    names = [f"v{i}" for i in range(300)]
    lines = "\n".join(f"    {name} = [x, {i}]" for i, name in enumerate(names))
    space = {"gh": gh, "torch": torch}
    text = f"def large(x):\n{lines}\n    y = x * 2\n    gh.graph_break()\n"
    exec(f"{text}    return y, {' + '.join(names)}", space)
    large = space["large"]

    def at(depth):
        return large(X) if depth == 0 else at(depth - 1)

    want = large(X)
    for depth in range(0, 100, 9):
        with gh.optimize("eager"):
            got = at(depth)
        close(got[0], want[0])
        assert len(got[1]) == len(want[1])


def test_03_constructors_that_the_hook_does_not_see():
    class Point:
        def __init__(self, x):
            self.x = torch.sin(x)

    graphs = []

    def compiler(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    fast = gh.optimize(compiler)(lambda x: Point(x).x + 1)
    for _ in range(3):
        close(fast(X), torch.sin(X) + 1)
    assert len([n for n in graphs[0].graph.nodes if n.op == "call_function"]) == 2
    with gh.optimize("eager"):
        for _ in range(300):  # hot: from 3.13 on such a site goes past the hook
            point = Point(X)
        close(point.x, torch.sin(X))


def test_04_attributes_are_read_by_value_where_no_version_tells():
    class Box:
        k = 2.0

    net, box, ones = nn.Dropout(0.9), Box(), torch.ones(200)
    fast = gh.optimize("eager")(lambda x: net(x) * box.k)
    for training, k in ((False, 2.0), (False, 3.0), (True, 3.0), (False, 2.0), (False, 5.0)) * 2:
        net.training = training
        box.k = k
        got = fast(ones)
        assert (got == 0).any().item() is training
        assert got.max().item() == pytest.approx(k * 10 if training else k)


def test_05_code_objects_compare_by_value():
    def make(k):
        names = {"k": torch.tensor(k)}
        exec("def fn(x):\n    return x * k\n", names)
        return names["fn"]

    one, two, three = make(2.0), make(3.0), make(4.0)
    assert one.__code__ == two.__code__
    skipped, fast = gh.skip(one), gh.optimize("eager")(two)
    for _ in range(3):
        close(skipped(X), X * 2)
        close(fast(X), X * 3)
        for got in in_context(three, X):
            close(got, X * 4)
    assert fast.hits == 2


def test_06_the_extra_slot_of_code_holds_nothing():
    def make(net):
        return lambda x: net(x)

    net = nn.Linear(3, 3)
    fn, want = make(net), net(X)
    code = fn.__code__
    for got in in_context(fn, X):
        close(got, want)
    refs = [weakref.ref(fn), weakref.ref(net)]
    del fn, net, got
    gc.collect()
    assert [r() for r in refs] == [None, None]
    assert code.co_name == "<lambda>"


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss


def trained(captured):
    """Weak references to a model that was trained by a captured step, and is gone."""
    model = network()
    optimizer = optimizer_of(model)
    for _ in range(4):
        captured(model, optimizer, X)
    return [weakref.ref(x) for x in (model, optimizer, *model.parameters())]


def trained_in_a_closure(compiler):
    model = network()
    optimizer = optimizer_of(model)
    captured = gh.optimize(compiler)(lambda x: step(model, optimizer, x))
    for _ in range(4):
        captured(X)
    return [weakref.ref(x) for x in (model, optimizer, *model.parameters())]


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_06_a_model_that_is_freed_frees_its_entries(compiler):
    captured = gh.optimize(compiler)(step)
    for gone in (trained(captured), trained_in_a_closure(compiler)):
        gc.collect()
        assert not any(ref() for ref in gone)
    other, plain = network(), network()
    plain.load_state_dict(other.state_dict())
    pair = [optimizer_of(model) for model in (other, plain)]
    for _ in range(3):
        close(captured(other, pair[0], X), step(plain, pair[1], X))


def test_07_the_hook_makes_no_frame_objects():
    thing = X.clone()

    def make(thing):
        def fn(x):
            return thing, [x * 2 for _ in range(2) if thing is not None]

        return fn

    fn = make(thing)

    def call():
        with gh.optimize("eager"):
            assert fn(X)[0] is thing

    assert references(thing, call) == 0
    assert references(fn.__closure__[0], call) == 0


def test_08_generators_coroutines_and_class_bodies_pass_through():
    def rows(x):
        try:
            got = yield x * 1
            yield got
        except KeyError:
            yield x * 3

    async def one(x):
        await asyncio.sleep(0)
        return x * 2

    with gh.optimize("eager"):
        result = rows(X)
        close(next(result), X)
        close(result.send(X + 1), X + 1)
        result = rows(X)
        next(result)
        close(result.throw(KeyError("k")), X * 3)
        close(asyncio.run(one(X)), X * 2)

        class Local:
            doubled = [X * k for k in range(3)]

    close(Local.doubled[2], X * 2)


def stack(x, n):
    return max(n, len([y for y in (1, 2) if gh.graph_break() is None]), *(n, n)), x * 2


def unbound(x, n):
    y = x + 1
    del y
    gh.graph_break()
    try:
        return y  # noqa: F821
    except UnboundLocalError as error:
        return str(error), n


def cell(x, n):
    def inner():
        return late

    gh.graph_break()
    try:
        inner()
    except NameError:
        late = x * n
    return inner()


@pytest.mark.parametrize("fn", [stack, unbound, cell])
def test_09_null_on_the_stack_and_unbound_locals_survive_a_break(fn):
    same_story(lambda: (fn, lambda i: (X, i), lambda: None))
    same_story(lambda: (lambda x, n: fn(x, n), lambda i: (X, i), lambda: None))


class Base:
    def go(self, x):
        return x + 1


class Local(Base):
    def go(self, x):
        gh.graph_break()
        y = super().go(x)
        gh.graph_break()
        return y * len(super().__class__.__name__)


def test_10_super_and_what_sees_frames():
    def sees(x):
        return x * len(locals()), eval("x").shape, sys._getframe().f_code.co_name

    same_story(lambda: (lambda x: Local().go(x), lambda i: (X,), lambda: None))
    fast = gh.optimize("eager")(sees)
    for _ in range(3):
        got = fast(X)
        close(got[0], X)
        assert got[1:] == ((3,), "sees")


@gh.disable
def fails(n):
    raise KeyError(n)


def handled(x, n):
    kept = [n]  # only the handlers read it
    try:
        for k in (1, 2):
            try:
                with torch.no_grad():
                    x = x + len([k, fails(k)])
            except ValueError:
                kept.append("no")
            finally:
                kept.append(k)
    except KeyError as error:
        return kept, str(error), error.__traceback__ is not None, torch.is_grad_enabled()
    return x


def raised_again(x, n):
    try:
        x = x * 2
        fails(n)
    except KeyError:
        kept = n
        raise
    finally:
        n = kept + 1


@pytest.mark.parametrize("fn", [handled, raised_again])
def test_11_an_error_behind_a_break_reaches_its_handler(fn):
    same_story(lambda: (fn, lambda i: (X, i), lambda: None))


def test_12_guards_mean_what_python_means():
    fast = gh.optimize("eager")(lambda x, k: (x * 1, k, type(k), math.copysign(1.0, k)))
    for k in (1, True, 1.0, 0.0, -0.0, float("nan"), 1, False, 0):
        got = fast(X, k)
        assert got[2] is type(k)
        assert got[3] == math.copysign(1.0, k)
    both = gh.optimize("eager")(lambda a, b: (a is b, a + b))
    x, y = X.clone(), X.clone()
    assert [both(*p)[0] for p in ((x, y), (x, x), (y, x), (y, y))] == [False, True, False, True]
    graded = gh.optimize("eager")(lambda w: (w * 2, torch.is_grad_enabled()))
    for enabled in (True, False, True, False):
        with torch.set_grad_enabled(enabled):
            y, value = graded(X.clone().requires_grad_())
        assert value is y.requires_grad is enabled
    cast = gh.optimize("eager")(lambda a: (a @ a, torch.ones(1)))
    square = torch.ones(3, 3)
    for number in range(6):
        torch.set_default_dtype((torch.float32, torch.float64)[number % 2])
        try:
            with torch.autocast("cpu", enabled=number % 3 == 0):
                got = cast(square)
        finally:
            torch.set_default_dtype(torch.float32)
        assert got[0].dtype is (torch.bfloat16 if number % 3 == 0 else torch.float32)
        assert got[1].dtype is (torch.float32, torch.float64)[number % 2]
    first = gh.optimize("eager")(lambda rows, x: (rows[0][1] if rows else None, x * 2)[0])
    for rows in ([[1, 2]], [], [[1, 3]], [(1, 4)]):
        assert first(rows, X) == (rows[0][1] if rows else None)


def test_12_recycled_ids_globals_and_class_attributes():
    class Box:
        k = 2

    space = {"scale": 3.0}
    exec("def fn(x, box, net):\n    return net(x * scale * box.k)", space)
    fast = gh.optimize("eager")(space["fn"])
    for n in range(12):
        box, net = Box(), (nn.Linear(3, 2) if n % 2 else nn.Linear(3, 2, bias=False))
        if n % 3 == 0:
            box.k = n
        if n == 5:
            Box.k = 7
        space["scale"] = float(n // 4)
        close(fast(X, box, net), net(X * space["scale"] * box.k))
        del box, net


class Watched:
    def __init__(self):
        self.log = []

    @property
    def value(self):
        self.log.append("value")
        return 2

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.log.append(name)
        return 3

    def __bool__(self):
        self.log.append("bool")
        return True

    def __iter__(self):
        self.log.append("iter")
        yield 1
        self.log.append("end")

    def __len__(self):
        self.log.append("len")
        return 4


def looks(x, o):
    x = x * o.value + o.missing
    gh.graph_break()
    if o and x.sum() < 1e9:
        x = x + sum(o) + len(o)
    return x, list(o.log)


def draws(x, o):
    a = torch.rand(2)
    gh.graph_break()
    return a, torch.rand(2), torch.randn_like(x), torch.dropout(x, 0.5, True)


@pytest.mark.parametrize("fn", [looks, draws])
def test_13_nothing_of_the_users_runs_twice_or_early(fn):
    same_story(lambda: (fn, lambda i: (X, Watched()), lambda: None))


def test_14_the_hook_is_given_back_on_every_exit():
    def fn(x, error=None):
        if error is not None:
            raise error
        return x * 2

    for error in (None, ValueError("v"), KeyboardInterrupt()):
        with contextlib.suppress(ValueError, KeyboardInterrupt), gh.optimize("eager"):
            fn(X)
            fn(X, error)
        assert native().set_hook(None) is None
        assert native().get_mode() == 0


class Answers:
    """Commands that a user of pdb types."""

    def __init__(self, *lines):
        self.lines, self.text = iter(lines), []

    def readline(self):
        return next(self.lines, "continue\n")

    def write(self, text):
        self.text.append(text)

    def flush(self):
        pass


def debugged(x):
    y = x * 2
    if y.sum() > 1e9:
        return x
    return y + 1


@pytest.mark.parametrize("captured_before", [False, True])
def test_14_beside_a_debugger(captured_before):
    captured, before = gh.optimize("eager")(debugged), sys.gettrace()
    if captured_before:
        captured(X)
    typed = Answers("break debugged\n", "continue\n", "next\n", "p y.sum().item()\n", "continue\n")
    debugger = pdb.Pdb(stdin=typed, stdout=typed, nosigint=True, readrc=False)
    try:
        got = debugger.runcall(captured, X)
    finally:
        debugger.clear_all_breaks()
        sys.settrace(before)
    close(got, X * 2 + 1)
    for _ in range(3):
        close(captured(X), X * 2 + 1)
    assert captured.hits


def views(x, out):
    y = x[1:]
    y *= 2
    out.append(y)
    x[0] = out[0].sum()
    gh.graph_break()
    out.append(x * 1)
    x += 1
    out.append(y)
    return x, out


def tables(x, out):
    t = {"z": x, "a": x}
    out.append(len(t))
    note(dict(t), list(out))
    del t["a"]
    out.insert(0, t.setdefault("b", 4))
    note(dict(t), list(out))
    return t, out


SEEN: list = []


@gh.disable
def note(*values):
    SEEN.append(values)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [views, tables])
def test_15_effects_happen_in_order(fn, compiler):
    def story():
        SEEN.clear()
        return fn, lambda i: (X + i, []), lambda: SEEN

    same_story(story, compiler=compiler)
