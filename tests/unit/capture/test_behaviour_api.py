"""Entry points: what each of them does, refuses, and leaves as it was."""

import inspect
import re
import warnings

import numpy as np
import pytest
from checking import Counting, X

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import OptionError
from glasshouse.capture.bytecode.native import native
from glasshouse.ir.graph_module import GraphModule
from glasshouse.nn import functional as F


def close(a, b):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6, strict=True)


def wave(x, y):
    return gh.cos(x) + gh.sin(y)


# -- optimize --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", ["bare", "called", "name", "keyword", "alias", "callable", "direct"]
)
def test_ways_to_decorate(how):
    fast = {
        "bare": lambda: gh.optimize(wave),
        "called": lambda: gh.optimize()(wave),
        "name": lambda: gh.optimize("eager")(wave),
        "keyword": lambda: gh.optimize(compiler="program", nopython=True)(wave),
        "callable": lambda: gh.optimize(lambda gm, example_inputs: gm.forward)(wave),
        "alias": lambda: gh.optimize("glass")(wave),
        "direct": lambda: gh.optimize("nop", dynamic=True)(wave),
    }[how]()
    for k in range(3):
        close(fast(X(3, seed=k), X(3, seed=k + 5)), wave(X(3, seed=k), X(3, seed=k + 5)))
    assert len(fast.entries) == 1
    assert fast.hits == 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + 1,
        lambda x, inputs=None: x + 1,
        lambda x, y=2: x + y,
        lambda: gh.ones(2),
    ],
)
def test_bare_decorator_takes_functions(fn):
    fast = gh.optimize(fn)
    args = (X(2),) if inspect.signature(fn).parameters else ()
    close(fast(*args), fn(*args))


@pytest.mark.parametrize("name", ["gloss", "egaer", "", "Eager"])
def test_unknown_compiler(name):
    with pytest.raises(OptionError, match="compiler"):
        gh.optimize(name)


@pytest.mark.parametrize("thing", [3, None, "text", [1], gh.float32])
def test_what_cannot_be_captured(thing):
    with pytest.raises(OptionError, match="optimize"):
        gh.optimize("eager")(thing)


def test_name_doc_and_signature_are_kept():
    @gh.optimize("eager")
    def documented(x, /, k: int = 2, *, m: float = 0.5) -> gh.Tensor:
        """Do something."""
        return x * k + m

    assert documented.__name__ == "documented"
    assert documented.__qualname__.endswith("<locals>.documented")
    assert documented.__doc__ == "Do something."
    assert documented.__module__ == __name__
    assert str(inspect.signature(documented)) == str(inspect.signature(documented.__wrapped__))
    assert callable(documented)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f(),
        lambda f, x: f(x, 1, 2, 3, 4),
        lambda f, x: f(x, nothing=3),
        lambda f, x: f(x, x=3),
        lambda f, x: f(x, 1, k=2),
        lambda f, x: f(k=1),
    ],
)
def test_wrong_calls_raise_as_in_python(call):
    def fn(x, k=2, *, m=0):
        return x * k + m

    fast = gh.optimize("eager")(fn)
    with pytest.raises(TypeError) as wanted:
        call(fn, X(3))
    for _ in range(2):
        with pytest.raises(TypeError, match=re.escape(str(wanted.value))):
            call(fast, X(3))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((1,), {}),
        ((1, 2), {}),
        ((1,), {"b": 5}),
        ((1, 2, 3, 4), {}),
        ((1,), {"d": 7}),
        ((1, 2, 3), {"d": 7, "e": 8, "f": 9}),
    ],
)
def test_kinds_of_parameters(args, words):
    def fn(x, a, /, b=2, *rest, d=4, **more):
        return x * a + b - sum(rest) * d + sum(more.values()), list(more)

    fast = gh.optimize("eager")(fn)
    for k in range(3):
        got, want = fast(X(3, seed=k), *args, **words), fn(X(3, seed=k), *args, **words)
        close(got[0], want[0])
        assert got[1] == want[1]


