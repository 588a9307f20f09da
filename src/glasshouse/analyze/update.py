"""Swap the optimizer of an analysed step: its update takes the place of plain descent's.

The step before the update does not depend on it, and each parameter is updated alone, or with those
whose gradient is the same value. So the updates of a few parameters of each kind are analysed
alone, sizes between them follow in proportion, and a step with plain descent gets the difference:
state that is allocated, gradients that are kept as state, bytes and FLOPs of the kernels that
update. An optimizer that is not of this kind is analysed whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.analyze.meta import address_of, is_owned, meta_backend, placed, without_storage
from glasshouse.base.flags import flags, having
from glasshouse.base.shape import Spec
from glasshouse.compile.lowering.source_map import StepInfo
from glasshouse.compile.planning.plan import SMALL_BYTES, ProgramPlan
from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.compile.steps.steps import FusedKernel, PlannedBuffer
from glasshouse.dispatch import Value, bind, primitives, state
from glasshouse.nn.module import Module
from glasshouse.optim.optimizer import Optimizer
from glasshouse.tensor import Tensor

if TYPE_CHECKING:
    from glasshouse.analyze.sweep import StepRecord


class Update(NamedTuple):
    """Update of parameters with one gradient, in one step: whether the gradient before was freed
    first, the bytes of each allocation, and the numbers of each kernel's work."""

    frees_gradient: bool
    allocated: tuple[int, ...]
    work: tuple[int, ...]

    def between(self, other: "Update", part: float) -> "Update":
        """Update for a size between the two."""
        rows = [np.array([*u.allocated, *u.work], float) for u in (self, other)]
        numbers = np.rint(rows[0] + part * (rows[1] - rows[0])).astype(np.int64).tolist()
        at = len(self.allocated)
        return Update(other.frees_gradient, tuple(numbers[:at]), tuple(numbers[at:]))


class UpdatePlace(NamedTuple):
    """Step that updates a parameter, and how its kernel gets the gradient: "loads", "makes", or
    "computes" it. `gradient` names the buffer of a stored one, where `values` tensors lie."""

    step: int
    how: str
    gradient: Any = None
    values: int = 1


def is_separable(optimizer: Any) -> bool:
    """Whether an optimizer updates each parameter by itself."""
    kind, names = type(optimizer), ("step", "advance", "update", "zero_grad")
    same = (getattr(kind, name) is getattr(Optimizer, name) for name in names)
    return isinstance(optimizer, Optimizer) and all(same)


def units_of(places: tuple[UpdatePlace, ...]) -> list[tuple[int, ...]]:
    """Numbers of the parameters that share one gradient; most have one each."""
    units: dict[Any, list[int]] = {}
    for i, place in enumerate(places):
        units.setdefault(i if place.gradient is None else (place.gradient,), []).append(i)
    return [tuple(unit) for unit in units.values()]


def kinds_of(
    optimizer: Optimizer, places: tuple[UpdatePlace, ...], units: list[tuple[int, ...]]
) -> list[tuple[Any, ...]]:
    """Kind of each unit: units that differ in size only have kernels that do too."""
    parts = []
    owned = ((i, p) for i, group in enumerate(optimizer.param_groups) for p in group["params"])
    for (group, p), place in zip(owned, places, strict=True):
        state = tuple(
            (k, v.dtype, v.shape == p.shape or v.shape) if isinstance(v, Value) else (k, v)
            for k, v in optimizer.state.get(p, {}).items()
        )
        parts.append((group, p.dtype, is_owned(p), place.how, place.values, state))
    return [tuple(parts[i] for i in unit) for unit in units]


@contextmanager
def alone(optimizer: Optimizer, params: list[Any]) -> Iterator[Any]:
    """Inside, the optimizer has these parameters only, without storage; yields "meta"."""
    backend, holder, ids = meta_backend(), Module(), set(map(id, params))
    holder._parameters.update({str(i): p for i, p in enumerate(params)})
    storage = without_storage(holder, optimizer, backend)
    with storage, having(state, backend=backend), flags.override(compile="always"):
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) in ids]
        yield backend


