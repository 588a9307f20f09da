"""The IR: graphs are made, checked, rewritten, matched, interpreted and printed."""

import copy
import operator
from typing import NamedTuple

import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.ir.graph import IRGraph
from glasshouse.ir.graph_module import GraphModule, Interpreter, Transformer
from glasshouse.ir.match import find_matches, replace_pattern

pytestmark = pytest.mark.quick

add, mul, neg, exp = (gh.primitives[name] for name in ("add", "mul", "neg", "exp"))


def simple():
    """(x + y) * x, computed with a needless node and one twice."""
    graph = IRGraph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(add, (x, y))
    again = graph.call_function(add, (x, y))
    graph.call_function(neg, (again,))
    graph.output(graph.call_function(mul, (total, x)))
    return graph


def value(graph, *args):
    return GraphModule(gh.nn.Module(), graph)(*map(gh.asarray, args)).tolist()


def test_graphs_print_as_python_that_runs(capsys):
    graph = simple()
    assert value(graph, [1.0], [2.0]) == [3.0]
    graph.print_tabular()
    assert "call_function" in capsys.readouterr().out
    assert "primitives['mul'](add, x)" in graph.python_code().text
    assert "%add = call_function[add](x, y)" in str(graph)


def test_users_follow_operands():
    graph = simple()
    x, y, total, *_ = graph.nodes
    assert list(x.users) == [n for n in graph.nodes if x in n.all_input_nodes]
    x.replace_all_uses_with(y)
    assert not x.users and total.args == (y, y)
    graph.lint()


def test_dead_and_equal_nodes_go():
    graph = simple()
    assert graph.eliminate_dead_code() and len(graph) == 5
    graph = simple()
    assert graph.eliminate_common_subexpressions()
    graph.eliminate_dead_code()
    assert [n.name for n in graph] == ["x", "y", "add", "mul", "output"]
    assert not graph.eliminate_dead_code()


def test_nodes_are_inserted_and_erased():
    graph = simple()
    product = graph.find("call_function", mul)[0]
    with graph.inserting_before(product):
        negative = graph.call_function(neg, (product.args[0],))
    product.args = (negative, product.args[1])
    assert value(graph, [1.0], [2.0]) == [-3.0]
    with pytest.raises(OptionError, match="which mul reads"):
        graph.erase_node(negative)
    with graph.inserting_after(product):
        after = graph.call_function(neg, (product,))
    graph.nodes[-1].args = (after,)
    assert value(graph, [1.0], [2.0]) == [3.0]


def test_lint_finds_what_is_wrong():
    graph = simple()
    graph.nodes[0], graph.nodes[2] = graph.nodes[2], graph.nodes[0]
    with pytest.raises(AssertionError, match="before it is computed"):
        graph.lint()
    graph = IRGraph()
    graph.placeholder("x")
    with pytest.raises(AssertionError, match="one output"):
        graph.lint()
    with pytest.raises(OptionError, match="Did you mean 'call_method'"):
        graph.create_node("call_methd", "x")


def test_names_are_free_python_names():
    graph = IRGraph()
    names = [graph.placeholder(n).name for n in ("x", "x", "1a", "for", "sum", "a.b", "self")]
    assert names == ["x", "x_1", "_1a", "for_", "sum_", "a_b", "self_1"]


def test_patterns_are_found_and_replaced():
    graph = simple()
    pattern = IRGraph()
    a, b = pattern.placeholder("a"), pattern.placeholder("b")
    pattern.output(pattern.call_function(mul, (pattern.call_function(add, (a, b)), a)))
    replacement = IRGraph()
    a, b = replacement.placeholder("a"), replacement.placeholder("b")
    square = replacement.call_function(mul, (a, a))
    replacement.output(
        replacement.call_function(add, (square, replacement.call_function(mul, (a, b))))
    )
    assert len(find_matches(graph, pattern)) == 1
    assert len(replace_pattern(graph, pattern, replacement)) == 1
    graph.lint()
    assert value(graph, [2.0], [5.0]) == [14.0]
    assert find_matches(graph, pattern) == []


def test_patterns_whose_inside_others_read_do_not_fit():
    graph = simple()
    total = graph.nodes[2]
    graph.nodes[-1].args = ((graph.nodes[-1].args[0], total),)
    pattern = IRGraph()
    a, b = pattern.placeholder("a"), pattern.placeholder("b")
    pattern.output(pattern.call_function(mul, (pattern.call_function(add, (a, b)), a)))
    assert find_matches(graph, pattern) == []


def test_interpreters_see_every_node():
    log = []

    class Watch(Interpreter):
        def call_function(self, target, args, kwargs):
            log.append(target.name)
            return super().call_function(target, args, kwargs)

    module = GraphModule(gh.nn.Module(), simple())
    assert Watch(module).run(gh.asarray([1.0]), gh.asarray([2.0])).tolist() == [3.0]
    assert log == ["add", "add", "neg", "mul"]


