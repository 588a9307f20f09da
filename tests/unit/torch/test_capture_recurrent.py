"""Recurrent layers in captured training steps: compiled, or as eager computes them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import glasshouse as gh
from glasshouse.capture.sessions.config import config

pytestmark = pytest.mark.library_warnings
X = torch.linspace(-1, 1, 105).reshape(7, 3, 5)
KINDS = (nn.LSTM, nn.GRU, nn.RNN)


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """A compiler that raises is an error."""
    monkeypatch.setattr(config, "raise_compiler_errors", True)


class Padded(nn.Module):
    """A layer on sequences of several lengths."""

    def __init__(self, kind):
        super().__init__()
        self.before, self.layer = nn.Linear(5, 5), kind(5, 6)

    def forward(self, x):
        lengths = torch.tensor([2 + int(x[0, 0, 0] > 0), 7, 5])
        packed = pack_padded_sequence(self.before(x), lengths, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0])[0], None


def trained_alike(model, x, autocast: bool = False, calls: int = 5):
    """Train a model in eager and captured; returns the captured step."""
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(x)[0].float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    captured = gh.optimize(step)
    of_loss = {"rtol": 1e-2, "atol": 1e-4} if autocast else {"rtol": None, "atol": None}
    for _ in range(calls):
        want = step(model, optimizers[0], x)
        torch.testing.assert_close(captured(other, optimizers[1], x), want, **of_loss)
    tolerance = {"rtol": 2e-2, "atol": 1e-3} if autocast else {"rtol": 1e-4, "atol": 1e-5}
    for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)
    return lambda: captured(other, optimizers[1], x)


def eager_operators(call) -> set[str]:
    """The operators that PyTorch computes in a call."""
    with gh.profile() as prof:
        call()
    return {row.name for row in prof.kernels() if row.kind == "op"}


def assert_compiled(call) -> None:
    names = eager_operators(call)
    assert names and not any("rnn" in name or "lstm" in name or "gru" in name for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_a_layer_is_compiled(kind, options):
    assert_compiled(trained_alike(kind(5, 6, **options), X))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_float64_is_compiled(kind):
    assert_compiled(trained_alike(kind(5, 6).double(), X.double()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_under_autocast_is_compiled(kind):
    if kind is nn.LSTM and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("PyTorch's own layer raises on this processor")
    assert_compiled(trained_alike(kind(5, 6), X, autocast=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_several_lengths_are_eagers(kind):
    trained_alike(Padded(kind), X)
