"""Functions whose derivatives the user gives, as JAX's custom_vjp and custom_jvp."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from glasshouse.base import (
    DTypeError,
    GradError,
    ShapeError,
    flatten,
    type_name,
    unflatten,
)
from glasshouse.base.tree import TreeDef
from glasshouse.dispatch import Value, as_value, state, zeros
from glasshouse.ops.body import traced
from glasshouse.ops.custom import DerivativeRule, custom
from glasshouse.ops.reduce import sum_
from glasshouse.ops.scan import is_tracked
from glasshouse.tensor import Tensor
from glasshouse.transforms.reverse import vjp
from glasshouse.transforms.vmap import vmap


class CustomFunction:
    """A function with a derivative of its own. `nondiff_argnums`: arguments that are passed on as
    they are, and to the rules first."""

    kind = "custom"

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Any = ()) -> None:
        self.fun = fun
        several = isinstance(nondiff_argnums, (tuple, list))
        self.nondiff: tuple[Any, ...] = tuple(
            sorted(nondiff_argnums if several else [nondiff_argnums])
        )
        self.rules: dict[Any, DerivativeRule] = {}
        functools.update_wrapper(self, fun, updated=())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def positional(self, args: Any, named: Any) -> tuple[Any, ...]:
        """All arguments by position, with defaults."""
        if not named:
            return tuple(args)
        bound = inspect.signature(self.fun).bind(*args, **named)
        bound.apply_defaults()
        return bound.args

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        args = self.positional(args, named)
        chosen = tuple(x for i, x in enumerate(args) if i not in self.nondiff)
        leaves, treedef = flatten(chosen)
        if not state.modes and not any(isinstance(x, Value) and is_tracked(x) for x in leaves):
            return self.fun(*args)
        fixed = {i: args[i] for i in self.nondiff if i < len(args)}
        return self.bound(fixed, [as_value(x, where=self.kind) for x in leaves], treedef)

    def bound(self, fixed: dict[int, Any], operands: list[Any], treedef: TreeDef) -> Any:
        """The results as those of one call of the card."""
        structure = {}

        def run(*values):
            out = self.fun(*self.joined(fixed, unflatten(treedef, values)))
            outputs, structure["out"] = flatten(out)
            return [as_value(x, where=self.kind) for x in outputs]

        tracer, inputs, outputs = traced(run, [x.spec for x in operands])
        numbers = [tracer.number_of(x) for x in outputs]
        inner = [x.payload for x in inputs]
        if tracer.step is not None:
            got = "random numbers of a generator"
            raise GradError(self.kind, "a function of its arguments", got, "Pass a key.")
        others = tracer.roots(numbers, inner)
        captured = [tracer.captured[i] for i in others]
        if any(map(is_tracked, captured)):
            got = "a differentiated value from around it"
            raise GradError(self.kind, "arguments that it depends on", got, "Pass it.")
        body = tracer.body([*inner, *others], numbers)
        rule = self.rule_for(fixed, treedef, structure["out"], len(captured))
        results = custom(*operands, *captured, body=body, rule=rule)
        return unflatten(structure["out"], list(results))

    def joined(self, fixed: dict[int, Any], chosen: tuple[Any, ...]) -> list[Any]:
        """All arguments in their order."""
        rest = iter(chosen)
        count = len(fixed) + len(chosen)
        return [fixed[i] if i in fixed else next(rest) for i in range(count)]

    def rule_for(self, fixed: dict[int, Any], treedef: Any, out_def: Any, captured: int) -> Any:
        """The rule for arguments and results of such structures, the same object for equal ones."""
        try:
            key = (tuple(fixed.items()), treedef, out_def, captured)
            rule = self.rules.get(key)
        except TypeError:  # an argument that has no hash
            return self.new_rule(fixed, treedef, out_def, captured)
        if rule is None:
            rule = self.rules[key] = self.new_rule(fixed, treedef, out_def, captured)
        return rule

    def new_rule(self, fixed: dict[int, Any], treedef: Any, out_def: Any, captured: int) -> Any:
        raise NotImplementedError


class custom_vjp(CustomFunction):
    """A function with a backward pass of its own: `defvjp(fwd, bwd)` gives it. `fwd` takes the
    function's arguments and returns (result, residuals); `bwd` takes the residuals and the
    cotangent of the result, and returns a tuple with a cotangent, or None, for each argument.

    Raises: GradError where derivatives are asked for before `defvjp`, and in forward mode;
        ShapeError for cotangents that do not fit.
    Source: Bradbury et al., JAX, 2018 (custom_vjp).
    Example:
        >>> @gh.custom_vjp
        ... def clipped(x):
        ...     return x
        >>> clipped.defvjp(lambda x: (x, ()), lambda _, g: (gh.clip(g, -1.0, 1.0),))
        >>> gh.grad(lambda x: clipped(x) * 5)(gh.tensor(2.0)).item()
        1.0
    """

    kind = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any]

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Give the rule. `symbolic_zeros` and `optimize_remat` have no effect when false.

        Raises: GradError for symbolic zeros.
        """
        if symbolic_zeros:
            raise GradError("defvjp", "cotangents", "symbolic_zeros", "Leave it out.")
        self.fwd, self.bwd = fwd, bwd
        self.rules.clear()

    def new_rule(self, fixed: dict[int, Any], treedef: Any, out_def: Any, captured: int) -> Any:
        return VjpRule(self, fixed, treedef, out_def)


