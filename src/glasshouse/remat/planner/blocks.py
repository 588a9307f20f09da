"""Blocks of a model that compute again in the backward pass, and how a model is made to do that."""

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

from glasshouse.analyze.trace import forwards_replaced, no_leaf_types
from glasshouse.autograd import saved_on_host
from glasshouse.base.flags import having
from glasshouse.dispatch.bind import state
from glasshouse.nn.module import Module
from glasshouse.profile.counter import is_within
from glasshouse.transforms.checkpoint import checkpoint


class Block(NamedTuple):
    """A module that computes again: all of it (`whole`), or its elementwise work, and convolutions
    of up to `convs` FLOPs a byte; about the bytes that this saves, and the ns it takes. Or a value
    by its name (`passes/names.py`). With `offload` what the module saves waits in host memory."""

    path: str
    saved_bytes: int = 0
    extra_ns: float = 0.0
    whole: bool = True
    convs: int = 0
    offload: bool = False

    def code(self) -> str:
        """The block as Python, without estimates."""
        own, plain = self._asdict(), self._field_defaults
        told = [k for k in ("whole", "convs", "offload") if own[k] != plain[k]]
        return f"Block({', '.join([repr(self.path), *(f'{k}={own[k]!r}' for k in told)])})"

    @property
    def means(self) -> str:
        if ":" in self.path or " " in self.path:
            return "value" + "s" * (" " in self.path)
        if self.offload:
            return "offload"
        if self.whole:
            return "whole"
        return f"elementwise, convolutions to {self.convs}" if self.convs else "elementwise"


def key_of(blocks: list[Block]) -> tuple:
    return tuple((b.path, b.whole, b.convs, b.offload) for b in blocks)


def asked(block: Block, root: str) -> str:
    """A block as `state.recompute` names it; the model is called `root`."""
    path = root + "." * bool(root and block.path and block.path[0] != ":") + block.path
    return path + ("!" if block.whole else f"+{block.convs}" if block.convs else "")


class Applied(ExitStack):
    """Blocks that compute again, until `undo()`, or the end of this as a context."""

    undo = ExitStack.close

    def __init__(self, model: Module, blocks: Iterable[Block]):
        super().__init__()
        root, replaced = type(model).__name__, [b for b in blocks if b.whole or b.offload]
        others = [asked(b, root) for b in blocks if not (b.whole or b.offload)]
        ways = {b.path: offloaded if b.offload else checkpointed for b in replaced[::-1]}

        def forward(path: str, module: Module):
            return ways[path](module)

        self.enter_context(having(state, recompute=(*state.recompute, *others)))
        self.enter_context(forwards_replaced(model, ways, forward))


def first_argument(path: str, module: Module):
    """What stands for the forward of a block that is left out."""
    return lambda x, *args, **kwargs: x


def offloaded(module: Module):
    """The forward, which leaves what it saves in the host's memory."""
    return saved_on_host()(module.forward)


def checkpointed(module: Module):
    """The forward, whose second run leaves buffers (running statistics) as the first made them."""
    forward = module.forward

    def run(*args, **kwargs):
        if state.phase != "recompute":
            return forward(*args, **kwargs)
        before = [(m, dict(m._buffers)) for m in module.modules()]
        held = [(b, b.payload, b.spec) for b in module.buffers()]
        try:
            return forward(*args, **kwargs)
        finally:
            for m, own in before:
                m._buffers.update(own)
            for b, data, spec in held:
                b.payload, b.spec = data, spec

    return checkpoint(run)


def candidates_of(model: Module) -> list[str]:
    """Paths of the blocks that may be computed again: the outermost modules with parts whose class
    repeats, else containers that do, else the model's own parts."""
    parts = [(path, m) for path, m in model.named_modules() if path and list(m.parameters())]
    kinds = Counter(type(m) for _, m in parts)
    repeated = [(path, m) for path, m in parts if kinds[type(m)] > 1 and list(m.children())]
    own = [path for path, m in repeated if type(m) not in no_leaf_types]
    found = own or [path for path, _ in repeated] or [name for name, _ in model.named_children()]
    return [p for p in found if not any(p != o and is_within(p, o) for o in found)]