def updates_of(
    optimizer: Optimizer, places: tuple[UpdatePlace, ...], steps: int
) -> list[list[Update]] | None:
    """Updates of each unit, for each step; None if they are not a kernel each. Of a kind three
    sizes are analysed, the others lie between them; all of them, if the middle one does not."""
    params, units = optimizer.parameters(), units_of(places)
    kinds: dict[tuple[Any, ...], dict[int, list[int]]] = {}
    pairs = zip(units, kinds_of(optimizer, places, units), strict=True)
    for number, (unit, kind) in enumerate(pairs):
        kinds.setdefault(kind, {}).setdefault(params[unit[0]].size, []).append(number)
    for picked in ({kind: least_middle_most(sizes) for kind, sizes in kinds.items()}, kinds):
        numbers = [kinds[kind][size][0] for kind, sizes in picked.items() for size in sizes]
        chosen = [([params[i] for i in units[u]], places[units[u][0]]) for u in numbers]
        updates = analyse_units(optimizer, chosen, steps)
        if updates is None:
            return None
        rows = [dict(zip(numbers, step, strict=True)) for step in updates]
        alike = [interpolate(row, sizes) for row in rows for sizes in kinds.values()]
        if all(alike):
            break
    return [[row[u] for u in range(len(units))] for row in rows]


