"""Gradients of parts of a tensor under torch.compile: one tensor with the parts side by side."""

import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def attention_inputs(x):
    parts = x.unflatten(-1, (3, 3))
    q, k, v = (parts[..., i, :] for i in range(3))
    return q * k + v


FUNCTIONS = {
    "row": lambda x: x[1] * 2,
    "rows from behind": lambda x: x[:, -2] * x[:, 1],
    "every second": lambda x: x[:, ::2] * 3,
    "both halves, interleaved": lambda x: x[:, 0:6:2] * x[:, 1::2],
    "steps and bounds": lambda x: x[1:4:2, :, 3:] * 2,
    "nothing": lambda x: x[:, 5:5].sum() + x.sum(),
    "bounds outside": lambda x: x[:, -100:100] * 2,
    "all parts": attention_inputs,
    "split": lambda x: x.split(3, -1)[0] * x.split(3, -1)[2],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_pytorchs(name):
    function = FUNCTIONS[name]
    x = torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = torch.autograd.grad(function(x).sum(), x)[0]
    compiled = torch.compile(function, backend="glasshouse", fullgraph=True)
    assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0], expected)


def test_parts_that_make_up_the_whole_need_no_zeros():
    x = torch.randn(5, 7, 9).requires_grad_()
    compiled = torch.compile(attention_inputs, backend="glasshouse", fullgraph=True)
    y = compiled(x)
    with gh.profile() as prof:
        y.backward(torch.ones_like(y))
    names = [row.name for row in prof.kernels()]
    assert "mul" in names
    assert not {"full", "pad", "add"} & {op for name in names for op in name.split(" + ")}
