"""Parameters as one vector, and back."""

from collections.abc import Iterable
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import as_value, reshape
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor, concat


def parameters_to_vector(parameters: Any) -> Tensor:
    """All parameters flattened and joined, in their order.

    Shapes: -> (sum of sizes,).
    Raises: OptionError for no parameter.
    Source: standard.
    Example:
        >>> parameters_to_vector([gh.ones((2, 2)), gh.zeros(1)]).tolist()
        [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    flat = [reshape(as_value(p, where="parameters_to_vector"), (p.size,)) for p in parameters]
    if not flat:
        fix = "Pass model.parameters()."
        raise OptionError("parameters_to_vector", "at least one parameter", "none", fix)
    return concat(flat, axis=0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Any]) -> None:
    """Write the elements of `vec` into the parameters, in their order.

    Shapes: vec (sum of sizes,).
    Raises: ShapeError for a vector of another size; nothing is written then.
    Source: standard.
    Example:
        >>> p = gh.nn.Parameter(gh.zeros((2, 1)))
        >>> vector_to_parameters(gh.asarray([1.0, 2.0]), [p])
        >>> p.tolist()
        [[1.0], [2.0]]
    """
    where = "vector_to_parameters"
    vector, targets = as_value(vec, where=where), list(parameters)
    for p in targets:
        check_type(where, p, Tensor, "parameters", "Pass model.parameters().")
    sizes = [p.size for p in targets]
    if vector.shape != (sum(sizes),):
        raise ShapeError(where, f"a vector ({sum(sizes)},)", vector.shape, "Flatten or cut it.")
    start = 0
    with no_grad():
        for p, size in zip(targets, sizes, strict=True):
            p.copy_(reshape(vector[start : start + size], p.shape))
            start += size