def test_methods():
    class Local:
        k = 2.0

        @gh.optimize("eager")
        def go(self, x):
            return x * self.k

        @staticmethod
        @gh.optimize("eager")
        def alone(x):
            return x + 1

        @classmethod
        @gh.optimize("eager")
        def of_class(cls, x):
            return x * cls.k

        @property
        @gh.optimize("eager")
        def value(self):
            return gh.ones(2) * self.k

    o = Local()
    for _ in range(3):
        close(o.go(X(3)), X(3) * 2)
        close(Local.go(o, X(3)), X(3) * 2)
        close(Local.alone(X(3)), X(3) + 1)
        close(o.alone(X(3)), X(3) + 1)
        close(Local.of_class(X(3)), X(3) * 2)
        close(o.value, gh.ones(2) * 2)
    assert Local.go.hits == 5
    bound = gh.optimize("eager")(o.go)
    close(bound(X(3)), X(3) * 2)


def test_callable_object():
    class Local:
        def __call__(self, x):
            return x * 3

    fast = gh.optimize("eager")(Local())
    for _ in range(3):
        close(fast(X(3)), X(3) * 3)


def test_context_manager_captures_what_is_called_inside():
    counting = Counting()
    xs, z, got = [X(3, seed=k) for k in range(3)], X(3, seed=9), []
    with gh.optimize(counting):
        for x in xs:
            got.append(wave(x, z))
    for x, y in zip(xs, got):
        close(y, gh.cos(x) + gh.sin(z))
    assert len(counting.graphs) == 1
    assert counting.runs == 3
    wave(*xs[:2])
    assert counting.runs == 3


def test_context_manager_captures_what_breaks():
    with gh.optimize("eager"):
        got = [X(3, seed=k) for k in (1, 1, 2)]
    for k, x in zip((1, 1, 2), got):
        close(x, X(3, seed=k))


def test_context_manager_and_modules():
    counting, module = Counting(), nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def go(x):
        return module(x) * 2

    x, got = X(2, 4), []
    want = go(x)
    with gh.optimize(counting):
        for _ in range(3):
            got.append(go(x))
    for y in got:
        close(y, want)
    assert counting.runs == 3


def test_context_manager_restores_the_hook_after_an_error():
    assert native().set_hook(None) is None
    with pytest.raises(ValueError, match="inside"), gh.optimize("eager"):
        raise ValueError("inside")
    assert native().set_hook(None) is None


def test_context_managers_nest():
    outer, inner = Counting(), Counting()

    def fn(x):
        return x * 5

    x = X(2)
    with gh.optimize(outer):
        fn(x)
        with gh.optimize(inner):
            fn(x)
            fn(x)
        fn(x)
    assert (outer.runs, inner.runs) == (2, 2)
    assert native().set_hook(None) is None


def test_one_context_is_entered_again():
    counting = Counting()
    context, x = gh.optimize(counting), X(2)
    for _ in range(3):
        with context:
            wave(x, x)
    assert len(counting.graphs) == 1
    assert counting.runs == 3


def test_nested_optimize_takes_the_innermost_function():
    one, two = Counting(), Counting()
    first = gh.optimize(one)(wave)
    second = gh.optimize(two)(first)
    close(second(X(2), X(2)), wave(X(2), X(2)))
    assert (one.runs, two.runs) == (0, 1)


def test_captured_function_calls_a_captured_function():
    one, two = Counting(), Counting()

    @gh.optimize(one)
    def inner(x):
        return x * 2

    @gh.optimize(two)
    def outer(x):
        return inner(x) + inner(x + 1)

    for k in range(3):
        close(outer(X(3, seed=k)), X(3, seed=k) * 2 + (X(3, seed=k) + 1) * 2)
    assert len(two.graphs) == 1


# -- run, disable, skip ----------------------------------------------------------------------------


