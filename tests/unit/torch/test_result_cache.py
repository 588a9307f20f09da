"""Results that are remembered are those that PyTorch works out, memory and all."""

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.torch.ahead.no_contents import ContentlessMode  # noqa: E402

CALLS = {
    "product": lambda x, y: x @ y.mT,
    "sum": lambda x, y: x + y,
    "numbers of one value": lambda x, y: (x * 1, x * True, x * 1.0),
    "transposed": lambda x, y: x.mT * 2,
    "view": lambda x, y: x[1:].view(-1, 2),
    "part": lambda x, y: torch.as_strided(x, (2, 2), (3, 1), 1),
    "same dtype": lambda x, y: x.to(torch.float32),
    "cast": lambda x, y: x.to(torch.bfloat16),
    "contiguous": lambda x, y: x.contiguous(),
    "contiguous view": lambda x, y: x.mT.contiguous(),
    "in place": lambda x, y: x.clone().add_(y),
    "in place of a view": lambda x, y: x.clone()[0].mul_(2),
    "joined": lambda x, y: torch.cat([x, y]),
    "several": lambda x, y: torch.split(x, 2),
    "reshaped": lambda x, y: x.mT.reshape(-1),
    "largest": lambda x, y: x.max(0),
    "norm": lambda x, y: torch.nn.functional.layer_norm(x, x.shape[1:]),
    "made": lambda x, y: torch.zeros_like(x.mT),
    "expanded": lambda x, y: x.expand(2, *x.shape) + 1,
    "dtype of a number": lambda x, y: x.to(torch.int64) / 2,
}


def described(results, operands) -> list:
    """Sizes, strides, place and dtype, and whose memory each result is."""
    results = torch.utils._pytree.tree_leaves(results)
    memories = [x.untyped_storage()._cdata for x in (*operands, *results)]
    return [
        (
            x.shape,
            x.stride(),
            x.storage_offset(),
            x.dtype,
            x.device,
            x.untyped_storage().nbytes(),
            memories.index(x.untyped_storage()._cdata),
            [x is y for y in operands],
        )
        for x in results
    ]


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_that_pytorch_works_out(name):
    def run(mode):
        with mode:
            operands = torch.empty(4, 6), torch.empty(4, 6)
            return described(CALLS[name](*operands), operands)

    mode = ContentlessMode()
    expected = run(FakeTensorMode(allow_fallback_kernels=False))
    assert [run(mode) for _ in range(3)] == [expected] * 3


def test_layers_that_are_alike_are_worked_out_once(monkeypatch):
    """So a deep model is analysed for little more than one layer."""
    asked = []
    dispatch = FakeTensorMode.dispatch

    def counted(mode, func, *args):
        asked.append(func)
        return dispatch(mode, func, *args)

    monkeypatch.setattr(FakeTensorMode, "dispatch", counted)

    def calls_of(count):
        layers = [(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(count)]
        model = torch.nn.Sequential(*(m for pair in layers for m in pair))
        data = [torch.empty(4, 8), torch.empty(4, 8)]
        loss = torch.nn.functional.mse_loss
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        asked.clear()
        costs = gh.analyze.step(model, loss, optimizer, data, convention="torch")
        return len(asked), costs.counter.total()

    (few, flops), (many, more) = calls_of(3), calls_of(9)
    assert more > 2 * flops and many - few < few
