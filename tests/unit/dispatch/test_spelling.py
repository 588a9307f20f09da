"""Arguments under the names that PyTorch has for them."""

import inspect

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.dispatch.spelling import OTHER_NAMES, takes_names_of_pytorch
from glasshouse.nn import functional as F

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

CALLS = {
    "sum": (lambda x: gh.sum(x, dim=1, keepdim=True), lambda x: x.sum(1, keepdims=True)),
    "method": (lambda x: x.mean(dim=(0, 2)), lambda x: x.mean((0, 2))),
    "argmax": (lambda x: x.argmax(dim=-1, keepdim=True), lambda x: x.argmax(-1)[..., None]),
    "concat": (lambda x: gh.concat([x, x], dim=2), lambda x: np.concatenate([x, x], 2)),
    "stack": (lambda x: gh.stack([x, x], dim=1), lambda x: np.stack([x, x], 1)),
    "sort": (lambda x: gh.sort(x, dim=0, descending=True).values, lambda x: x[::-1]),
    "flip": (lambda x: gh.flip(x, dims=(0, 1)), lambda x: np.flip(x, (0, 1))),
    "roll": (lambda x: gh.roll(x, shifts=2, dims=1), lambda x: np.roll(x, 2, 1)),
    "squeeze": (lambda x: x[:1].squeeze(dim=0), lambda x: x[0]),
    "unsqueeze": (lambda x: x.unsqueeze(dim=1), lambda x: x[:, None]),
    "flatten": (lambda x: gh.flatten(x, start_dim=1), lambda x: x.reshape(2, 12)),
    "cumsum": (lambda x: x.cumsum(dim=2), lambda x: x.cumsum(2)),
    "softmax": (lambda x: F.softmax(x, dim=-1).sum(dim=-1), lambda x: np.ones((2, 3))),
    "norm": (lambda x: gh.linalg.vector_norm(x, dim=0), lambda x: np.linalg.norm(x, axis=0)),
    "fft": (lambda x: gh.fft.fft(x, dim=1), lambda x: np.fft.fft(x, axis=1)),
    "repeat": (lambda x: gh.repeat(x, 2, dim=0), lambda x: np.repeat(x, 2, 0)),
    "max-of-two": (lambda x: gh.max(x, -x) - x.min(5 - x), lambda x: x - np.minimum(x, 5 - x)),
    "unbiased": (lambda x: gh.var(x, dim=1, unbiased=True), lambda x: x.var(1, ddof=1)),
    "biased": (lambda x: x.std(dim=0, unbiased=False), lambda x: x.std(0)),
    "steps": (lambda x: gh.linspace(0, 1, steps=5), lambda x: np.linspace(0, 1, 5)),
    "permute": (lambda x: gh.permute_dims(x, dims=(2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_spellings_give_the_same(name):
    ours, expected = CALLS[name]
    for _ in range(3):  # the first calls are made, later ones replayed
        np.testing.assert_allclose(ours(gh.asarray(X)).numpy(), expected(X), rtol=1e-5, atol=1e-4)


def test_gradients_and_batches_pass():
    x = gh.tensor(X, requires_grad=True)
    x.sum(dim=0, keepdim=True).max().backward()
    assert x.grad.sum().item() == 2
    mapped = gh.vmap(lambda row: row.sum(dim=0))(gh.asarray(X))
    np.testing.assert_array_equal(mapped.numpy(), X.sum(1))


def test_an_argument_is_given_once():
    with pytest.raises(gh.OptionError, match="axis, or dim as PyTorch calls it"):
        gh.sum(gh.asarray(X), axis=0, dim=1)
    with pytest.raises(TypeError, match="dimension"):
        gh.sum(gh.asarray(X), dimension=1)


BOTH = {  # of X, in PyTorch's spelling and in the standard's
    "max": (lambda x: x.max(1).values, lambda x: x.max(axis=1)),
    "min": (lambda x: gh.min(x, dim=0)[0], lambda x: gh.min(x, axis=0)),
    "indices": (lambda x: gh.max(x, 1, True).indices, lambda x: x.argmax(1, keepdims=True)),
    "sort": (lambda x: x.sort(-1, True)[0], lambda x: x.sort(axis=-1, descending=True)),
    "order": (lambda x: gh.sort(x, dim=0).indices, lambda x: gh.argsort(x, axis=0)),
    "std": (lambda x: x.std(), lambda x: gh.std(x, correction=1)),
    "var": (lambda x: x.var(1), lambda x: x.var(axis=1, correction=1)),
    "all": (lambda x: x.var(False), lambda x: gh.var(x)),
    "split": (lambda x: x.split(1, 1)[2], lambda x: gh.split(x, 3, axis=1)[2]),
    "sizes": (lambda x: gh.split(x, [1, 3], dim=2)[1], lambda x: gh.split(x, [1], axis=2)[1]),
    "squeeze": (lambda x: x.squeeze(0), lambda x: x),
    "take": (lambda x: x.take(gh.asarray([7])), lambda x: gh.take(x.reshape(-1), [7], axis=0)),
    "nonzero": (lambda x: x.nonzero()[:, 1], lambda x: gh.nonzero(x)[1]),
}


@pytest.mark.parametrize("name", BOTH)
def test_the_spelling_says_whose_meaning_a_call_has(name):
    theirs, ours = BOTH[name]
    for _ in range(3):
        x = gh.asarray(X)
        np.testing.assert_array_equal(theirs(x).numpy(), ours(x).numpy())
    captured = gh.optimize("eager")(lambda x: theirs(x) * 1)
    for _ in range(3):
        np.testing.assert_array_equal(captured(x).numpy(), ours(x).numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: gh.std(x, 0),
        lambda x: gh.var(x, 1),
        lambda x: gh.split(x, 2),
        lambda x: gh.max(x, dim=1, keepdims=True),
        lambda x: x.sort(dim=1, axis=1),
        lambda x: x.max((0, 1)),
    ],
)
def test_what_could_mean_either_is_refused_with_both_spellings(call):
    with pytest.raises(gh.OptionError, match="dim=.*axis="):
        call(gh.asarray(X))


def test_the_gradient_of_a_pair_goes_to_the_place_it_names():
    x = gh.tensor([[2.0, 2.0], [0.0, 1.0]], requires_grad=True)
    x.max(dim=1).values.sum().backward()
    assert x.grad.tolist() == [[1, 0], [0, 1]]


def test_signatures_have_the_names_of_here_and_others_are_left_alone():
    assert "axis" in inspect.signature(gh.sum).parameters
    plain = test_an_argument_is_given_once
    assert inspect.signature(takes_names_of_pytorch(plain)) == inspect.signature(plain)
    for module in (gh, gh.linalg, gh.fft):
        for name in module.__all__ if hasattr(module, "__all__") else ():
            function = getattr(module, name)
            if inspect.isfunction(function):
                own = inspect.signature(function).parameters
                assert not own.keys() & OTHER_NAMES.keys() - {"dims"}, name