def test_run_uses_only_entries_that_exist():
    counting = Counting()
    fast = gh.optimize(counting)(wave)
    fast(X(3), X(3))
    with gh.run():
        close(fast(X(3), X(3)), wave(X(3), X(3)))
        close(fast(X(5), X(5)), wave(X(5), X(5)))
    assert len(counting.graphs) == 1
    assert counting.runs == 2
    only = gh.run(fast)
    close(only(X(7), X(7)), wave(X(7), X(7)))
    assert len(fast.entries) == 1


def test_disable_as_context():
    counting = Counting()
    fast = gh.optimize(counting)(wave)
    with gh.disable():
        close(fast(X(3), X(3)), wave(X(3), X(3)))
    assert counting.runs == 0
    assert not fast.entries
    fast(X(3), X(3))
    with gh.disable():
        fast(X(3), X(3))
    assert counting.runs == 1


def test_disable_restores_after_an_error():
    with pytest.raises(ValueError), gh.disable():
        raise ValueError
    assert native().get_mode() == 0


def test_disabled_function_inside():
    log = []

    @gh.disable
    def opaque(x):
        log.append(x.sum().item())
        return x * 2

    counting = Counting()

    @gh.optimize(counting)
    def fn(x):
        return opaque(x + 1) - 1

    for k in range(3):
        close(fn(X(3, seed=k)), (X(3, seed=k) + 1) * 2 - 1)
    assert len(log) == 3
    assert len(counting.graphs) == 2


def test_disable_reaches_below():
    counting = Counting()
    inner = gh.optimize(counting)(lambda x: x * 2)

    @gh.disable
    def outer(x):
        return inner(x) + 1

    for _ in range(3):
        close(outer(X(3)), X(3) * 2 + 1)
    assert counting.runs == 0


def test_disable_of_a_captured_function():
    counting = Counting()
    plain = gh.disable(gh.optimize(counting)(wave))
    close(plain(X(3), X(3)), wave(X(3), X(3)))
    assert counting.runs == 0
    assert plain.__name__ == "wave"


def test_skip_leaves_what_is_called():
    counting = Counting()
    inner = gh.optimize(counting)(lambda x: x * 2)

    @gh.skip
    def outer(x):
        return inner(x) + 1

    @gh.optimize(counting)
    def fn(x):
        return outer(x) - 1

    for k in range(3):
        close(fn(X(3, seed=k)), X(3, seed=k) * 2)
    assert counting.runs >= 3
    targets = [n.target for g in counting.graphs for n in g.graph.nodes]
    assert not any(getattr(t, "__name__", "") == "outer" for t in targets)


def test_skip_in_a_context():
    counting = Counting()

    @gh.skip
    def outer(x):
        return x + 1

    x = X(3)
    with gh.optimize(counting):
        got = outer(x)
    close(got, x + 1)
    assert counting.runs == 0


# -- what is in a graph ----------------------------------------------------------------------------


def weird(x):
    return gh.asarray(np.sort(x.numpy()))


def test_disallow_in_graph():
    counting = Counting()
    assert gh.disallow_in_graph(gh.sin) is gh.sin
    try:
        fast = gh.optimize(counting)(lambda x: gh.sin(x * 2) + 1)
        for k in range(3):
            close(fast(X(3, seed=k)), gh.sin(X(3, seed=k) * 2) + 1)
        assert len(counting.graphs) == 2
        assert not any(n.target is gh.sin for g in counting.graphs for n in g.graph.nodes)
    finally:
        gh.allow_in_graph(gh.sin)


