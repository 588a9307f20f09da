"""Modes: objects on a stack that see every primitive call and may count, replace or transform it.

A mode is used as a context manager. Inside `process` the mode itself is off the stack, so the
primitives that it calls, and `below`, go to the modes beneath it."""

from typing import Any, Self

from glasshouse.dispatch.bind import box, state
from glasshouse.dispatch.value import Value


class Mode:
    """One layer that calls pass. Subclasses override `process`. A mode that does no more than
    change which cards are called says how it does so in `key`, equal for equal ways; its class is
    a KeyedMode.

    Example:
        >>> class Count(Mode):
        ...     calls = 0
        ...     def process(self, primitive, args, attrs, below):
        ...         self.calls += 1
        ...         return below(primitive, args, attrs)
    """

    key: str | None = None

    def process(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Any:
        """The result of this call; the default passes it on unchanged."""
        return below(primitive, args, attrs)

    def __enter__(self) -> Self:
        self.entered: tuple[Any, ...] = (*getattr(self, "entered", ()), state.modes)
        state.modes = (*state.modes, self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        *rest, state.modes = self.entered
        self.entered = tuple(rest)


class KeyedMode(Mode):
    """A mode with a `key`: a captured function may enter it."""


class Level(Mode):
    """A mode whose values wrap values of the level below, in `payload`: a transform."""

    records = False  # whether it is a tape that records now
    hides = False  # whether its values show no contents, since they differ by example

    def constant(self, value: "Value") -> "Value":
        """`value` as one of this level, where nothing depends on it."""
        return self.wrap(value)

    def wrap(self, value: Any) -> Any:
        """A value of this level around `value`."""
        wrapped = box(value, value.spec, None)
        wrapped.mode = self
        return wrapped

    def transfer(self, value: Any, handle: Any) -> None:
        """Copy the state of `value`, of this level, to `handle`: all but payload, spec and tape."""

    def lower(self, value: "Value") -> "Value":
        """The value below, if `value` is of this level; else `value` itself."""
        return value.payload if value.mode is self else value

    def concrete(self, value: Any) -> Any:
        """The value below, which has the same contents."""
        return value.payload

    def detach(self, value: Any) -> Any:
        """`value` cut off from all tapes, of this level and below."""
        return self.wrap(value.payload.detach())


def active_modes() -> tuple[Any, ...]:
    """The modes on this thread's stack, outermost first."""
    return state.modes