def test_transformers_make_new_graphs():
    class Subtract(Transformer):
        def call_function(self, target, args, kwargs):
            target = gh.primitives["sub"] if target is add else target
            return super().call_function(target, args, kwargs)

    module = GraphModule(gh.nn.Module(), simple())
    assert Subtract(module).transform()(gh.asarray([1.0]), gh.asarray([3.0])).tolist() == [-2.0]
    assert module(gh.asarray([1.0]), gh.asarray([3.0])).tolist() == [4.0]


def test_modules_and_members_are_called_and_read():
    graph = IRGraph()
    x = graph.placeholder("x")
    y = graph.call_module("layer", (x,))
    weight = graph.get_attr("layer.weight")
    graph.output({"y": y, "sizes": [graph.call_method("sum", (weight,), {"axis": 0})]})
    layer = gh.nn.Linear(2, 3)
    module = GraphModule({"layer": layer}, graph)
    out = module(gh.ones((1, 2)))
    assert out["y"].tolist() == layer(gh.ones((1, 2))).tolist()
    assert out["sizes"][0].tolist() == layer.weight.sum(axis=0).tolist()
    assert [name for name, _ in module.named_parameters()] == ["layer.weight", "layer.bias"]
    graph.get_attr("missing")
    with pytest.raises(OptionError, match="a root with 'missing'"):
        GraphModule({"layer": layer}, IRGraph.copy(graph_with(graph)))


def graph_with(graph):
    """The graph with its output last."""
    graph.nodes.append(graph.nodes.pop(-2))
    return graph


def test_defaults_and_changes_reach_the_code():
    graph = IRGraph()
    x, n = graph.placeholder("x"), graph.placeholder("n", 3)
    graph.output(graph.call_method("__mul__", (x, n)))
    module = GraphModule(gh.nn.Module(), graph)
    assert module(gh.asarray([2.0])).tolist() == [6.0]
    graph.nodes[-2].target = "__add__"
    assert module.recompile()(gh.asarray([2.0])).tolist() == [5.0]


def written(*calls):
    """x, then exp(x) twice with what `calls` put between them; their sum."""
    graph = IRGraph()
    x = graph.placeholder("x")
    first = graph.call_function(exp, (x,))
    for call in calls:
        call(graph, x, first)
    second = graph.call_function(exp, (x,))
    graph.output(graph.call_function(add, (first, second)))
    return graph


def by_method(graph, x, first):
    graph.call_method("copy_", (x, 0.0))


def by_function(graph, x, first):
    graph.call_function(operator.setitem, (x, 0, 0.0))


def by_operator(graph, x, first):
    graph.call_function(operator.imul, (x, 0.0))


def of_result(graph, x, first):
    graph.call_method("copy_", (first, 0.0))


@pytest.mark.parametrize("call", [by_method, by_function, by_operator, of_result])
def test_passes_keep_what_is_written_in_place(call):
    graph = written(call)
    before = value(graph, [1.0])
    assert before != value(written(), [1.0])
    for _ in range(2):
        graph.eliminate_common_subexpressions()
        graph.eliminate_dead_code()
    assert value(graph, [1.0]) == before
    pattern = IRGraph()
    x = pattern.placeholder("x")
    pattern.output(pattern.call_function(add, (pattern.call_function(exp, (x,)),) * 2))
    assert not find_matches(graph, pattern)


def test_replaced_results_are_arguments_of_the_next():
    def of(fn):
        graph = IRGraph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        graph.output(graph.call_function(fn, (x, y)))
        return graph

    graph = IRGraph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first = graph.call_function(add, (x, y))
    second = graph.call_function(add, (first, y))
    graph.output(graph.call_function(add, (second, first)))
    assert len(replace_pattern(graph, of(add), of(mul))) == 3
    graph.lint()
    assert value(graph, [2.0], [3.0]) == [18.0 * 6.0]


def test_erased_nodes_do_not_move_where_others_go():
    graph = IRGraph()
    x = graph.placeholder("x")
    old = graph.call_function(exp, (x,))
    last = graph.call_function(neg, (old,))
    graph.output(last)
    with graph.inserting_after(old):
        first = graph.call_function(neg, (x,))
        old.replace_all_uses_with(first)
        graph.erase_node(old)
        last.args = (graph.call_function(exp, (first,)),)
    graph.lint()


def test_names_in_the_source_are_what_they_stand_for():
    graph = IRGraph()
    x = graph.placeholder("primitives")
    region = graph.call_function(neg, (x,), None)
    region.meta["checkpoint"] = 0
    local = graph.call_function(lambda x: x + 1, (region,))
    power = graph.call_function(operator.pow, (-2.0, local))
    pair = graph.create_node("call_function", add, (x, power), name="constant_1")
    graph.create_node("call_function", operator.getitem, ({1, 2}, 0), name="constant_0").args = (
        [pair, range(3)],
        0,
    )
    graph.output({"checkpoint": pair, "kinds": Kinds(pair, gh.float32)})
    instance = copy.deepcopy(GraphModule(gh.nn.Module(), graph))(gh.asarray([3.0]))
    assert instance["checkpoint"].tolist() == [3.0 + 0.25] and type(instance["kinds"]) is Kinds
    assert instance["kinds"].dtype is gh.float32


class Kinds(NamedTuple):
    value: object
    dtype: object
