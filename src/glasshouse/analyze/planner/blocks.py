"""Blocks that compute again in the backward pass, and the changes to a model for that."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from enum import StrEnum
from typing import Any, NamedTuple

from glasshouse.analyze.trace import forwards_replaced, no_leaf_types
from glasshouse.autograd import saved_on_host
from glasshouse.dispatch.bind import state
from glasshouse.graph.recompute.request import (
    ElementwiseWork,
    RecomputeRequest,
    ValueName,
    requesting,
)
from glasshouse.nn.module import Module
from glasshouse.profile.counter import is_within
from glasshouse.transforms.checkpoint import checkpoint


class Means(StrEnum):
    """Ways in which a block saves memory."""

    WHOLE = "whole"  # the module runs a second time
    ELEMENTWISE = "elementwise"  # its elementwise work is made again
    OFFLOAD = "offload"  # its saved values wait in the host's memory
    REMAKE = "remake"  # a single value is made again
    KEEP = "keep"  # a single value is kept, to compute others from


class RematBlock(NamedTuple):
    """A module that saves memory by one means, or a single value; with estimates of the effect.

    path          of the module in the model; for a value, of its module
    means         how; of single values REMAKE or KEEP
    conv_limit    with ELEMENTWISE, the FLOPs a byte of convolutions that are computed again too
    value         the single value
    saved_bytes   the bytes that it saves, and
    extra_ns      the time that it adds to a step, both estimated"""

    path: str
    means: Means = Means.WHOLE
    conv_limit: int = 0
    value: ValueName | None = None
    saved_bytes: int = 0
    extra_ns: float = 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of the recomputation, without estimates."""
        return self.path, self.means, self.conv_limit, self.value

    @property
    def is_value(self) -> bool:
        """Whether it is a single value."""
        return self.value is not None

    def code(self) -> str:
        """The block as Python, without estimates."""
        options = {"conv_limit": self.conv_limit, "value": self.value}
        words = [repr(self.path), repr(str(self.means))]
        words += [f"{name}={value!r}" for name, value in options.items() if value]
        return f"RematBlock({', '.join(words)})"

    def __str__(self) -> str:
        if self.value is not None:
            return str(self.value._replace(module=self.path))
        return self.path

    def describe_means(self) -> str:
        """The means, for a table."""
        if self.value is not None:
            return "value"
        if self.conv_limit:
            return f"{self.means}, convolutions to {self.conv_limit}"
        return str(self.means)


def key_of(blocks: Iterable[RematBlock]) -> tuple[Any, ...]:
    """Keys of the blocks' recomputation, without estimates."""
    return tuple(block.key for block in blocks)


def request_of(blocks: Iterable[RematBlock], root: str) -> RecomputeRequest:
    """Build the request to the passes for blocks of a model, which is called `root`."""
    modules, elementwise = [], []
    remade, kept = list[Any](), list[Any]()
    for block in blocks:
        path = ".".join(filter(None, (root, block.path)))
        if block.means == Means.WHOLE:
            modules.append(path)
        elif block.means == Means.ELEMENTWISE:
            elementwise.append(ElementwiseWork(path, block.conv_limit))
        elif block.value is not None:
            (remade if block.means == Means.REMAKE else kept).append(block.value)
    return RecomputeRequest(tuple(modules), tuple(elementwise), tuple(remade), tuple(kept))


class AppliedBlocks(ExitStack):
    """Blocks that compute again, until `undo()`, or the end of this as a context."""

    undo: Callable[..., None] = ExitStack.close

    def __init__(self, model: Module, blocks: Iterable[RematBlock]) -> None:
        super().__init__()
        blocks = list(blocks)
        ways = {Means.WHOLE: checkpointed, Means.OFFLOAD: offloaded}
        replaced = {b.path: ways[b.means] for b in reversed(blocks) if b.means in ways}
        others = [block for block in blocks if block.means not in ways]

        def forward(path: str, module: Module):
            return replaced[path](module)

        self.enter_context(requesting(request_of(others, type(model).__name__)))
        self.enter_context(forwards_replaced(model, replaced, forward))


def passed_through(path: str, module: Module) -> Any:
    """Return the forward of a block that is left out: it returns its first argument."""
    return lambda x, *args, **kwargs: x


def offloaded(module: Module) -> Callable[..., Any]:
    """Return the forward with its saved values in the host's memory."""
    return saved_on_host()(module.forward)


def checkpointed(module: Module) -> Callable[..., Any]:
    """Return the forward; its second run leaves buffers (running statistics) as they were."""
    forward = module.forward

    @functools.wraps(forward)
    def run(*args, **kwargs):
        if state.phase != "recompute":
            return forward(*args, **kwargs)
        buffers = [(m, dict(m._buffers)) for m in module.modules()]
        contents = [(b, b.payload, b.spec) for b in module.buffers()]
        try:
            return forward(*args, **kwargs)
        finally:
            for m, saved in buffers:
                m._buffers.update(saved)
            for b, payload, spec in contents:
                b.payload, b.spec = payload, spec

    return checkpoint(run)


def candidates_of(model: Module, containers: set[type[Any]] = no_leaf_types) -> list[str]:
    """Paths of the blocks that may be computed again: the outermost modules with parts whose class
    repeats, else `containers` that do, else the model's own parts."""
    modules = [(path, m) for path, m in model.named_modules() if path and list(m.parameters())]
    counts = Counter(type(m) for _, m in modules)
    repeated = [(path, m) for path, m in modules if counts[type(m)] > 1 and list(m.children())]
    paths = [path for path, m in repeated if type(m) not in containers]
    paths = paths or [path for path, _ in repeated]
    paths = paths or [name for name, _ in model.named_children()]
    return [p for p in paths if not any(p != other and is_within(p, other) for other in paths)]
