"""Checkpointing: keep a region's inputs only, and compute its inside again for backward."""

import functools
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from glasshouse.autograd.backward import seeds_of
from glasshouse.autograd.function import fresh
from glasshouse.autograd.tape import (
    Leaf,
    TapeEntry,
    TapeMode,
    Walk,
    attach,
    recording,
    sequence,
)
from glasshouse.base import flatten, having, unflatten
from glasshouse.base.tree import TreeDef
from glasshouse.dispatch import Level, Value, bind, phase, primitives, state, zeros
from glasshouse.dispatch.autocast import autocast_modes, use_autocast_modes
from glasshouse.tensor import Tensor, random


class InsideWalk(Walk):
    """A walk that ends at the operands of a region and at its captured values. Cotangents there
    stay apart: the outer walk adds them up, in the order that they would have without a region."""

    def __init__(self, create_graph: bool, operands: dict[Any, Any], start: int) -> None:
        super().__init__(create_graph, create_graph)
        self.operands = operands
        self.start = start
        self.pulled: list[Any] = []  # [(place outside, cotangent)]

    def seed(self, place: Any, cotangent: Any) -> None:
        node, _ = place
        outside = self.operands.get(node, place if node.seq < self.start else None)
        if outside is None:
            super().seed(place, cotangent)
        else:
            self.pulled.append((outside, cotangent))


class RegionEntry(TapeEntry):
    """The tape's entry of one checkpointed call: it runs the region a second time when pulled."""

    __slots__ = ("rerun", "out_specs")
    rerun: Any
    out_specs: list[Any]
    reaches_everything = True  # captured values are known only after running it again

    def pull(self, cotangents: Any, create_graph: bool) -> list[tuple[tuple[Any, ...], Tensor]]:
        """Cotangents for the operands, and for whatever tracked values the region closed over."""
        start = next(sequence)
        with recording(self.mode, True):
            inputs, outputs = self.rerun(create_graph)
        gs = [zeros(s) if g is None else g for g, s in zip(cotangents, self.out_specs, strict=True)]
        pairs = [(y, g) for y, g in zip(outputs, gs, strict=True) if y.tape_entry is not None]
        seeds = seeds_of("checkpoint", [y for y, _ in pairs], [g for _, g in pairs])
        operands = {x.tape_entry: parent for x, parent in zip(inputs, self.parents) if parent}
        walk = InsideWalk(create_graph, operands, start)
        walk.run(lambda node, slots: True, seeds)
        return walk.pulled

    def release(self) -> None:
        self.freed: bool = True
        self.rerun = None
        self.parents: tuple[Any, ...] = ()


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes as `fn`, but saves only its arguments for backward.
    The inside is computed a second time during backward, with the same random numbers, so values
    and gradients are those of `fn`.

    Source: Chen et al. 2016, arXiv:1604.06174.
    Example:
        >>> x = gh.tensor(2.0, requires_grad=True)
        >>> gh.checkpoint(lambda v: (v * v).exp())(x).backward()
        >>> round(x.grad.item(), 3)
        218.393
    """

    @functools.wraps(fn)
    def region(*args, **kwargs):
        tape, alone = tape_in_force()
        if not (alone and (state if tape is None else tape).records):
            with having(state, region=next(regions)):  # its number, for tracers
                return fn(*args, **kwargs)
        leaves, treedef = flatten((args, kwargs))
        leaves = [x.copy() if isinstance(x, np.ndarray) else x for x in leaves]
        before = random.default_generator().state()
        with recording(tape, False):
            out = fn(*args, **kwargs)
        return put_on_tape(fn, leaves, treedef, out, tape, before)

    return region


regions: "itertools.count[int]" = itertools.count()


def tape_in_force() -> Any:
    """(the innermost tape level or None for the base tape, whether no vmap or jvp is inside it).
    Inside a vmap or jvp a region is recorded as usual: its payloads are not this tape's."""
    levels = [mode for mode in state.modes if isinstance(mode, Level)]
    if not levels:
        return None, True
    return (levels[-1], True) if isinstance(levels[-1], TapeMode) else (None, False)


def put_on_tape(
    fn: Callable[..., Any],
    leaves: Any,
    treedef: TreeDef,
    out: Tensor,
    tape: Any,
    before: dict[str, Any],
) -> Tensor:
    outputs, out_def = flatten(out)
    entry = RegionEntry()
    tracked = [isinstance(x, Value) and x.mode is tape and x.tape_entry is not None for x in leaves]
    entry.parents = tuple((x.tape_entry, x.slot) if t else None for x, t in zip(leaves, tracked))
    autocasts, contexts = autocast_modes(), state.region_contexts

    def rerun(create_graph: bool):
        inputs = [restart(x, create_graph) if t else x for x, t in zip(leaves, tracked)]
        generator = random.default_generator()
        after = generator.state()
        generator.set_state(before)
        try:
            args, kwargs = unflatten(treedef, inputs)
            with use_autocast_modes(autocasts), phase("recompute"), ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context(fn))
                results, _ = flatten(fn(*args, **kwargs))
        finally:
            generator.set_state(after)
        return inputs, [y for y in results if isinstance(y, Value)]

    entry.rerun = rerun
    results = [fresh(y, tape) if isinstance(y, Value) else y for y in outputs]
    values = [y for y in results if isinstance(y, Value)]
    entry.out_specs = [y.spec for y in values]
    attach(entry, values, tape)
    return unflatten(out_def, results)


def restart(x: Tensor, create_graph: bool) -> Any:
    """An argument as a new start of the tape; for create_graph, still tied to its past."""
    if create_graph:
        return bind(primitives["reshape"], (x,), {"shape": x.shape})
    fresh_value = fresh(x, x.mode)
    fresh_value.tape_entry, fresh_value.slot = Leaf(fresh_value), 0
    return fresh_value
