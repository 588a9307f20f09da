"""What if the optimizer were another: its part of a step, put in the place of plain descent's.

What comes before the update does not depend on it, and each parameter is updated by itself. So the
update of one parameter of each kind (shape, dtype, group) is analysed alone, and a step with plain
descent gets the difference: state that is allocated, gradients that are kept as state, bytes and
FLOPs of the kernels that update. An optimizer that is not of this kind is analysed whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from glasshouse.analyze.meta import is_owned, meta_backend, placed, without_storage
from glasshouse.base.flags import flags
from glasshouse.base.shape import Spec
from glasshouse.compile.plan import SMALL_BYTES
from glasshouse.compile.steps import Kernel
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.bind import bind
from glasshouse.dispatch.primitive import primitives
from glasshouse.dispatch.value import Value
from glasshouse.nn.module import Module
from glasshouse.optim.optimizer import Optimizer


class Update(NamedTuple):
    """One parameter's update in one step: whether the gradient before was given back first, the
    bytes of each allocation, and (bytes, FLOPs) of the kernel."""

    frees_gradient: bool
    allocated: tuple[int, ...]
    work: tuple[int, int]


class Place(NamedTuple):
    """The number of the step that updates a parameter, and how its kernel comes by the gradient:
    "loads", "makes", or "computes" what is stored elsewhere. Whose memory it takes depends on it.
    `gradient` names the buffer of one that is loaded."""

    step: int
    how: str
    gradient: Any = None


def is_separable(optimizer) -> bool:
    """Whether an optimizer updates each parameter by itself."""
    kind = type(optimizer)
    own = ("step", "update", "zero_grad")
    return isinstance(optimizer, Optimizer) and all(
        getattr(kind, name) is getattr(Optimizer, name) for name in own
    )


def kinds_of(optimizer: Optimizer, places) -> list[tuple]:
    """The kind of each parameter in order: equal ones are updated by equal kernels."""
    found, at = [], iter(places)
    for number, group in enumerate(optimizer.param_groups):
        for p in group["params"]:
            entry = optimizer.state.get(p, {})
            state = tuple((k, v.spec if isinstance(v, Value) else v) for k, v in entry.items())
            found.append((number, p.spec, state, next(at).how))
    return found


@contextmanager
def alone(optimizer: Optimizer, params: list):
    """Inside, an optimizer of these parameters only, without storage; yields the backend."""
    backend, holder, own = meta_backend(), Module(), set(map(id, params))
    holder._parameters.update({str(i): p for i, p in enumerate(params)})
    storage = without_storage(holder, optimizer, backend)
    with storage, backends.use(backend), flags.override(compile="always"):
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) in own]
        yield backend


def updates_of(optimizer: Optimizer, places, steps: int) -> list[dict[tuple, Update]] | None:
    """For each step, the update of each kind of parameter; None if they are not one kernel each."""
    some: dict[tuple, Any] = {}
    for kind, p in zip(kinds_of(optimizer, places), optimizer.parameters(), strict=True):
        some.setdefault(kind, p)
    chosen, events, found = {id(p): kind for kind, p in some.items()}, [], []
    with alone(optimizer, list(some.values())) as backend:
        backend.manager.subscribe(events.append)
        for _ in range(steps):
            held = [p for p in optimizer.parameters() if p.grad is not None]
            kept = {address_of(p.grad): chosen[id(p)] for p in held}
            events.clear()
            optimizer.zero_grad()
            freed = {kept.get(e.address) for e in events}
            for kind, p in some.items():
                leaf = placed(Spec((1, *p.shape), p.dtype), backend)
                p.grad = gradient_of(leaf, backend, kind[-1])
            backend.runs.clear()
            optimizer.step()
            own = parts_of(backend.runs, len(chosen))
            if own is None:
                return None
            found.append({
                kind: Update(kind in freed, *part) for kind, part in zip(some, own, strict=True)
            })  # fmt: skip
    return found


def shares_state(optimizer: Optimizer, places) -> bool:
    """Whether parameters whose gradients are one value get one tensor as the state of both."""
    by_gradient: dict[Any, list] = {}
    for place, p in zip(places, optimizer.parameters(), strict=True):
        if place.gradient is not None and p.nbytes >= SMALL_BYTES:
            by_gradient.setdefault(place.gradient, []).append(p)
    pair = next((params[:2] for params in by_gradient.values() if len(params) > 1), None)
    if pair is None:
        return False
    with alone(optimizer, pair) as backend:
        leaf = placed(Spec((1, *pair[0].shape), pair[0].dtype), backend)
        for p in pair:
            p.grad = gradient_of(leaf, backend, "loads")
        optimizer.step()
        tensors = [x for p in pair for x in optimizer.state.get(p, {}).values()]
        found = [address_of(x) for x in tensors if isinstance(x, Value)]
    return len(set(found)) < len(found)


def gradient_of(leaf: Value, backend, how: str) -> Value:
    """A gradient made in the run of the update: by a step of the host, by a kernel, or as what all
    who read it compute, which an output is that only changes a shape."""
    shape = leaf.shape[1:]
    if how != "computes":
        leaf = bind(primitives["reshape"], (leaf,), {"shape": shape})
    with backend.replace("neg", abs):
        made = bind(primitives["neg"], (leaf,), {})
    if how != "loads":
        made = bind(primitives["mul"], (made, made), {})
    return bind(primitives["reshape"], (made,), {"shape": shape}) if how == "computes" else made


def address_of(tensor: Value) -> int | None:
    """Where a meta tensor lies; None if that is not managed."""
    buffer = getattr(getattr(tensor.data, "value", None), "buffer", None)
    return None if buffer is None else buffer.address


def parts_of(runs, count: int) -> list[tuple] | None:
    """(allocations, work) of the update of each parameter in a run of nothing else."""
    if len(runs) != 1:
        return None
    plan, donated = runs[0].plan, runs[0].donated
    made: dict[int, list] = {}
    for step, buffer in updating(plan):
        made.setdefault(step, []).append(buffer)
    if len(made) != count or not all(isinstance(plan.schedule[step], Kernel) for step in made):
        return None
    infos, parts = plan.step_infos(), []
    for step, buffers in made.items():
        new = [b.spec.nbytes for b in buffers if plan.source_of(b, donated) is None]
        sizes = tuple(n for n in new if n >= SMALL_BYTES)
        parts.append((sizes, (infos[step].bytes, infos[step].flops)))
    return parts


def updating(plan) -> list[tuple[int, Any]]:
    """(step, buffer) of each result of the optimizer's, in order."""
    writers = {buffer: i for i, step in enumerate(plan.schedule) for buffer in step.writes()}
    own = [b for b in getattr(plan, "made", ()) if b.node and b.node.origin.phase == "optimizer"]
    return [(writers[buffer], buffer) for buffer in own]