class VjpRule(DerivativeRule):
    """Pulls back by the user's fwd and bwd."""

    def __init__(self, function: custom_vjp, fixed: Any, treedef: Any, out_def: Any) -> None:
        self.function = function
        self.fixed = fixed
        self.treedef = treedef
        self.out_def = out_def
        self.batches: dict[Any, Any] = {}

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        function, count = self.function, self.treedef.num_leaves
        where = f"{function.fun.__name__}.defvjp"
        if function.fwd is None:
            raise GradError(where, "rules fwd and bwd", "none", "Call defvjp(fwd, bwd).")
        chosen = unflatten(self.treedef, list(operands[:count]))
        out, residuals = function.fwd(*function.joined(self.fixed, chosen))
        specs = [as_value(x).spec for x in flatten(out)[0]]
        gs = [zeros(s) if g is None else g for g, s in zip(cotangents, specs, strict=True)]
        pulled = function.bwd(*self.fixed.values(), residuals, unflatten(self.out_def, gs))
        if not isinstance(pulled, (tuple, list)) or len(pulled) != len(self.treedef.children):
            got = len(pulled) if isinstance(pulled, (tuple, list)) else type_name(pulled)
            expected = f"bwd to return a tuple of {len(self.treedef.children)}, one per argument"
            raise ShapeError(where, expected, got, "Return None where there is none.")
        gs = []
        for part, child in zip(pulled, self.treedef.children, strict=True):
            gs += [None] * child.num_leaves if part is None else flatten(part)[0]
        gs = [check_cotangent(where, g, x) for g, x in zip(gs, operands, strict=False)]
        return [*gs, *[None] * (len(operands) - count)]

    def push(self, tangents: Any, operands: Any) -> Any:
        name = self.function.fun.__name__
        fix = "Use custom_jvp, which serves both modes."
        raise GradError(name, "reverse mode through a custom_vjp", "forward mode", fix)

    def batched(self, batched: Any, outputs: Any, size: int) -> Any:
        return batched_rule(self, batched, outputs, size)


def check_cotangent(where: str, g: Any, x: Any) -> Any:
    """A cotangent for an operand; None for one that has none."""
    if g is None or not x.dtype.is_inexact:
        return None
    g = as_value(g, x.dtype, where=where)
    if g.shape != x.shape:
        fix = "Return a tensor shaped as the argument."
        raise ShapeError(where, f"a cotangent of shape {x.shape}", g.shape, fix)
    if g.dtype is not x.dtype:
        raise DTypeError(where, f"a cotangent in {x.dtype.name}", g.dtype.name, "Cast it.")
    return g


