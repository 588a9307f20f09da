"""Requests to recompute in a backward pass: from the planner to the passes that do it.

`dispatch.state.recompute` holds the request of a thread, None for none. A request is part of the
key of a Program, in memory and on disk."""

from dataclasses import dataclass, fields
from typing import NamedTuple

from glasshouse.base.flags import having
from glasshouse.dispatch.bind import state


class ValueName(NamedTuple):
    """A value of the forward pass: the result `number` of a primitive in a module, counted from 0.
    A value has the same name in each recording of a model."""

    module: str
    primitive: str
    number: int

    def __str__(self) -> str:
        return f"{self.module}:{self.primitive}#{self.number}"


class ElementwiseWork(NamedTuple):
    """The elementwise work of a module and of those in it; with it go convolutions that take at
    most `conv_limit` FLOPs for each byte of their result."""

    module: str
    conv_limit: int = 0

    def __str__(self) -> str:
        convs = f" and convolutions up to {self.conv_limit} FLOPs a byte" if self.conv_limit else ""
        return f"elementwise work{convs} of {self.module or 'the whole graph'}"


@dataclass(frozen=True)
class RecomputeRequest:
    """Values that the backward pass recomputes; the path of a module begins with its model's class.

    modules       modules that run a second time as a whole, as checkpoints do
    elementwise   modules of which it makes the elementwise work again
    remade        single values that it makes again
    kept          single values that are kept to make them of"""

    modules: tuple[str, ...] = ()
    elementwise: tuple[ElementwiseWork, ...] = ()
    remade: tuple[ValueName, ...] = ()
    kept: tuple[ValueName, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __or__(self, other: "RecomputeRequest") -> "RecomputeRequest":
        """All that either asks for."""
        names = [field.name for field in fields(self)]
        return RecomputeRequest(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        parts = [f"all of {path}" for path in self.modules]
        parts += map(str, self.elementwise)
        parts += [f"the value {name}" for name in self.remade]
        parts += [f"with {name} kept" for name in self.kept]
        return f"compute again: {', '.join(parts) or 'nothing'}"


NOTHING = RecomputeRequest()


def requesting(request: RecomputeRequest) -> having:
    """Until the end of the context, this thread's backward passes also recompute the values of
    `request`."""
    return having(state, recompute=((state.recompute or NOTHING) | request) or None)
