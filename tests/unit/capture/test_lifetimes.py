"""Lifetimes: entries of captured code die with the models, functions and code that they use."""

import ast
import collections
import contextlib
import copy
import gc
import pickle
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from checking import X

import glasshouse as gh
from glasshouse import nn

COMPILERS = pytest.mark.parametrize("compiler", ["eager", "program"])


def close(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6, strict=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.free = nn.Parameter(X(4))

    def forward(self, x):
        return gh.tanh(self.norm(self.lin(x))) * self.free


def watch(*things) -> list:
    """Weak references to things, and to the layers and parameters of those that are modules."""
    nets = [x for x in things if isinstance(x, nn.Module)]
    parts = [p for net in nets for p in (*net.modules(), *net.parameters(), *net.buffers())]
    return [weakref.ref(x) for x in (*things, *parts)]


def living(refs) -> list:
    gc.collect()
    return [r() for r in refs if r() is not None]


@COMPILERS
def test_model_given_to_a_living_function_dies(compiler):
    fast = gh.optimize(compiler)(lambda net, x: net(x))
    for _ in range(3):
        net = Net()
        for k in range(3):
            fast(net, X(2, 4, seed=k))
        assert fast.entries
        refs = watch(net)
        del net
        assert not living(refs)
        assert not fast.entries
    assert not fast.capture.entries


@COMPILERS
def test_model_with_a_captured_method_dies(compiler):
    class Own(Net):
        forward = gh.optimize(compiler)(Net.forward)

    refs = []
    for k in range(40):
        net = Own()
        net(X(2, 4, seed=k)), net(X(2, 4))
        refs += watch(net)
    del net
    assert not living(refs)
    assert not Own.forward.entries


@COMPILERS
def test_model_in_a_global_dies(compiler):
    space = {"net": Net(), "gh": gh}
    exec("def fn(x):\n    return net(x) + 1", space)
    fast = gh.optimize(compiler)(space["fn"])
    fast(X(2, 4)), fast(X(2, 4))
    assert fast.hits == 1
    refs = watch(space.pop("net"))
    assert not living(refs)


@COMPILERS
def test_model_in_a_closure_dies(compiler):
    net = Net()
    fast = gh.optimize(compiler)(lambda x: net(x) * 2)
    fast(X(2, 4)), fast(X(2, 4))
    refs = watch(net)
    net = Net()
    assert not living(refs)
    close(fast(X(2, 4)), net(X(2, 4)) * 2)


@COMPILERS
def test_trained_model_dies_with_its_optimizer(compiler):
    @gh.optimize(compiler)
    def step(net, opt, x):
        opt.zero_grad()
        loss = net(x).sum()
        loss.backward()
        opt.step()
        return loss

    for _ in range(2):
        net = Net()
        opt = gh.optim.AdamW(net.parameters(), lr=0.1)
        for k in range(4):
            step(net, opt, X(3, 4, seed=k))
        assert step.hits
        refs = watch(net, opt)
        del net, opt
        assert not living(refs)
    assert not step.entries


@COMPILERS
def test_model_and_breaks_die(compiler):
    @gh.optimize(compiler)
    def fn(net, x):
        y = net(x)
        gh.graph_break()
        if y.sum() > 0:
            y = net(y)
        return y.sum().item()

    net = Net()
    for k in range(4):
        fn(net, X(2, 4, seed=k))
    refs = watch(net)
    del net
    assert not living(refs)


@COMPILERS
def test_second_model_dies_before_the_first(compiler):
    fast = gh.optimize(compiler)(lambda one, two, x: one(x) + two(x))
    one, two = Net(), Net()
    fast(one, two, X(2, 4)), fast(one, two, X(2, 4))
    refs = watch(one)
    del one
    assert not living(refs)
    refs = watch(two)
    fast(Net(), two, X(2, 4))
    del two
    assert not living(refs)


@COMPILERS
def test_layer_that_was_replaced_dies(compiler):
    net = Net()
    fast = gh.optimize(compiler)(net)
    fast(X(2, 4)), fast(X(2, 4))
    refs = watch(net.lin, net.norm, net.free)
    net.lin, net.norm, net.free = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Parameter(X(4))
    assert not living(refs)
    close(fast(X(2, 4)), net(X(2, 4)))


@COMPILERS
def test_entries_die_with_a_function_whose_model_lives(compiler):
    net = Net()
    graphs = []

    def counted(gm, example_inputs):
        result = gh.capture.compilers.compilers[compiler](gm, example_inputs)
        graphs.extend(map(weakref.ref, (gm, result)))
        return result

    def fn(x):
        return net(x)

    for _ in range(3):
        fast = gh.optimize(counted)(fn)
        fast(X(2, 4)), fast(X(2, 4))
        assert len(living(graphs)) == 2
        refs = watch(fast)
        del fast
        assert not living([*graphs, *refs])


def test_reset_frees_what_models_keep():
    net, graphs = Net(), []

    def counted(gm, example_inputs):
        graphs.append(weakref.ref(gm))
        return gm.forward

    fast = gh.optimize(counted)(net)
    fast(X(2, 4))
    assert living(graphs)
    gh.reset()
    assert not living(graphs)
    close(fast(X(2, 4)), net(X(2, 4)))


def test_entries_live_as_long_as_the_model():
    net = Net()
    fast = gh.optimize("eager")(lambda net, x: net(x))
    fast(net, X(2, 4))
    for _ in range(3):
        gc.collect()
        fast(net, X(2, 4))
    assert fast.hits == 3


def test_class_and_function_that_are_guarded_die():
    fast = gh.optimize("eager")(lambda x, cls, table: table["f"](x) * cls.k)
    for n in range(gh.capture.config.cache_limit + 2):
        cls, table = type("Key", (), {"k": 2.0 + n}), {"f": lambda x, n=n: x + n}
        for _ in range(2):
            close(fast(X(3), cls, table), (X(3) + n) * (2.0 + n))
        refs = [weakref.ref(cls), weakref.ref(table["f"])]
        del cls, table
        assert not living(refs)
    assert not fast.entries


def test_recycled_objects_do_not_share_a_limit():
    class Own:
        @gh.optimize("eager")
        def go(self, x, n):
            return x * len(n)

    with gh.capture.config.override(cache_limit=2):
        for _ in range(20):
            one = Own()
            for n in ("a", "bb"):
                close(one.go(X(3), n), X(3) * len(n))
            del one
    assert Own.go.capture.breaks == []


@COMPILERS
def test_values_of_a_first_call_die(compiler):
    fast = gh.optimize(compiler)(lambda x: (x + 1, gh.graph_break(), x * 2)[2])
    x = X(100)
    y = fast(x)
    gh.eval(y)
    refs = [weakref.ref(x), weakref.ref(y), weakref.ref(y.payload)]
    del x, y
    assert not living(refs)


@COMPILERS
def test_code_dies(compiler):
    def make():
        names = {"gh": gh}
        exec("def fn(x):\n    y = [v + 1 for v in x]\n    gh.graph_break()\n    return y", names)
        return names["fn"]

    fn = make()
    fast = gh.optimize(compiler)(fn)
    fast([X(3)]), fast([X(3)])
    code = weakref.ref(fn.__code__)
    del fn, fast
    assert not living([code])


def test_code_that_is_left_to_python_dies():
    def make():
        names = {"gh": gh}
        text = "def fn(x):\n    it = (v + 1 for v in x)\n    next(it)\n    return it"
        exec(text, names)
        return names["fn"]

    fn = make()
    fast = gh.optimize("eager")(fn)
    for _ in range(3):
        close(next(fast([X(3), X(3)])), X(3) + 1)
    code = weakref.ref(fn.__code__)
    del fn, fast
    assert not living([code])


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_a_model_have_no_entries(how):
    layer = nn.Linear(4, 4)
    fast = gh.optimize("eager")(layer)
    fast(X(2, 4)), fast(X(2, 4))
    other = how(layer)
    assert vars(other).keys() == vars(layer).keys()
    assert "_gh_entries" not in vars(other.weight)
    close(other(X(2, 4)), layer(X(2, 4)))


def test_explanation_keeps_what_it_shows():
    explanation = gh.explain(lambda net, x: net(x), Net(), X(2, 4))
    gc.collect()
    assert len(explanation.graphs) == 1
    assert "1 graphs" in str(explanation)


def test_no_closure_of_the_interpreter_refers_to_itself():
    """It would keep what was captured alive until garbage is looked for."""
    for path in sorted(Path(gh.capture.__file__).parent.rglob("*.py")):
        if path.name == "split.py":  # of graphs, which hold nothing of the user's
            continue
        for outer in ast.walk(ast.parse(path.read_text())):
            if isinstance(outer, ast.FunctionDef):
                for inner in ast.walk(outer):
                    if isinstance(inner, ast.FunctionDef) and inner is not outer:
                        names = {x.id for x in ast.walk(inner) if isinstance(x, ast.Name)}
                        assert inner.name not in names, f"{path.name}: {inner.name}"


@pytest.mark.parametrize("seed", range(4))
def test_exceptions_keep_nothing_of_a_capture_alive(seed):
    """Exceptions that are raised, caught or pass a handler refer to no frame of ours."""

    def fn(x, items):
        try:
            if seed == 0:
                del items[9]
            elif seed == 1:
                x[0] = gh
            elif seed == 2:
                len(x.sum())
            else:
                raise KeyError(x)
        except ValueError:
            gh.graph_break()
        finally:
            items.append(1)

    fast = gh.optimize("eager")(fn)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            x, items = gh.ones(3), [1]
            with pytest.raises(Exception) as raised:
                fast(x, items)
            error = raised.value
            while error is not None:
                error.__traceback__, error = None, error.__context__
            del raised, error
            gone = weakref.ref(x)
            del x
            assert gone() is None
    finally:
        gc.enable()


def reads_an_unset_cell(items):
    for value in items[:0]:
        print(value)
    for _ in range(3):
        collections.Counter(items)
        with contextlib.suppress(NameError):
            print(value)
            (lambda: value)()


def throws_into_an_ended_generator(items):
    ended = (x for x in items[:0])
    list(ended)
    with contextlib.suppress(ValueError):
        ended.throw(ValueError("late"))


def raises_through_a_generator(items):
    def read():
        yield from missing  # noqa: F821

    with contextlib.suppress(NameError):
        list(read())


@pytest.mark.parametrize(
    "fn", [reads_an_unset_cell, throws_into_an_ended_generator, raises_through_a_generator]
)
def test_errors_of_the_interpreter_are_no_cycles(fn):
    """A frame of ours that names the error it raises would keep the user's frame behind it."""
    counts = []
    gc.disable()
    try:
        for call in (fn, gh.optimize("eager")(fn)):
            items = [1, 2]
            for _ in range(3):
                call(items)
            counts.append(sys.getrefcount(items))
    finally:
        gc.enable()
    assert counts[0] == counts[1]