CONTAINERS = {
    "dict": (lambda x: {"a": x}, lambda r: r["a"]),
    "list of dicts": (lambda x: [{"a": x}], lambda r: r[0]["a"]),
    "tuple of a number and dicts": (lambda x: (3, {"a": [x, 1]}), lambda r: r[1]["a"][0]),
    "lists in lists": (lambda x: [[x], [x * 2]], lambda r: r[1][0]),
    "dict in a dict": (lambda x: {"a": {"b": (x,)}}, lambda r: r["a"]["b"][0]),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("read", [lambda x: x, lambda x: x.detach().numpy().max()])
def test_tensors_in_the_containers_that_an_operation_gives_are_those_of_each_call(name, read):
    """A list of dicts counted as a constant, whose tensors stayed those of the first call."""
    pack, unpack = CONTAINERS[name]

    def operation(x):
        return pack(x * 3)

    gh.allow_in_graph(operation)

    @gh.optimize
    def step(x):
        return (x * read(unpack(operation(x)))).sum()

    try:
        for start in range(4):
            x = gh.asarray([1.0 + start, 2.0 - start, 5.0])
            expected = (x * read(unpack(operation(x)))).sum().item()
            assert step(x).item() == pytest.approx(expected)
    finally:
        gh.disallow_in_graph(operation)


ARRAYS = {
    "alone": (lambda: np.array([2.0, 1.0]), lambda r: float(r[0])),
    "of integers": (lambda: np.arange(3), lambda r: int(r.sum())),
    "of an axis": (lambda: np.ones((2, 1)), lambda r: r.shape[0]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("times", [0, 1, 2])
def test_an_operation_may_give_an_array_of_numpys(name, times):
    """Its node was taken out of the graph, but read by what followed a break."""
    make, read = ARRAYS[name]

    def operation():
        return make()

    def inner(x, results):
        for _ in range(times):
            number = float(x.numpy()[0])
            results.append((operation(), number))
        return results

    gh.allow_in_graph(operation)

    @gh.optimize
    def step(x):
        doubled = x * 2
        results = inner(x, [(operation(), 1.0)])
        return doubled.sum() * sum(read(array) * number for array, number in results)

    try:
        for start in range(3):
            x = gh.asarray([1.0 + start, 2.0])
            expected = (x * 2).sum().item() * read(make()) * (1 + times * (1 + start))
            assert step(x).item() == pytest.approx(expected)
    finally:
        gh.disallow_in_graph(operation)


def test_allow_in_graph():
    def helper(x):
        return gh.sin(x) * 2 + 1

    counting = Counting()
    assert gh.allow_in_graph(helper) is helper
    fast = gh.optimize(counting, nopython=True)(lambda x: helper(x) + 1)
    for k in range(3):
        close(fast(X(3, seed=k)), helper(X(3, seed=k)) + 1)
    (graph,) = counting.graphs
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"][0] is helper
    gh.disallow_in_graph(helper)


def test_lists_of_functions():
    def one(x):
        return x + 1

    def two(x):
        return x * 2

    gh.allow_in_graph([one, two])
    counting = Counting()
    fast = gh.optimize(counting)(lambda x: two(one(x)))
    close(fast(X(3)), (X(3) + 1) * 2)
    assert [n.target for n in counting.graphs[0].graph.nodes if n.op == "call_function"] == [
        one,
        two,
    ]
    gh.disallow_in_graph([one, two])
    gh.reset()
    counting = Counting()
    fast = gh.optimize(counting)(lambda x: two(one(x)) - 1)
    close(fast(X(3)), (X(3) + 1) * 2 - 1)


def test_assume_constant_result():
    calls = []

    @gh.assume_constant_result
    def setting():
        calls.append(1)
        return 3.0

    fast = gh.optimize("eager", nopython=True)(lambda x: x * setting())
    for k in range(4):
        close(fast(X(3, seed=k)), X(3, seed=k) * 3)
    assert len(calls) == 1


# -- compilers -------------------------------------------------------------------------------------


def test_list_compilers():
    names = gh.list_compilers()
    assert {"eager", "nop", "print", "program"} <= set(names)
    assert names == sorted(names)


def test_register_compiler():
    counting = Counting()
    gh.register_compiler(counting, name="counting_test")
    try:
        assert "counting_test" in gh.list_compilers()
        close(gh.optimize("counting_test")(wave)(X(3), X(3)), wave(X(3), X(3)))
        assert counting.runs == 1

        @gh.register_compiler
        def my_own_test(gm, example_inputs):
            return gm.forward

        @gh.register_compiler(name="other_test")
        def unnamed(gm, example_inputs):
            return gm.forward

        assert {"my_own_test", "other_test"} <= set(gh.list_compilers())
        assert callable(my_own_test)
        assert callable(unnamed)
    finally:
        for name in ("counting_test", "my_own_test", "other_test"):
            gh.capture.compilers.compilers.pop(name, None)


def test_compiler_gets_graph_and_inputs():
    log = []

    def my_compiler(gm, example_inputs):
        log.append((gm, example_inputs))
        return gm.forward

    fast = gh.optimize(my_compiler)(wave)
    x, y = X(3), X(3, seed=2)
    fast(x, y)
    ((gm, inputs),) = log
    assert isinstance(gm, GraphModule)
    assert isinstance(gm, nn.Module)
    assert [type(i) for i in inputs] == [gh.Tensor, gh.Tensor]
    close(inputs[0], x)
    close(inputs[1], y)
    nodes = list(gm.graph.nodes)
    assert [n.op for n in nodes if n.op == "placeholder"] == ["placeholder"] * 2
    assert nodes[-1].op == "output"
    calls = [n.target for n in nodes if n.op.startswith("call")]
    assert calls[:2] == [gh.cos, gh.sin]
    close(gm(x, y)[0], wave(x, y))
    assert "def forward" in gm.code


def test_print_compiler_prints_a_table(capsys):
    fast = gh.optimize("print")(wave)
    fast(X(3), X(3))
    printed = capsys.readouterr().out
    for word in ("opcode", "name", "target", "args", "kwargs", "placeholder", "output", "cos"):
        assert word in printed
    fast(X(3), X(3))
    assert capsys.readouterr().out == ""


def test_result_of_the_compiler_is_used():
    fast = gh.optimize(lambda gm, example_inputs: lambda *args: (gh.zeros(3) - 7,))(wave)
    close(fast(X(3), X(3)), gh.zeros(3) - 7)
    close(fast(X(3), X(3)), gh.zeros(3) - 7)


def test_changed_graph_is_used():
    def swapped(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.target is gh.cos:
                node.target = gh.exp
        gm.recompile()
        return gm.forward

    fast = gh.optimize(swapped)(wave)
    for k in range(3):
        close(fast(X(3, seed=k), X(3)), gh.exp(X(3, seed=k)) + gh.sin(X(3)))


def failing(gm, example_inputs):
    raise ZeroDivisionError("no luck")


def test_compiler_that_raises_falls_back_with_one_warning():
    fast = gh.optimize(failing)(wave)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (2, 3, 4):
            close(fast(X(n), X(n)), wave(X(n), X(n)))
    texts = [str(w.message) for w in caught]
    assert len(texts) == 1
    assert "no luck" in texts[0]


def test_compiler_that_raises_under_a_flag():
    fast = gh.optimize(failing)(wave)
    with (
        gh.capture.config.override(raise_compiler_errors=True),
        pytest.raises(ZeroDivisionError, match="no luck"),
    ):
        fast(X(3), X(3))


def test_compiled_function_that_raises():
    def bad(gm, example_inputs):
        def run(*inputs):
            raise ZeroDivisionError("at run time")

        return run

    fast = gh.optimize(bad)(wave)
    with pytest.raises(ZeroDivisionError, match="at run time"):
        fast(X(3), X(3))


def test_graph_without_operations_needs_no_compiler():
    counting = Counting()
    fast = gh.optimize(counting)(lambda x, k: [x, k + 1])
    for _ in range(3):
        x = X(3)
        a, k = fast(x, 3)
        assert a is x
        assert k == 4
    assert not counting.graphs


# -- explain, export, reset, config ----------------------------------------------------------------


def breaks_once(x):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y - 1


def test_explain():
    explanation = gh.explain(breaks_once, X(3) * 0 + 1)
    text = str(explanation)
    assert "breaks_once" in text
    assert "2 graphs" in text
    assert "1 breaks" in text or "1 break" in text
    line = breaks_once.__code__.co_firstlineno + 2
    assert f"test_behaviour_api.py:{line}" in text
    assert "guards" in text
    assert "operations" in text
    assert explanation.guards
    assert explanation.operations >= 3
    assert len(explanation.graphs) == 2
    close(explanation.result, breaks_once(X(3) * 0 + 1))


def test_explain_of_a_module_and_without_a_break():
    explanation = gh.explain(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), X(2, 3))
    assert len(explanation.graphs) == 1
    assert not explanation.breaks
    assert "0 breaks" in str(explanation)


def test_explain_leaves_no_entry():
    fast = gh.optimize("eager")(wave)
    gh.explain(fast, X(3), X(3))
    assert not fast.entries


def test_explain_with_keywords():
    explanation = gh.explain(lambda x, *, k: x * k, X(3), k=2)
    close(explanation.result, X(3) * 2)


def test_export():
    gm, guards = gh.export(wave, X(3), X(3, seed=2))
    assert isinstance(gm, GraphModule)
    assert guards
    assert all(isinstance(g, str) for g in guards)
    assert any("float32[3]" in g for g in guards)
    out = gm(X(3), X(3, seed=2))
    out = out[0] if isinstance(out, tuple) else out
    close(out, wave(X(3), X(3, seed=2)))


def test_export_matches_the_signature():
    def fn(a, b, c):
        return b - a, c, a * 2

    gm, _ = gh.export(fn, X(3), X(3, seed=2), X(3, seed=3))
    got = gm(X(3, seed=7), X(3, seed=8), X(3, seed=9))
    for one, two in zip(got, fn(X(3, seed=7), X(3, seed=8), X(3, seed=9)), strict=True):
        close(one, two)


def test_export_of_a_module():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    gm, _ = gh.export(module, X(2, 4))
    out = gm(X(2, 4, seed=9))
    close(out[0] if isinstance(out, tuple) else out, module(X(2, 4, seed=9)))


@pytest.mark.parametrize("fn", [breaks_once, lambda x: x * x.sum().item()])
def test_export_refuses_breaks(fn):
    with pytest.raises(gh.CaptureError, match=r"test_behaviour_api\.py:\d+"):
        gh.export(fn, X(3))


def test_export_of_what_has_no_graph():
    with pytest.raises(gh.CaptureError, match="export"):
        gh.export(lambda x: 3, X(3))


def test_reset_forgets():
    counting = Counting()
    fast = gh.optimize(counting)(wave)
    fast(X(3), X(3)), fast(X(3), X(3))
    gh.reset()
    assert not fast.entries
    assert not gh.capture.counters["graphs"]
    close(fast(X(3), X(3)), wave(X(3), X(3)))
    assert len(counting.graphs) == 2


def test_counters():
    fast = gh.optimize("eager")(wave)
    fast(X(3), X(3)), fast(X(3), X(3)), fast(X(2, 2), X(2, 2))
    counters = gh.capture.counters
    assert counters["captures"] == 2
    assert counters["graphs"] == 2
    assert counters["operations"] == 6
    assert counters["recompiles"] == 1
    assert counters["breaks"] == 0
    assert counters["what is not counted"] == 0


@pytest.mark.parametrize("name", ["cache_limits", "verbose", "Dynamic"])
def test_config_refuses_unknown_names(name):
    with pytest.raises(OptionError, match=name):
        setattr(gh.capture.config, name, 1)
    with pytest.raises(OptionError, match=name):
        getattr(gh.capture.config, name)
    with pytest.raises(OptionError, match=name), gh.capture.config.override(**{name: 1}):
        pass


@pytest.mark.parametrize(("name", "value"), [("cache_limit", "8"), ("dynamic", 1)])
def test_config_refuses_other_types(name, value):
    before = getattr(gh.capture.config, name)
    with pytest.raises(OptionError, match=name):
        setattr(gh.capture.config, name, value)
    assert getattr(gh.capture.config, name) == before


def test_config_override_restores():
    with (
        pytest.raises(ValueError),
        gh.capture.config.override(cache_limit=3, print_graphs=True) as c,
    ):
        assert c.cache_limit == 3
        raise ValueError
    assert gh.capture.config.cache_limit != 3
    assert not gh.capture.config.print_graphs


@pytest.mark.parametrize("flag", ["print_graphs", "print_guards", "print_bytecode"])
def test_printing_flags(flag, capsys):
    with gh.capture.config.override(**{flag: True}):
        gh.optimize("eager")(breaks_once)(X(3))
    printed = capsys.readouterr().out
    assert "breaks_once" in printed
    wanted = {
        "print_graphs": ["placeholder", "call_function"],
        "print_guards": ["float32[3]"],
        "print_bytecode": ["original", "modified", "RETURN_VALUE"],
    }[flag]
    assert all(word in printed for word in wanted)


# -- the limit -------------------------------------------------------------------------------------


def by_text(x, k):
    return x + len(k)


def test_limit_keeps_entries_and_warns_once():
    counting = Counting()
    fast = gh.optimize(counting)(by_text)
    with (
        gh.capture.config.override(cache_limit=4),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for n in range(10):
            close(fast(X(3), "a" * n), X(3) + n)
        assert len(fast.entries) == 4
        runs = counting.runs
        for n in range(4):
            close(fast(X(3), "a" * n), X(3) + n)
        assert counting.runs == runs + 4
    assert len(counting.graphs) == 4
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "by_text" in text
    assert "cache_limit" in text
    assert "k" in text
    assert gh.capture.counters["limits"] == 1


def test_limit_is_counted_for_each_instance():
    class Local(nn.Module):
        def __init__(self, text):
            super().__init__()
            self.text = text

        @gh.optimize("eager")
        def forward(self, x):
            return x + len(self.text)

    models = [Local("a" * n) for n in range(12)]
    with gh.capture.config.override(cache_limit=2):
        for _ in range(2):
            for n, m in enumerate(models):
                close(m(X(3)), X(3) + n)
    assert len(Local.forward.entries) == 12
    assert Local.forward.hits == 12


def test_limit_of_one_instance_leaves_others():
    class Local:
        def __init__(self, text):
            self.text = text

        @gh.optimize("eager")
        def go(self, x):
            return x + len(self.text)

    one, two = Local(""), Local("")
    with gh.capture.config.override(cache_limit=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(5):
            one.text = "b" * n
            close(one.go(X(3)), X(3) + n)
        two.text = "zzzzzzz"
        close(two.go(X(3)), X(3) + 7)
        before = Local.go.hits
        close(two.go(X(3)), X(3) + 7)
    assert Local.go.hits == before + 1


def test_everything_on_the_front_page():
    for name in (
        "optimize run disable skip explain export graph_break allow_in_graph disallow_in_graph "
        "assume_constant_result mark_dynamic reset list_compilers register_compiler CaptureError"
    ).split():
        assert hasattr(gh, name), name
        assert getattr(gh, name).__doc__, name


def test_tour():
    """The toy compiler of the tour: it prints the graph, and runs it."""
    calls = []

    def my_compiler(gm, example_inputs):
        gm.graph.print_tabular()
        calls.append(len(example_inputs))
        return gm.forward

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(10, 5)

        def forward(self, x):
            return F.relu(self.lin(x))

    net = Net()
    fast = gh.optimize(my_compiler)(net)
    for k in range(3):
        close(fast(X(2, 10, seed=k)), net(X(2, 10, seed=k)))
    assert calls == [1]


def test_compile_is_optimize_with_the_arguments_of_torch():
    @gh.compile(fullgraph=True, mode="reduce-overhead")
    def double(x):
        return x * 2

    assert [double(gh.ones(1)).item() for _ in range(3)] == [2, 2, 2] and double.hits == 2
    layer = gh.nn.Linear(2, 1)
    assert gh.compile(layer, backend="eager")(gh.ones((3, 2))).shape == (3, 1)
    assert gh.compile(layer, disable=True) is layer
    with pytest.raises(gh.OptionError, match="Did you mean 'max-autotune'"):
        gh.compile(layer, mode="max-autotun")
