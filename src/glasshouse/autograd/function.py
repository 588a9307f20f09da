"""User-defined operations with their own backward."""

from typing import Any

from glasshouse.autograd.tape import TapeEntry, TapeMode, attach, recording
from glasshouse.base.errors import GradError, ShapeError, TransformError, type_name
from glasshouse.dispatch import Value, box, state, zeros
from glasshouse.dispatch.value import levels


class Context:
    """Values that forward saves for backward. `needs_input_grad`: a bool per argument."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Value) -> None:
        """Keep tensors (inputs or results of forward) for `saved_tensors` in backward."""
        self.saved = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that forward saved."""
        return self.saved


class FunctionEntry(TapeEntry):
    """The tape's entry of one call of a user's Function."""

    __slots__ = ("function", "ctx", "specs", "out_specs", "out_data")
    function: Any
    ctx: Any
    specs: list[Any]
    out_specs: list[Any]
    out_data: Any
    parents: tuple[Any, ...]

    def pull(self, cotangents: Any, create_graph: bool) -> list[tuple[tuple[Any, ...], Value]]:
        self.ctx.saved = tuple(map(self.relink, self.ctx.saved))
        from_user = self.function.backward(self.ctx, *self.lifted(cotangents))
        grads = from_user if isinstance(from_user, tuple) else (from_user,)
        name = self.function.__name__
        if len(grads) != len(self.parents):
            expected = f"{len(self.parents)} gradients, one per argument of forward"
            fix = "Return None for those that need none."
            raise ShapeError(f"{name}.backward", expected, len(grads), fix)
        pulled = []
        for i, (parent, g) in enumerate(zip(self.parents, grads, strict=True)):
            if parent is None or g is None:
                continue
            if not isinstance(g, Value) or g.shape != self.specs[i].shape:
                got = g.shape if isinstance(g, Value) else type_name(g)
                expected = f"a gradient of shape {self.specs[i].shape} for argument {i}"
                fix = "Return a tensor shaped as the argument."
                raise ShapeError(f"{name}.backward", expected, got, fix)
            pulled.append((parent, g.payload if g.mode is not None and g.mode is self.mode else g))
        return pulled

    def relink(self, tensor: Any) -> Value:
        """A saved result of forward with its place on the tape, for gradients of gradients."""
        for slot, data in enumerate(self.out_data):
            if tensor.tape_entry is None and tensor.payload is data:
                tensor = fresh(tensor, tensor.mode)
                tensor.tape_entry, tensor.slot = self, slot
        return tensor

    def lifted(self, cotangents: Any) -> list[Value]:
        gs = [zeros(s) if g is None else g for g, s in zip(cotangents, self.out_specs, strict=True)]
        mode = self.mode
        return [g if mode is None or g.mode is mode else mode.constant(g) for g in gs]

    def release(self) -> None:
        self.freed: bool = True
        self.ctx = None
        self.parents = self.out_data = ()


class Function:
    """Base of operations with a hand-written backward.
    Subclasses give static methods `forward(ctx, *args)` and `backward(ctx, *gradients)`, the latter
    returning one gradient (or None) per argument of forward; call with `apply`. Backward is made of
    tensor operations, so gradients of gradients work.

    Example:
        >>> import glasshouse as gh
        >>> class Square(Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * g
        >>> x = gh.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad.item()
        6.0
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        fix = "Define it."
        raise GradError("Function", "a static method forward(ctx, *args)", "a class without", fix)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        expected = "a static method backward(ctx, *gradients)"
        raise GradError("Function", expected, "a class without", "Define it.")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The result of `forward`, recorded so that backward goes through `backward`."""
        values: list[Any] = [arg if isinstance(arg, Value) else None for arg in args]
        mode = owner(cls, values)
        records = state.records if mode is None else mode.records
        needs = tuple(bool(records and v is not None and v.tape_entry is not None) for v in values)
        if not any(needs):
            return cls.forward(Context(needs), *args)
        return recorded(cls, mode, args, needs)


def recorded(cls: Any, mode: Any, args: tuple[Any, ...], needs: tuple[Any, ...]) -> Any:
    """The result of a Function's forward, with an entry on the tape that calls its backward."""
    ctx = Context(needs)
    with recording(mode, False):
        out = cls.forward(ctx, *args)
    outputs = out if isinstance(out, tuple) else (out,)
    results = tuple(fresh(y, mode) for y in outputs)
    entry = FunctionEntry()
    entry.function, entry.ctx = cls, ctx
    values: list[Any] = [arg if isinstance(arg, Value) else None for arg in args]
    pairs = zip(values, needs, strict=True)
    entry.parents = tuple((v.tape_entry, v.slot) if n else None for v, n in pairs)
    entry.specs = [None if v is None else v.spec for v in values]
    entry.out_specs = [y.spec for y in results]
    entry.out_data = [y.payload for y in results]
    attach(entry, results, mode)
    return results if isinstance(out, tuple) else results[0]


# Capture leaves it to Python, and says why: the tape calls back into the user's code.
recorded.__gh_disabled__ = "a custom Function, whose backward is Python"  # type: ignore[attr-defined]


def owner(cls: type[Any], values: list[Value | None]) -> TapeMode | None:
    """The tape that tracks the arguments: a level's mode, or None for the base tape."""
    modes = [v.mode for v in values if v is not None and v.mode is not None]
    for mode in modes:
        below = [level for v in values if v is not None for level in list(levels(v))[1:]]
        tracked = any(level.tape_entry is not None for level in below)
        if tracked and not isinstance(mode, TapeMode):
            raise TransformError(
                f"{cls.__name__}.apply",
                "values of a tape",
                f"values of {type(mode).__name__} that are tracked outside it",
                "Take the gradient "
                "inside the vmap or jvp, or write the operation with gh functions.",
            )
    tapes = [mode for mode in state.modes if mode in modes and isinstance(mode, TapeMode)]
    return tapes[-1] if tapes else None


def fresh(y: Value, mode: TapeMode | None) -> Value:
    """A new handle on the result `y`, so that marking it leaves the saved tensors alone."""
    if mode is not None and y.mode is not mode:
        return mode.constant(y)
    copy = box(y.payload, y.spec, y.backend)
    copy.mode = y.mode
    return copy