def places_of(runs) -> tuple[Place, ...]:
    """Where each parameter is updated, in a step of plain descent: the optimizer's only results are
    the parameters, in order. Steps are numbered through all runs."""
    places, before = [], 0
    for run in runs:
        for step, made in updating(run.plan):
            place = place_in(run.plan.schedule[step], made)
            places.append(place._replace(step=before + step))
        before += len(run.plan.schedule)
    return tuple(places)


def place_in(kernel, made) -> Place:
    """How a kernel that makes a parameter comes by the gradient."""
    read = [b for b in kernel.reads() if b.place == "output" and b.spec == made.spec]
    if read:
        return Place(0, "loads", min(b.at for b in read))
    before = list(takewhile(lambda root: root.store.base is not made, getattr(kernel, "roots", ())))
    makes = any(root.store.base.spec == made.spec for root in before)
    return Place(0, "makes" if makes else "computes")


def with_update(record, plain: Optimizer, other: Optimizer, steps: int, known: dict):
    """The record of a step with another optimizer, from that of one with plain descent; None if it
    does not follow. `known` keeps what is the same for all others."""
    places, work = record.shape[-1], record.shape[3]
    if len(places) != len(plain.parameters()) or shares_state(other, places):
        return None
    if places not in known:
        known[places] = updates_of(plain, places, steps)
    before, after = known[places], updates_of(other, places, steps)
    kinds = [kinds_of(plain, places), kinds_of(other, places)]
    if before is None or after is None:
        return None
    sizes = iter(record.numbers)
    events = list(events_with(record.shape[0], sizes, kinds[1], after, stored(other)))
    rest = np.array(list(sizes))
    starts = len(rest) - 1 - sum(len(what) + 1 for what in work)
    at = starts + np.cumsum([0, *(len(what) + 1 for what in work)])
    for place, old, new in zip(places, *kinds, strict=True):
        rest[at[place.step] : at[place.step] + 2] += np.subtract(
            after[-1][new].work, before[-1][old].work
        )
    numbers = [nbytes for kind, _, nbytes in events if kind == "alloc"]
    loose = np.zeros(len(numbers) + len(rest), bool)
    shape = (tuple((kind, key) for kind, key, _ in events), *record.shape[1:])
    return record._replace(shape=shape, numbers=np.array([*numbers, *rest]), loose=loose)


def stored(optimizer: Optimizer) -> list[int]:
    """Bytes of each tensor of the state that is there, and managed."""
    tensors = [x for entry in optimizer.state.values() for x in entry.values()]
    managed = [x for x in tensors if isinstance(x, Value) and is_owned(x)]
    return [x.spec.nbytes for x in managed if x.spec.nbytes >= SMALL_BYTES]


def events_with(events, sizes, kinds, updates, state: list[int]) -> Iterator[Any]:
    """The events (kind, name, bytes) of a step with these updates: before the first Program the
    state; at the end of each Program's allocations those of the updates; without the frees of
    gradients that became state."""
    managed = [kind for kind in kinds if kind[1].nbytes >= SMALL_BYTES]
    step, freed, last_arena = 0, 0, last_arenas(events)
    for place, (kind, at) in enumerate(events):
        if kind == "arena" or place == 0 and kind != "alloc":
            yield from (("alloc", ("state", i), n) for i, n in enumerate(state))
            state = []
        if kind == "step":
            step, freed = step + 1, 0
        elif kind == "free" and at in last_arena:
            if last_arena[at]:
                for i, own in enumerate(kinds):
                    for j, n in enumerate(updates[step][own].allocated):
                        yield "alloc", ("update", step, i, j), n
        elif kind == "free" and step and freed < len(managed):
            freed += 1
            if not updates[step][managed[freed - 1]].frees_gradient:
                continue
        yield kind, at, next(sizes) if kind == "alloc" else 0


def last_arenas(events) -> dict:
    """Of each arena, whether it is the last of its step: the Program that updates."""
    found, own = {}, None
    for kind, at in events:
        if kind == "arena":
            found[at], own = False, at
        elif kind == "step":
            found[own] = True
    return found
