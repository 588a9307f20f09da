"""Reverse-mode transforms: vjp, grad and value_and_grad, to any order and in any nesting."""

import functools
from collections.abc import Callable
from typing import Any

from glasshouse.autograd.backward import pull_back
from glasshouse.autograd.tape import TapeMode
from glasshouse.base.errors import DTypeError, GradError, ShapeError, type_name
from glasshouse.base.tree import TreeDef, flatten, tree_map, unflatten
from glasshouse.dispatch.value import SCALARS, Value, as_value, zeros
from glasshouse.tensor import Tensor


def as_leaves(where: str, tree: tuple[Tensor, ...]) -> tuple[list[Tensor], TreeDef]:
    leaves, treedef = flatten(tree)
    values = [as_value(leaf, where=where) for leaf in leaves]
    for x in values:
        if not x.dtype.is_inexact:
            expected = "floating or complex inputs to differentiate"
            raise DTypeError(where, expected, x.dtype.name, "Cast them, or choose other argnums.")
    return values, treedef


def check_outputs(where: str, out: Any) -> tuple[list[Any], TreeDef]:
    leaves, treedef = flatten(out)
    for leaf in leaves:
        if not isinstance(leaf, (Value, *SCALARS)):
            fix = "Return tensors, or use has_aux=True for other results."
            raise DTypeError(where, "the function to return tensors", type_name(leaf), fix)
    return [as_value(leaf, where=where) for leaf in leaves], treedef


class Pullback:
    """Second result of `vjp`, a function: cotangents of outputs → cotangents of inputs."""

    def __init__(
        self, mode: TapeMode, inputs: Any, in_def: TreeDef, outputs: list[Tensor], out_def: TreeDef
    ) -> None:
        self.mode = mode
        self.inputs = inputs
        self.in_def = in_def
        self.outputs = outputs
        self.out_def = out_def

    def __call__(self, cotangents: tuple[Tensor, ...] | Tensor) -> tuple[Tensor, ...]:
        """One cotangent per input, zeros for inputs that the outputs do not depend on.

        Raises: ShapeError, DTypeError unless `cotangents` is structured as the output.
        """
        gs, treedef = flatten(cotangents)
        if treedef != self.out_def:
            expected = f"cotangents structured as the output, {self.out_def}"
            raise ShapeError("vjp", expected, treedef, "Give one tensor per output.")
        pairs = [(y, as_value(g, y.dtype)) for y, g in zip(self.outputs, gs, strict=True)]
        tracked = [(y, g) for y, g in pairs if y.tape_entry is not None and y.mode is self.mode]
        gradients: list[Any] = [None] * len(self.inputs)
        if tracked:
            outputs, seeds = zip(*tracked, strict=True)
            with self.mode:
                gradients = pull_back("vjp", outputs, self.inputs, seeds, True, False)
        pairs = zip(self.inputs, gradients)
        pulled = [zeros(x.spec) if g is None else self.mode.lower(g) for x, g in pairs]
        return unflatten(self.in_def, pulled)


def trace(where: str, fn: Callable[..., Any], primals: tuple[Tensor, ...], has_aux: bool) -> Any:
    """Run `fn` on a new tape level: (outputs one level down, pullback, aux)."""
    values, in_def = as_leaves(where, primals)
    mode = TapeMode()
    with mode:
        inputs = [mode.leaf(value) for value in values]
        out = fn(*unflatten(in_def, inputs))
        out, aux = split_aux(where, out, has_aux)
        outputs, out_def = check_outputs(where, out)
    lowered = unflatten(out_def, [mode.lower(y) for y in outputs])
    aux = tree_map(lambda leaf: mode.lower(leaf) if isinstance(leaf, Value) else leaf, aux)
    return lowered, Pullback(mode, inputs, in_def, outputs, out_def), aux


def split_aux(
    where: str, out: Any, has_aux: bool
) -> tuple[tuple[Tensor, ...] | Tensor, dict[str, Tensor] | None]:
    if not has_aux:
        return out, None
    if not (isinstance(out, tuple) and len(out) == 2):
        expected = "the function to return (output, aux), as has_aux=True says"
        raise DTypeError(where, expected, type_name(out), "Return a pair.")
    return out


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(fn(*primals), pullback): the pullback maps cotangents of the result to those of the inputs.

    Shapes: the pullback returns a tuple shaped as `primals`.
    Raises: DTypeError for inputs that are not floating or complex.
    Example:
        >>> y, pullback = vjp(lambda x: x * x, gh.asarray(3.0))
        >>> pullback(gh.asarray(1.0))[0].item()
        6.0
    """
    out, pullback, aux = trace("vjp", fn, primals, has_aux)
    return (out, pullback, aux) if has_aux else (out, pullback)


def value_and_grad(
    fn: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns (fn(*args), its gradient with respect to the args `argnums`).

    Shapes: the gradient is shaped as the argument; a tuple of them if argnums is a tuple.
    Raises: GradError if fn returns anything but one real number.
    Example:
        >>> [v.item() for v in value_and_grad(lambda x: x * x)(gh.asarray(3.0))]
        [9.0, 6.0]
    """
    numbers = check_argnums("grad", argnums)

    @functools.wraps(fn)
    def with_grad(*args, **kwargs):
        chosen = of_arguments("grad", fn, numbers, args, kwargs)
        out, pullback, aux = trace("grad", chosen, tuple(args[n] for n in numbers), has_aux)
        check_scalar(out)
        grads = pullback(zeros(out.spec) + 1)
        grads = grads if isinstance(argnums, (tuple, list)) else grads[0]
        return ((out, aux), grads) if has_aux else (out, grads)

    return with_grad


def of_arguments(
    where: str,
    fn: Callable[..., Any],
    numbers: tuple[int, ...],
    args: tuple[Tensor, ...],
    kwargs: dict[Any, Any],
) -> Callable[..., Any]:
    """`fn` as a function of its arguments at the positions `numbers` alone."""
    if max(numbers) >= len(args):
        expected = f"at least {max(numbers) + 1} positional arguments, for argnums={numbers}"
        fix = "Pass the differentiated arguments by position."
        raise GradError(where, expected, len(args), fix)

    def chosen(*picked):
        full = list(args)
        for number, value in zip(numbers, picked, strict=True):
            full[number] = value
        return fn(*full, **kwargs)

    return chosen


def check_scalar(out: Any) -> None:
    if not isinstance(out, Value) or out.shape != () or out.dtype.is_complex:
        got = out.spec if isinstance(out, Value) else type_name(out)
        fix = "Reduce the result with .sum() or .mean(), or use gh.jacobian."
        raise GradError("grad", "a function that returns one real number (shape ())", got, fix)


def check_argnums(where: str, argnums: tuple[int, ...] | int) -> tuple[int, ...]:
    numbers = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
        expected = "argnums as a position from 0, or a tuple of them"
        raise DTypeError(where, expected, repr(argnums), "Count the positional arguments from 0.")
    return tuple(numbers)


def grad(
    fn: Callable[..., Any], argnums: tuple[int, ...] | int = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `fn` with respect to the arguments `argnums`.

    Shapes: as the argument; a tuple if argnums is a tuple; (gradient, aux) with has_aux.
    Raises: GradError if fn returns anything but one real number.
    Example:
        >>> gh.grad(gh.grad(lambda x: x * x * x))(gh.asarray(2.0)).item()
        12.0
    """
    both = value_and_grad(fn, argnums, has_aux)

    @functools.wraps(fn)
    def gradient(*args, **kwargs):
        out, grads = both(*args, **kwargs)
        return (grads, out[1]) if has_aux else grads

    return gradient
