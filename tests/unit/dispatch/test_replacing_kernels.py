"""A function that replaces a card's kernel has to give what the card infers, on every backend."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, ShapeError

WRONG = {
    "shape": (lambda x: np.zeros(7, np.float32), ShapeError, r"shape \(4, 4\).*got \(7,\)"),
    "broadcast": (lambda x: np.zeros((1, 4), np.float32), ShapeError, r"got \(1, 4\)"),
    "axes": (lambda x: np.zeros((4, 4, 1), np.float32), ShapeError, r"got \(4, 4, 1\)"),
    "dtype": (lambda x: np.zeros((4, 4)), DTypeError, "a result of float32; got float64"),
    "number": (lambda x: 1.0, DTypeError, "an array float32.*got float"),
    "nothing": (lambda x: None, DTypeError, "got NoneType"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_a_wrong_result_is_refused_by_the_name_of_the_card(backend, compile, kind):
    function, error, text = WRONG[kind]
    with (
        gh.base.flags.flags.override(compile=compile),
        gh.backends.use(backend) as used,
        used.replace("exp", function),
        pytest.raises(error, match=f"replaces exp.*{text}"),
    ):
        (gh.exp(gh.ones((4, 4))) * 2).numpy()
    assert gh.exp(gh.zeros(())).item() == 1.0


@pytest.mark.parametrize("backend", ["numpy", "lazy"])
@pytest.mark.parametrize(
    ("results", "text"),
    [
        (lambda a: a, "a tuple of 2 results.*got numpy.ndarray"),
        (lambda a: (a,), "a tuple of 2 results"),
        (lambda a: (a, a), r"shape \(3,\)"),
    ],
)
def test_each_of_several_results_is_checked(backend, results, text):
    with (
        gh.backends.use(backend) as used,
        used.replace("eigh", results),
        pytest.raises(ShapeError, match=f"replaces eigh.*{text}"),
    ):
        [x.numpy() for x in gh.linalg.eigh(gh.eye(3))]


def test_one_function_that_replaces_again_is_the_same_program():
    backend = gh.backends.load("lazy")

    def doubled(x):
        return x * 2

    with gh.backends.use(backend):
        first, second = (backend.replace("exp", doubled) for _ in range(2))
        kernels = first.kernels["exp"], second.before
        second.undo()
        first.undo()
    assert kernels[0] == kernels[1] and hash(kernels[0]) == hash(kernels[1])