def least_middle_most(sizes: Any) -> list[int]:
    ascending = sorted(sizes)
    return sorted({ascending[0], ascending[len(ascending) // 2], ascending[-1]})


def interpolate(updates: dict[int, Update], units: dict[int, list[int]]) -> bool:
    """Fill in the updates of all units of a kind, by size, from the analysed ones, in proportion;
    returns whether those lie on the line through the least and the largest."""
    by_size = {
        size: updates[numbers[0]] for size, numbers in units.items() if numbers[0] in updates
    }
    least, most = by_size[min(by_size)], by_size[max(by_size)]
    on_line = len({(len(u.allocated), len(u.work)) for u in by_size.values()}) == 1
    for size, numbers in units.items():
        update = by_size.get(size)
        if on_line:
            part = (size - min(by_size)) / max(1, max(by_size) - min(by_size))
            expected = least.between(most, part)
            on_line = update is None or update[1:] == expected[1:]
            update = update or expected
        updates.update((number, update) for number in numbers if update is not None)
    return on_line


def analyse_units(
    optimizer: Optimizer, units: list[tuple[list[Any], UpdatePlace]], steps: int
) -> list[list[Update]] | None:
    """For each step, analyse each of a few units (parameters, the place of the first)."""
    updates: list[list[Update]] = []
    events: list[Any] = []
    with alone(optimizer, [p for params, _ in units for p in params]) as backend:
        backend.manager.subscribe(events.append)
        for _ in range(steps):
            addresses = [address_of(params[0].grad) for params, _ in units]
            events.clear()
            optimizer.zero_grad()
            backend.manager.catch_up()
            freed = {event.address for event in events if event.kind == "free"}
            for params, place in units:
                leaf = placed(Spec((1, *params[0].shape), params[0].dtype), backend)
                for p in params:
                    is_first = p is params[0] or place.values > 1
                    p.grad = gradient_of(leaf, backend, place.how) if is_first else params[0].grad
            before = set().union(*payloads_of(optimizer))
            backend.runs.clear()
            optimizer.step()
            counts = [len(parts - before) for parts in payloads_of(optimizer)]
            results = dict(zip(map(id, optimizer.parameters()), counts, strict=True))
            ids = [[id(p) for p in params] for params, _ in units]
            parts = parts_of(backend.runs, results, ids)
            if parts is None:
                return None
            pairs = zip(addresses, parts, strict=True)
            updates.append([Update(address in freed, *part) for address, part in pairs])
    return updates


def payloads_of(optimizer: Optimizer) -> list[set[int]]:
    """Payloads of each parameter, with its gradient and state."""
    rows = ((p, p.grad, *optimizer.state.get(p, {}).values()) for p in optimizer.parameters())
    return [{id(x.payload) for x in values if isinstance(x, Value)} for values in rows]


def gradient_of(leaf: Tensor, backend: RecordingBackend, how: str) -> Tensor:
    """Gradient that the run of the update makes: by a step of the host, by a kernel, or in all its
    readers; the last is so for an output that only changes a shape."""
    shape = leaf.shape[1:]
    if how != "computes":
        leaf = bind(primitives["reshape"], (leaf,), {"shape": shape})
    with backend.replace("neg", abs):
        gradient = bind(primitives["neg"], (leaf,), {})
    if how != "loads":
        gradient = bind(primitives["mul"], (gradient, gradient), {})
    if how == "computes":
        gradient = bind(primitives["reshape"], (gradient,), {"shape": shape})
    return gradient


def parts_of(
    runs: Any, counts: dict[int, int], units: list[list[int]]
) -> list[tuple[Any, ...]] | None:
    """(allocations, work) of each unit in a run of updates; `counts`
    has the number of results by parameter."""
    if len(runs) != 1:
        return None
    plan, donated, parts = runs[0].plan, runs[0].donated, []
    claimed: set[int] = set()  # steps of the units so far
    updated = iter([b for b, _ in plan.outputs if is_updated(b)])
    results = {p: list(islice(updated, count)) for p, count in counts.items()}
    writers, infos = writers_of(plan), plan.step_infos()
    for unit in units:
        buffers = list(dict.fromkeys(b for p in unit for b in results[p]))
        steps = sorted({writers[b] for b in buffers})
        fused = all(isinstance(plan.schedule[i], FusedKernel) for i in steps)
        if claimed.intersection(steps) or not fused:
            return None
        claimed.update(steps)
        sizes = tuple(b.spec.nbytes for b in buffers if plan.source_of(b, donated) is None)
        parts.append((sizes, tuple(n for i in steps for n in numbers_of(infos[i]))))
    return parts if next(updated, None) is None else None


def numbers_of(info: StepInfo) -> tuple[int, ...]:
    """The first numbers of a kernel's work: bytes, those of them in place, FLOPs."""
    return info.bytes, info.overwritten_bytes, info.flops


def is_updated(buffer: PlannedBuffer) -> bool:
    return buffer.node is not None and buffer.node.origin.phase == "optimizer"


def writers_of(plan: ProgramPlan) -> dict[Any, int]:
    return {buffer: i for i, step in enumerate(plan.schedule) for buffer in step.writes()}


def places_of(runs: list[Any]) -> tuple[UpdatePlace, ...]:
    """Places of parameters' updates in plain descent; steps are numbered through all runs."""
    places, before = [], 0
    for run in runs:
        writers = writers_of(run.plan) if hasattr(run.plan, "output_buffers") else {}
        for parameter in filter(is_updated, getattr(run.plan, "output_buffers", ())):
            how, gradient = place_in(run.plan.schedule[writers[parameter]], parameter)
            values = sum(base is gradient for base, _ in run.plan.outputs)
            key = None if gradient is None else (before, gradient.at)
            places.append(UpdatePlace(before + writers[parameter], how, key, values))
        before += len(run.plan.schedule)
    return tuple(places)


def place_in(kernel: FusedKernel, parameter: PlannedBuffer) -> tuple[str, Any]:
    """How a kernel of a parameter gets the gradient, and its buffer if it is stored."""
    read = [b for b in kernel.reads() if b.place == "output" and b.spec == parameter.spec]
    if read:
        return "loads", min(read, key=lambda b: b.at)
    roots = takewhile(lambda root: root.store.base is not parameter, getattr(kernel, "roots", ()))
    for base in (root.store.base for root in roots):
        if base.spec == parameter.spec and not is_updated(base):
            return "makes", base if base.place == "output" else None
    return "computes", None


def with_update(
    record: "StepRecord", plain: Optimizer, other: Optimizer, steps: int, cache: dict[Any, Any]
) -> Any:
    """Replace plain descent in the record by another optimizer, or return None; `cache` keeps the
    updates of plain descent, by their places."""
    places, work = record.shape.updates, record.shape.work
    if len(places) != len(plain.parameters()):
        return None
    if places not in cache:
        cache[places] = updates_of(plain, places, steps)
    before, after, units = cache[places], updates_of(other, places, steps), units_of(places)
    if before is None or after is None:
        return None
    sizes = iter(record.numbers)
    managed = [plain.parameters()[unit[0]].nbytes >= SMALL_BYTES for unit in units]
    frees = sorted((unit[-1], u) for u, unit in enumerate(units) if managed[u])
    events = list(
        events_with(record.shape.events, sizes, [u for _, u in frees], after, stored(other))
    )
    rest = np.array(list(sizes))
    counts = [count for _, count in work]
    at = len(rest) - 1 - sum(counts) + np.cumsum([0, *counts])
    for unit, old, new in zip(units, before[-1], after[-1], strict=True):
        unit_steps = sorted({places[i].step for i in unit})
        if not 3 * len(unit_steps) == len(old.work) == len(new.work):
            return None
        rest[np.add.outer(at[unit_steps], (0, 1, 2)).ravel()] += np.subtract(new.work, old.work)
    numbers = [nbytes for kind, _, nbytes in events if kind == "alloc"]
    loose = np.zeros(len(numbers) + len(rest), bool)
    shape = record.shape._replace(events=tuple((kind, key) for kind, key, _ in events))
    return record._replace(shape=shape, numbers=np.array([*numbers, *rest]), loose=loose)


def stored(optimizer: Optimizer) -> list[int]:
    """Bytes of each managed tensor of the state."""
    tensors = [x for entry in optimizer.state.values() for x in entry.values()]
    managed = [x for x in tensors if isinstance(x, Value) and is_owned(x)]
    return [x.spec.nbytes for x in managed if x.spec.nbytes >= SMALL_BYTES]


def events_with(
    events: tuple[tuple[str, int], ...],
    sizes: Any,
    frees: list[int],
    updates: list[list[Update]],
    state: list[int],
) -> Iterator[Any]:
    """Events (kind, name, bytes) of a step with these updates: before the first Program the state;
    at the end of each Program's allocations those of the updates; without the frees of gradients
    that became state. `frees` are the units in the order in which gradients are freed."""
    step, freed, last_arena = 0, 0, last_arenas(events)
    for place, (kind, at) in enumerate(events):
        if kind == "arena" or place == 0 and kind != "alloc":
            yield from (("alloc", ("state", i), n) for i, n in enumerate(state))
            state = []
        if kind == "step":
            step, freed = step + 1, 0
        elif kind == "free" and at in last_arena:
            for i, update in enumerate(updates[step] if last_arena[at] else ()):
                for j, n in enumerate(update.allocated):
                    if n >= SMALL_BYTES:
                        yield "alloc", ("update", step, i, j), n
        elif kind == "free" and step and freed < len(frees):
            freed += 1
            if not updates[step][frees[freed - 1]].frees_gradient:
                continue
        yield kind, at, next(sizes) if kind == "alloc" else 0


def last_arenas(events: tuple[tuple[str, int], ...]) -> dict[int, bool]:
    """Whether each arena is the last of its step: the Program that updates."""
    is_last: dict[int, bool] = {}
    latest: int | None = None
    for kind, arena in events:
        if kind == "arena":
            is_last[arena], latest = False, arena
        elif kind == "step" and latest is not None:
            is_last[latest] = True
    return is_last
