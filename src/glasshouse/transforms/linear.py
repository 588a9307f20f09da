"""Shapes of results, and linear functions: `eval_shape`, `linearize`,
`linear_transpose`."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import ShapeError, Spec, flatten, unflatten
from glasshouse.dispatch import as_value, zeros
from glasshouse.ops.body import traced
from glasshouse.ops.linearise import reached
from glasshouse.transforms.forward import check_tangent, pushed
from glasshouse.transforms.reverse import as_leaves, vjp


def spec_of(x: Any) -> Spec:
    """The spec of a tensor, an array, a number or a Spec."""
    return x if isinstance(x, Spec) else as_value(x, where="eval_shape").spec


def eval_shape(fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)` as a tree of Specs; nothing is computed.
    Arguments may be tensors or Specs.

    Raises: TransformError where fun needs the contents of a value.
    Source: Bradbury et al., JAX, 2018 (eval_shape).
    Example:
        >>> gh.eval_shape(lambda x: x.sum(axis=0), gh.zeros((2, 3)))
        float32[3]
    """
    leaves, treedef = flatten((args, kwargs))
    structure: dict[str, Any] = {}

    def run(*values):
        placed, named = unflatten(treedef, values)
        outputs, structure["out"] = flatten(fun(*placed, **named))
        return [as_value(x, where="eval_shape") for x in outputs]

    _, _, outputs = traced(run, [spec_of(x) for x in leaves])
    return unflatten(structure["out"], [x.spec for x in outputs])


def linearize(fun: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(fun(*primals), its derivative there as a linear function of tangents). The values that the
    derivative reads are computed once.

    Shapes: tangents as primals, the derivative as the result.
    Raises: DTypeError for primals that are not floating or complex, ShapeError for tangents that
        do not fit.
    Source: Bradbury et al., JAX, 2018 (linearize).
    Example:
        >>> y, along = gh.linearize(lambda x: x * x, gh.tensor(3.0))
        >>> y.item(), along(gh.tensor(2.0)).item()
        (9.0, 12.0)
    """
    values, in_def = as_leaves("linearize", primals)
    parts: dict[str, Any] = {}

    def run(*tangents):
        outputs, (derivative,), _ = pushed("linearize", fun, values, in_def, [list(tangents)])
        parts["out"] = outputs
        moved, parts["def"] = flatten(derivative)
        return moved

    tracer, inputs, moved = traced(run, [x.spec for x in values])
    numbers = [tracer.number_of(x) for x in moved]
    inner = [x.payload for x in inputs]
    outputs, out_def = flatten(parts["out"])
    results = [tracer.number_of(x) for x in outputs]
    # Calls on tangents are left for later; the values they read are computed now.
    later = reached(tracer, inner)
    read = {i for call in tracer.calls if not later.isdisjoint(call.results) for i in call.operands}
    early = sorted((read | {*numbers}) - later)
    consts = tracer.roots([*early, *results])
    now = tracer.body(consts, [*early, *results]).apply(*(tracer.captured[i] for i in consts))
    body = tracer.body([*early, *inner], numbers)

    def along(*tangents: Any) -> Any:
        ts, treedef = flatten(tangents)
        if treedef != in_def:
            fix = "Give one tangent per primal."
            raise ShapeError("linearize", f"tangents structured as {in_def}", treedef, fix)
        ts = [check_tangent(x, t) for x, t in zip(values, ts, strict=True)]
        return unflatten(parts["def"], body.apply(*now[: len(early)], *ts))

    return unflatten(out_def, now[len(early) :]), along


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a linear function, whose arguments are shaped as `primals` (tensors or
    Specs): it takes a cotangent of the result and returns a tuple with one for each argument.

    Raises: as vjp.
    Source: Bradbury et al., JAX, 2018 (linear_transpose).
    Example:
        >>> turned = gh.linear_transpose(lambda x: 3 * x, gh.tensor(0.0))
        >>> turned(gh.tensor(2.0))[0].item()
        6.0
    """
    leaves, treedef = flatten(primals)
    return vjp(fun, *unflatten(treedef, [zeros(spec_of(x)) for x in leaves]))[1]
