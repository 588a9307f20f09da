"""Gradients that autograd does not have: backward graphs are lowered for their absence."""

import pytest

from glasshouse.base import having
from glasshouse.base.flags import flags

torch = pytest.importorskip("torch")
functional = torch.nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

USES = {
    "the loss": lambda loss, scores: loss,
    "the scores": lambda loss, scores: scores.square().mean(),
    "both": lambda loss, scores: loss + scores.square().mean(),
}


def model(x, weight, bias, labels):
    """Scores beside their loss, as models of transformers return them."""
    scores = x @ weight + bias
    return functional.cross_entropy(scores, labels), scores


def inputs_of(rows: int = 5) -> list:
    """The model's inputs, made alike each time."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    weight = torch.randn(3, 4, generator=generator, requires_grad=True)
    bias = torch.randn(4, generator=generator, requires_grad=True)
    return [x, weight, bias, torch.arange(rows) % 4]


def gradients(call, use, rows: int = 5) -> list:
    """Those of the model's parameters."""
    _, weight, bias, _ = inputs = inputs_of(rows)
    use(*call(*inputs)).backward()
    return [weight.grad, bias.grad]


@pytest.fixture
def backward_arguments(monkeypatch) -> list:
    """List the arguments of backward graphs, call by call."""
    from glasshouse.torch.backend.runtime import TorchGraphProgram

    calls, run = [], TorchGraphProgram.run

    def told(self, args, threads):
        if self.phase == "backward":
            calls.append([type(x) for x in args])
        return run(self, args, threads)

    monkeypatch.setattr(TorchGraphProgram, "run", told)
    return calls


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("compiles", ["always", "never"])
def test_gradients_are_those_of_eager(use, compiles):
    with having(flags, compile=compiles):
        got = gradients(torch.compile(model, backend="glasshouse"), USES[use])
    torch.testing.assert_close(got, gradients(model, USES[use]))


def test_one_compiled_function_takes_every_use_in_turn():
    compiled = torch.compile(model, backend="glasshouse")
    for use in [*USES.values(), *USES.values()]:
        torch.testing.assert_close(gradients(compiled, use), gradients(model, use))


def test_there_are_no_zeros_for_scores_that_the_loss_does_not_come_from(backward_arguments):
    gradients(torch.compile(model, backend="glasshouse"), USES["the loss"])
    (types,) = backward_arguments
    assert types.count(type(None)) == 1


def test_sizes_that_vary_have_zeros(backward_arguments):
    compiled = torch.compile(model, backend="glasshouse", dynamic=True)
    for rows in (5, 7):
        got = gradients(compiled, USES["the loss"], rows)
        torch.testing.assert_close(got, gradients(model, USES["the loss"], rows))
    assert backward_arguments
    assert all(type(None) not in types for types in backward_arguments)


def test_a_result_that_is_a_copy_of_an_input_has_a_gradient_of_zeros():
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    compiled = torch.compile(lambda a, b: (a * 2, b.clone()), backend="glasshouse")
    compiled(a, b)[0].sum().backward()
    assert a.grad.tolist() == [2, 2, 2]
    assert b.grad.tolist() == [0, 0, 0]


def test_the_node_of_another_graph_s_result_is_left_alone():
    """Its backward graph may not know undefined gradients, as those of other backends do not."""
    from glasshouse.torch.backend.undefined_gradients import WithoutZeros

    a = torch.ones(3, requires_grad=True)
    theirs = torch.compile(lambda a: (a * 2, a * 3), backend="aot_eager")(a)
    results = WithoutZeros(lambda x, y: (x, y))(*theirs)
    results[0].sum().backward()
    assert a.grad.tolist() == [2, 2, 2]


def test_a_graph_that_is_left_to_pytorch_has_zeros(monkeypatch):
    from glasshouse.torch.backend import runtime

    def fail(*_):
        raise LookupError("no Program today")

    monkeypatch.setattr(runtime, "make_variant", fail)
    with pytest.warns(UserWarning, match="no Program today"):
        got = gradients(torch.compile(model, backend="glasshouse"), USES["the loss"])
    torch.testing.assert_close(got, gradients(model, USES["the loss"]))
