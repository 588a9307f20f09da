"""Modes: objects on a stack that see every primitive call and may count, replace or transform it.

A mode is used as a context manager. Inside `process` the mode itself is off the stack, so the
primitives that it calls, and `below`, go to the modes beneath it."""

from glasshouse.dispatch.bind import state


class Mode:
    """One layer of the door. Subclasses override `process`.
    Example: >>> class Count(Mode):
             ...     calls = 0
             ...     def process(self, primitive, args, attrs, below):
             ...         self.calls += 1
             ...         return below(primitive, args, attrs)"""

    def process(self, primitive, args, attrs, below):
        """The result of this call; the default passes it on unchanged."""
        return below(primitive, args, attrs)

    def __enter__(self):
        self.entered = (*getattr(self, "entered", ()), state.modes)
        state.modes = (*state.modes, self)
        return self

    def __exit__(self, *exc_info):
        *rest, state.modes = self.entered
        self.entered = tuple(rest)


def active_modes() -> tuple:
    """The modes on this thread's stack, outermost first."""
    return state.modes
