"""Whole steps of a model beside eager's, as the tools that judge libraries take them."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[3] / "tools" / "judges"))

from torch_zoo import captured as tool  # noqa: E402
from torch_zoo import exact  # noqa: E402

import glasshouse as gh  # noqa: E402


class Spectral(torch.nn.Module):
    """Complex weights, a tensor that is kept of each call, a state that has more than tensors."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.kept = torch.fft.rfft(x) * self.weight
        return torch.fft.irfft(self.kept, n=4)

    def get_extra_state(self):
        return {"count": 0}

    def set_extra_state(self, state):
        pass


def test_models_with_complex_weights_and_kept_tensors_are_compared():
    torch.manual_seed(0)
    model, inputs = Spectral(), {"x": torch.randn(2, 4)}
    weights = tool.weights_of(model, inputs)
    eager = tool.Run(tool.train, model, inputs, weights)
    ours = tool.Run(gh.optimize("eager")(tool.train), model, inputs, weights)
    assert max(tool.compare(ours, eager).values()) < 1e-5
    ours.parts["parameters"]["weight"].data.mul_(1.5)
    assert 0.4 < tool.compare(ours, eager)["parameters"] < 0.6


def test_complex_weights_are_widened_and_narrowed_with_the_others():
    model = exact.widen(Spectral())
    assert model.weight.dtype is torch.complex128
    assert exact.narrow(model).weight.dtype is torch.complex64
