"""Jacobians, Hessians and Hessian-vector products, from vjp, jvp and vmap."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from glasshouse.autograd.tape import CallEntry, Leaf
from glasshouse.base import GradError, ShapeError, Spec, flatten, tree_map, unflatten
from glasshouse.dispatch import Value, adopt, as_value, reshape
from glasshouse.ops.checks import check_option
from glasshouse.tensor import Tensor
from glasshouse.transforms.forward import jvp, pushed
from glasshouse.transforms.reverse import as_leaves, check_argnums, grad, of_arguments, vjp
from glasshouse.transforms.sparsity import Sparsity
from glasshouse.transforms.vmap import vmap


def basis(spec: Spec) -> Tensor:
    """All unit vectors of a value: (size, *shape)."""
    eye = np.eye(spec.size, dtype=spec.dtype.np)
    return reshape(adopt(eye), (spec.size, *spec.shape))


def jacobian(
    fn: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    mode: str = "auto",
    sparsity: Any = None,
) -> Callable[..., Any]:
    """A function that returns the derivative of every output element by every input element.
    Reverse mode runs one pullback per output element, forward mode one push per input element,
    batched by vmap. "auto" takes forward mode if there are fewer input elements than output
    elements, all of them real, and no user's Function or checkpointed region lies between. Its
    look at the output costs one more call of fn then.

    `sparsity`, a boolean array, says which derivatives may differ from zero. Columns (rows in
    reverse mode) without a common row are computed together: one push (pullback) per colour of a
    greedy colouring; "auto" takes the mode with fewer. The result is dense. A pattern that leaves
    out nonzero derivatives gives wrong numbers.

    Shapes: (*output shape, *input shape); a tuple of them if argnums is a tuple. sparsity
        (output size, input size) or the shape of the result.
    Raises: OptionError for an unknown mode, GradError unless the result is one tensor, ShapeError
        for a sparsity of another shape, or for several arguments.
    Source: Coleman & Moré 1983, "Estimation of sparse Jacobian matrices and graph coloring
        problems", for the colouring.
    Example:
        >>> gh.jacobian(lambda x: x * x)(gh.asarray([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        >>> gh.jacobian(lambda x: x * x, sparsity=np.eye(2, dtype=bool))(gh.asarray([1.0, 2.0]))
        Tensor([[2., 0.],
                [0., 4.]], dtype=float32)
    """
    check_option("jacobian", "mode", mode, ("auto", "reverse", "forward"))
    numbers = check_argnums("jacobian", argnums)
    pattern = None if sparsity is None else Sparsity(sparsity)

    @functools.wraps(fn)
    def derivative(*args, **kwargs):
        chosen = of_arguments("jacobian", fn, numbers, args, kwargs)
        primals = tuple(tree_map(as_value, args[n]) for n in numbers)
        return columns(chosen, primals, mode, pattern, isinstance(argnums, (tuple, list)))

    return derivative


def jacfwd(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Any:
    """`jacobian` in forward mode: cheap for few input elements.

    Shapes, Raises: as jacobian.
    Example:
        >>> gh.jacfwd(lambda x: x * x)(gh.asarray(3.0)).item()
        6.0
    """
    return jacobian(fn, argnums, "forward")


def jacrev(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Any:
    """`jacobian` in reverse mode: cheap for few output elements.

    Shapes, Raises: as jacobian.
    Example:
        >>> gh.jacrev(lambda x: x * x)(gh.asarray(3.0)).item()
        6.0
    """
    return jacobian(fn, argnums, "reverse")


def columns(
    fn: Callable[..., Any], primals: tuple[Tensor, ...], mode: str, pattern: Any, several: bool
) -> Any:
    """The derivatives by each of `primals`; by the only one unless `several` are wanted."""
    if mode == "forward":
        return forward_columns(fn, primals, pattern, several)
    out, pullback = vjp(fn, *primals)
    if not isinstance(out, Value):
        expected = "a function that returns one tensor"
        fix = "Return one, or concatenate them."
        raise GradError("jacobian", expected, "a structure of them", fix)
    if mode == "auto" and is_forward_cheaper(out, pullback, pattern):
        return forward_columns(fn, primals, pattern, several)
    derivatives = reverse_columns(out, pullback, primals, pattern)
    return derivatives if several else derivatives[0]


def is_forward_cheaper(out: Value, pullback: Any, pattern: Any) -> bool:
    """Whether forward mode needs fewer runs, and is certain to give the same derivatives."""
    inputs = sum(x.size for x in pullback.inputs)
    pushes, pulls = (inputs, out.size) if pattern is None else pattern.runs(out.size, inputs)
    values = (out, *pullback.inputs)
    if pushes >= pulls or any(x.dtype.is_complex for x in values):
        return False
    ends = [y.tape_entry for y in pullback.outputs if y.mode is pullback.mode]
    return all(isinstance(entry, (CallEntry, Leaf)) for entry in reached(ends))


def reached(ends: Any) -> Any:
    """All entries of the tape that these depend on."""
    entries: set[Any] = set()
    stack = [entry for entry in ends if entry is not None]
    while stack:
        entry = stack.pop()
        if entry not in entries:
            entries.add(entry)
            stack += [place[0] for place in getattr(entry, "parents", ()) if place is not None]
    return entries


def reverse_columns(
    out: Any, pullback: Any, primals: tuple[Tensor, ...], pattern: Any
) -> tuple[Tensor, ...]:
    if not out.size:
        return tree_map(lambda x: basis(x.spec)[:0].reshape(*out.shape, *x.shape), primals)
    if pattern is not None:
        return pattern.from_rows(out, vmap(pullback), single("jacobian", primals))
    rows = vmap(pullback)(basis(out.spec))
    return tree_map(lambda row: reshape(row, (*out.shape, *row.shape[1:])), rows)


def forward_columns(
    fn: Callable[..., Any], primals: tuple[Tensor, ...], pattern: Any, several: bool
) -> Tensor:
    """The derivatives in forward mode: fn runs once, whatever the number of tensors, and all unit
    vectors of each are pushed together. A structure of results has the derivatives of each."""
    leaves, in_def = as_leaves("jacobian", primals)
    _, treedef = flatten(primals if several else primals[0])

    def push(*units):
        directions = [[None] * len(units) for _ in units]
        for k, unit in enumerate(units):
            directions[k][k] = unit
        return tuple(pushed("jacobian", fn, leaves, in_def, directions)[1])

    if pattern is not None:
        x = single("jacobian", primals)
        (derivative,) = pattern.from_columns(vmap(lambda unit: push(unit)[0], out_axes=-1), x)
        return unflatten(treedef, [derivative])
    by_columns = push
    for k in reversed(range(len(leaves))):  # each tensor has its own level
        others = [None] * len(leaves)
        in_axes, out_axes = ((*others[:k], axis, *others[k + 1 :]) for axis in (0, -1))
        by_columns = vmap(by_columns, in_axes, out_axes)
    derivatives = by_columns(*(basis(x.spec) for x in leaves))
    if not leaves:
        return unflatten(treedef, [])

    def by_all(*derivatives):  # of one result, by each tensor
        pairs = zip(derivatives, leaves, strict=True)
        return unflatten(treedef, [reshape(d, (*d.shape[:-1], *x.shape)) for d, x in pairs])

    return tree_map(by_all, *derivatives)


def single(where: str, primals: Any) -> Value:
    """The one tensor to differentiate by."""
    leaves, _ = flatten(primals)
    if len(leaves) != 1 or leaves[0] is not primals[0]:
        expected = "one tensor to differentiate by, as sparsity is given"
        raise ShapeError(where, expected, f"{len(leaves)} tensors", "Concatenate them.")
    return leaves[0]


def hessian(fn: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that returns all second derivatives of a scalar function: forward over reverse.
    The value and its gradient are computed once for all directions of all arguments.

    Shapes: (*input shape, *input shape); of several tensors x and y, result[x][y] is (*x, *y).
    Raises: GradError if fn returns anything but one real number.
    Example:
        >>> gh.hessian(lambda x: (x * x * x).sum())(gh.asarray([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    check_argnums("hessian", argnums)
    return jacobian(grad(fn, argnums), argnums, mode="forward")


def hvp(fn: Callable[..., Any], primals: Any, vectors: Any) -> Any:
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
        got = f"{type(primals).__name__} and {type(vectors).__name__}"
        raise ShapeError("hvp", "tuples of primals and vectors", got, "Write hvp(fn, (x,), (v,)).")
    return jvp(grad(fn, tuple(range(len(primals)))), tuple(primals), tuple(vectors))[1]
