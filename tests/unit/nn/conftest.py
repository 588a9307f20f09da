"""Comparison of layers and functions with PyTorch's: values, gradients, state."""

import numpy as np
import pytest

import glasshouse as gh


def leaves(result):
    """The tensors of a result, None left out."""
    outcome = result if isinstance(result, (tuple, list)) else (result,)
    return [x for x in outcome if x is not None]


class Twin:
    """Runs ours and PyTorch's on the same arrays and compares."""

    def __init__(self, torch):
        self.torch = torch

    def function(self, ours, theirs, *arrays, rtol=1e-9, atol=1e-11):
        """Values, and gradients for every floating array, of two functions of tensors."""
        torch = self.torch
        mine = [gh.asarray(a) for a in arrays]
        other = [torch.tensor(a) for a in arrays]
        tracked = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
        for i in tracked:
            mine[i].requires_grad_()
            other[i].requires_grad_()
        got, expected = leaves(ours(*mine)), leaves(theirs(*other))
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            assert g.shape == tuple(e.shape)
            assert g.dtype.name == str(e.dtype).removeprefix("torch.")
            np.testing.assert_allclose(g.numpy(), e.detach().numpy(), rtol=rtol, atol=atol)
        self.backward(got, expected)
        for i in tracked:
            self.same_gradient(mine[i], other[i], rtol, atol)

    def backward(self, got, expected):
        """Backward from the same random cotangents."""
        rng = np.random.default_rng(7)
        ours, theirs = 0, 0
        for g, e in zip(got, expected, strict=True):
            if e.requires_grad:
                weight = rng.normal(size=g.shape).astype(g.numpy().dtype)
                ours = ours + (g * weight).sum()
                theirs = theirs + (e * self.torch.tensor(weight)).sum()
        if not isinstance(theirs, int):
            ours.backward()
            theirs.backward()

    def same_gradient(self, mine, other, rtol, atol):
        if other.grad is None:
            assert mine.grad is None or not mine.grad.numpy().any()
            return
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=rtol, atol=atol)

    def module(self, ours, theirs, *arrays, rtol=1e-9, atol=1e-11, **options):
        """Repr, state names, values, gradients and new buffers of two modules."""
        theirs = theirs.double()
        state = theirs.state_dict()
        own = ours.double().state_dict()
        assert list(own) == list(state)
        assert [v.shape for v in own.values()] == [tuple(v.shape) for v in state.values()]
        ours.load_state_dict({name: value.numpy().copy() for name, value in state.items()})
        assert repr(ours).replace("NonDynamicallyQuantizable", "") == repr(theirs).replace(
            "NonDynamicallyQuantizable", ""
        )
        self.function(
            lambda *xs: ours(*xs, **options),
            lambda *xs: theirs(*xs, **options),
            *arrays,
            rtol=rtol,
            atol=atol,
        )
        others = dict(theirs.named_parameters())
        for name, p in ours.named_parameters():
            self.same_gradient(p, others[name], rtol, atol)
        others = dict(theirs.named_buffers())
        assert list(others) == [name for name, _ in ours.named_buffers()]
        for name, b in ours.named_buffers():
            np.testing.assert_allclose(b.numpy(), others[name].numpy(), rtol=rtol, atol=atol)


@pytest.fixture
def twin():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    gh.random.seed(0)
    return Twin(torch)