class custom_jvp(CustomFunction):
    """A function with a derivative of its own: `defjvp(rule)` gives it. The rule takes a tuple of
    arguments and a tuple of their tangents, and returns (result, tangent of the result), which is
    linear in the tangents; reverse mode turns it around.

    Raises: GradError where derivatives are asked for before `defjvp`.
    Source: Bradbury et al., JAX, 2018 (custom_jvp).
    Example:
        >>> @gh.custom_jvp
        ... def double(x):
        ...     return 2 * x
        >>> @double.defjvp
        ... def rule(primals, tangents):
        ...     return double(*primals), 10 * tangents[0]
        >>> gh.grad(double)(gh.tensor(1.0)).item()
        10.0
    """

    kind = "custom_jvp"
    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Any:
        """Give the rule, and return it. `symbolic_zeros` has no effect when false.

        Raises: GradError for symbolic zeros.
        """
        if symbolic_zeros:
            raise GradError(
                "defjvp", "tangents that are tensors", "symbolic_zeros", "Leave it out."
            )
        self.jvp = jvp
        self.rules.clear()
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give a rule for each argument: it takes a tangent, the result and the arguments."""

        def rule(primals, tangents):
            y = self(*primals)
            parts = [
                jvp(t, y, *primals)
                for jvp, t in zip(jvps, tangents, strict=True)
                if jvp is not None
            ]
            if not parts:
                return y, as_value(y) * 0
            return y, functools.reduce(lambda a, b: a + b, parts)

        self.defjvp(rule)

    def new_rule(self, fixed: dict[int, Any], treedef: Any, out_def: Any, captured: int) -> Any:
        return JvpRule(self, fixed, treedef, out_def)


class JvpRule(DerivativeRule):
    """Pushes by the user's rule, and pulls by turning it around."""

    def __init__(self, function: custom_jvp, fixed: Any, treedef: Any, out_def: Any) -> None:
        self.function = function
        self.fixed = fixed
        self.treedef = treedef
        self.out_def = out_def
        self.batches: dict[Any, Any] = {}

    def push(self, tangents: Any, operands: Any) -> Any:
        function, count = self.function, self.treedef.num_leaves
        if function.jvp is None:
            where = f"{function.fun.__name__}.defjvp"
            raise GradError(where, "a rule", "none", "Call defjvp(rule).")
        pairs = zip(tangents[:count], operands[:count], strict=True)
        ts = [zeros(x.spec) if t is None else t for t, x in pairs]
        primals = unflatten(self.treedef, list(operands[:count]))
        moved = function.jvp(*self.fixed.values(), primals, unflatten(self.treedef, ts))
        outputs, parts = (flatten(part)[0] for part in moved)
        return [
            as_value(t, as_value(y).dtype) if as_value(y).dtype.is_inexact else None
            for y, t in zip(outputs, parts, strict=True)
        ]

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        count = self.treedef.num_leaves
        moving = [i for i in range(count) if operands[i].dtype.is_inexact and needs[i]]

        def along(*ts):
            tangents = dict(zip(moving, ts, strict=True))
            results = self.push([tangents.get(i) for i in range(count)], operands[:count])
            return [t for t in results if t is not None]

        moved, pullback = vjp(along, *[zeros(operands[i].spec) for i in moving])
        arrived = iter(moved)
        inexact = [g for g in cotangents if g is not None]
        gs = cotangents if len(cotangents) == len(moved) else inexact
        filled = [zeros(y.spec) if g is None else g for y, g in zip(arrived, gs, strict=True)]
        pulled = dict(zip(moving, pullback(filled), strict=True))
        return [pulled.get(i) for i in range(len(operands))]

    def batched(self, batched: Any, outputs: Any, size: int) -> Any:
        return batched_rule(self, batched, outputs, size)


class BatchedRule(DerivativeRule):
    """A rule mapped over the examples of a batch."""

    def __init__(self, rule: Any, batched: Any, outputs: Any, size: int) -> None:
        self.rule = rule
        self.flags = batched
        self.outputs = outputs
        self.size = size
        self.batches: dict[Any, Any] = {}

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        at = [i for i, need in enumerate(needs) if need]
        there = [i for i, g in enumerate(cotangents) if g is not None]
        axes = tuple(0 if b else None for b in self.flags)
        g_axes = tuple(0 if self.outputs[i] else None for i in there)

        def one(xs, gs):
            arrived = dict(zip(there, gs, strict=True))
            every = [arrived.get(i) for i in range(len(cotangents))]
            pulled = self.rule.pull(needs, every, xs)
            return [zeros(xs[i].spec) if pulled[i] is None else pulled[i] for i in at]

        gs = tuple(cotangents[i] for i in there)
        mapped = vmap(one, in_axes=(axes, g_axes))(tuple(operands), gs)
        pulled = dict(zip(at, mapped, strict=True))
        return [
            None if i not in pulled else pulled[i] if b else sum_(pulled[i], axes=(0,))
            for i, b in enumerate(self.flags)
        ]

    def push(self, tangents: Any, operands: Any) -> Any:
        at = [i for i, t in enumerate(tangents) if t is not None]
        axes = tuple(0 if b else None for b in self.flags)
        t_axes = tuple(0 if self.flags[i] else None for i in at)

        def one(xs, ts):
            arrived = dict(zip(at, ts, strict=True))
            return self.rule.push([arrived.get(i) for i in range(len(tangents))], xs)

        ts = tuple(tangents[i] for i in at)
        out_axes = [0 if b else None for b in self.outputs]
        return vmap(one, in_axes=(axes, t_axes), out_axes=out_axes)(tuple(operands), ts)

    def batched(self, batched: Any, outputs: Any, size: int) -> Any:
        return batched_rule(self, batched, outputs, size)


def batched_rule(rule: Any, batched: Any, outputs: Any, size: int) -> Any:
    """The rule for a batch, the same object for equal ones."""
    key = batched, outputs, size
    return rule.batches.setdefault(key, BatchedRule(rule, batched, outputs, size))


def stop_gradient(x: Any) -> Any:
    """The tree x with no derivatives going through its tensors.

    Example:
        >>> gh.grad(lambda x: x * gh.stop_gradient(x))(gh.tensor(3.0)).item()
        3.0
    """
    leaves, treedef = flatten(x)
    return unflatten(treedef, [x.detach() if isinstance(x, Tensor) else x for x in leaves])
