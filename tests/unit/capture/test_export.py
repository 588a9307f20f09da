"""Exported graphs: inputs as the signature has them, results as the function gives them."""

import itertools

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn

A, B, C = (gh.tensor([x]) for x in (1.0, 10.0, 100.0))
OUTSIDE = gh.tensor([7.0])


class Weighted(nn.Module):
    """Uses some of its arguments, in some order."""

    def __init__(self, order):
        super().__init__()
        self.order = order

    def forward(self, a, b, c):
        terms, total = (a, b, c), 0.0
        for i in self.order:
            total = total * 2 + terms[i]
        return total


ORDERS = [o for n in (1, 2, 3) for o in itertools.permutations(range(3), n)]


@pytest.mark.parametrize("order", ORDERS)
def test_inputs_have_the_order_of_the_signature(order):
    module = Weighted(order)
    for fn in (module, module.forward, lambda a, b, c: module.forward(a, b, c)):
        graph, _ = gh.export(fn, A, B, C)
        assert graph(A * 3, B, C).item() == module(A * 3, B, C).item()


@pytest.mark.parametrize("order", ORDERS[:6])
def test_arguments_by_name_are_put_where_the_signature_has_them(order):
    module = Weighted(order)
    graph, _ = gh.export(module, c=C, a=A, b=B)
    want = module(A * 3, B, C).item()
    assert graph(A * 3, B, C).item() == graph(c=C, b=B, a=A * 3).item() == want


def test_tensors_in_containers_are_inputs_in_their_order():
    def fn(pair, named, *rest):
        return named["y"] - pair[1] * rest[0]

    graph, _ = gh.export(fn, (A, B), {"x": A, "y": C}, B, C)
    assert graph(A, B, A, C, B, C).item() == 0.0


def test_tensors_from_outside_belong_to_the_module():
    inner = gh.tensor([3.0])
    graph, _ = gh.export(lambda a: a * OUTSIDE + inner, A)
    assert graph(B).item() == 73.0


def test_constant_results_belong_to_the_module():
    @gh.assume_constant_result
    def table(x):
        return x * 2

    graph, _ = gh.export(lambda x: x * table(x), A)
    assert graph(B).item() == 20.0
    graph, _ = gh.export(lambda x: gh.ones(1) * table(x), A)
    assert graph(B).item() == 2.0


def test_structure_of_the_result():
    graph, _ = gh.export(lambda a, b: {"sum": a + b, "given": [b, 3]}, A, B)
    out = graph(B, A)
    assert out["sum"].item() == 11.0 and out["given"][0].item() == 1.0 and out["given"][1] == 3


@pytest.mark.parametrize(
    "compiler",
    [
        lambda gm, inputs: gm.forward,
        lambda graph_module, x: graph_module.forward,
        lambda g, example_inputs: g.forward,
    ],
)
def test_a_compiler_is_known_by_its_parameters(compiler):
    fast = gh.optimize(compiler)(lambda x: x + 1)
    assert fast(A).item() == 2.0 and fast.capture.compiler is compiler


def test_a_compiler_with_other_names_is_known_by_its_use():
    graphs = []

    def build(model, inputs):
        graphs.append(model)
        return model.forward

    fast = gh.optimize(build)(lambda x: x + 1)
    assert fast(A).item() == 2.0 and len(graphs) == 1
    module = gh.optimize(build)(nn.Linear(2, 2))
    assert module(gh.ones((1, 2))).shape == (1, 2) and len(graphs) == 2


def test_a_function_of_two_tensors_is_no_compiler():
    fast = gh.optimize(lambda model, inputs: model * inputs)
    assert fast(A, B).item() == 10.0
    with pytest.raises(TypeError, match="argument"):
        fast(A)
    assert np.array_equal(fast(inputs=A, model=B).numpy(), [10.0])
