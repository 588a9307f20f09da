"""Jacobians, Hessians and Hessian-vector products, from vjp, jvp and vmap."""

import functools

import numpy as np

from glasshouse.base import GradError, ShapeError, flatten, tree_map, unflatten
from glasshouse.dispatch import Value, as_value, bind, primitives, reshape
from glasshouse.ops.checks import check_option
from glasshouse.transforms.forward import jvp
from glasshouse.transforms.reverse import check_argnums, grad, of_arguments, vjp
from glasshouse.transforms.vmap import vmap


def basis(spec):
    """All unit vectors of a value: (size, *shape)."""
    eye = np.eye(spec.size, dtype=spec.dtype.np)
    return reshape(bind(primitives["constant"], (), {"value": eye}), (spec.size, *spec.shape))


def jacobian(fn, argnums=0, mode: str = "reverse"):
    """A function that returns the derivative of every output element by every input element.
    Reverse mode runs one pullback per output element, forward mode one push per input element,
    batched by vmap.

    Shapes: (*output shape, *input shape); a tuple of them if argnums is a tuple.
    Raises: OptionError for an unknown mode, GradError unless the result is one tensor.
    Example:
        >>> gh.jacobian(lambda x: x * x)(gh.asarray([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    check_option("jacobian", "mode", mode, ("reverse", "forward"))
    numbers = check_argnums("jacobian", argnums)
    make = reverse_columns if mode == "reverse" else forward_columns

    @functools.wraps(fn)
    def derivative(*args, **kwargs):
        chosen = of_arguments("jacobian", fn, numbers, args, kwargs)
        derivatives = make(chosen, tuple(tree_map(as_value, args[n]) for n in numbers))
        return derivatives if isinstance(argnums, (tuple, list)) else derivatives[0]

    return derivative


def reverse_columns(fn, primals):
    out, pullback = vjp(fn, *primals)
    if not isinstance(out, Value):
        raise GradError(
            "jacobian",
            "a function that returns one tensor",
            "a structure of them",
            "Return one, or concatenate them.",
        )
    if not out.size:
        return tree_map(lambda x: basis(x.spec)[:0].reshape(*out.shape, *x.shape), primals)
    rows = vmap(pullback)(basis(out.spec))
    return tree_map(lambda row: reshape(row, (*out.shape, *row.shape[1:])), rows)


def forward_columns(fn, primals):
    leaves, treedef = flatten(primals)
    zeros = [x * 0 for x in leaves]
    jacobians = []
    for i, x in enumerate(leaves):

        def push(unit, i=i):
            tangents = [*zeros[:i], unit, *zeros[i + 1 :]]
            return jvp(fn, primals, unflatten(treedef, tangents))[1]

        columns = vmap(push, out_axes=-1)(basis(x.spec))
        jacobians.append(tree_map(lambda c, x=x: reshape(c, (*c.shape[:-1], *x.shape)), columns))
    return unflatten(treedef, jacobians)


def hessian(fn, argnums=0):
    """A function that returns all second derivatives of a scalar function: forward over reverse.

    Shapes: (*input shape, *input shape); with several argnums a tuple (of tuples).
    Raises: GradError if fn returns anything but one real number.
    Example:
        >>> gh.hessian(lambda x: (x * x * x).sum())(gh.asarray([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    numbers = check_argnums("hessian", argnums)
    if not isinstance(argnums, (tuple, list)):
        return jacobian(grad(fn, argnums), argnums, mode="forward")
    rows = [jacobian(grad(fn, n), numbers, mode="forward") for n in numbers]

    @functools.wraps(fn)
    def derivative(*args, **kwargs):
        return tuple(row(*args, **kwargs) for row in rows)

    return derivative


def hvp(fn, primals, vectors):
    """The Hessian of the scalar function `fn` at `primals` times `vectors`, without forming it.

    Shapes: `vectors` and the result as `primals` (tuples).
    Raises: GradError if fn returns anything but one real number, ShapeError.
    Source: Pearlmutter 1994, forward over reverse.
    Example:
        >>> x, v = gh.asarray([1.0, 2.0]), gh.asarray([1.0, 1.0])
        >>> hvp(lambda x: (x * x * x).sum(), (x,), (v,))[0].tolist()
        [6.0, 12.0]
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(vectors, (tuple, list)):
        raise ShapeError(
            "hvp",
            "tuples of primals and vectors",
            f"{type(primals).__name__} and {type(vectors).__name__}",
            "Write hvp(fn, (x,), (v,)).",
        )
    return jvp(grad(fn, tuple(range(len(primals)))), tuple(primals), tuple(vectors))[1]
