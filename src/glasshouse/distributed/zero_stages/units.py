"""Parameters that ranks share out (ZeRO 3): a unit of a model gathers its own when it is called.

For a gathered weight the tape saves the recipe to gather it again from the rows of all ranks, so a
whole weight lives only while its unit computes, forward and backward."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.autograd.tape import AT_END, CallEntry, TapeEntry, attach, run_hooks
from glasshouse.base import Spec
from glasshouse.base.errors import OptionError
from glasshouse.base.shape import Shape
from glasshouse.dispatch import bind, state
from glasshouse.distributed.replicas.reducers import buckets_of
from glasshouse.distributed.replicas.replicate import Replica
from glasshouse.distributed.tensor_parallel.patterns import matching
from glasshouse.distributed.zero_stages.rows import (
    flat_of,
    gathered,
    mean_rows,
    own_rows,
    wholes_of,
)
from glasshouse.nn import Module, ModuleList, Sequential
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import Tensor, zeros
from glasshouse.tensor.handle import add_hook

DERIVED = {"cast", "expand", "permute", "reshape", "slice"}  # cheap to make again


class Remade:
    """A saved value that is made again: the gathering that it comes from, its tensor's number
    there, and the calls since."""

    __slots__ = ("gathering", "number", "calls")

    def __init__(self, gathering: "Gathering", number: int, calls: list[Any]) -> None:
        self.gathering: Gathering = gathering
        self.number: int = number
        self.calls: list[Any] = calls
        gathering.uses += 1

    def value(self) -> Tensor:
        x = self.gathering.once_more()[self.number]
        for primitive, attrs in self.calls:
            x = bind(primitive, (x,), attrs)
        return x


class Gathering:
    """Whole parameters of one call of a unit. The backward pass gathers them once more, with those
    of the next unit, for as long as saved values need them."""

    def __init__(self, unit: "Unit", before: "Gathering | None") -> None:
        self.unit = unit
        self.before = before
        self.uses: int = 0
        self.flats: list[Tensor] | None = None

    def once_more(self) -> list[Tensor]:
        before, self.before = self.before, None
        flats = self.gather()
        if before is not None and before.uses and before.flats is None:
            before.flats = before.gather()
        self.uses -= 1
        self.flats = flats if self.uses > 0 else None
        return flats

    def gather(self) -> list[Tensor]:
        """All ranks' rows; not the same calls as those of the forward pass."""
        if self.flats is None:
            with no_grad():
                return self.unit.gather(self.unit.group_again)
        return self.flats


class GatherEntry(TapeEntry):
    """Tape entry of one gathering of a unit's bucket: parameters get their rows of the mean
    gradient, or, within `no_sync`, keep the whole gradient of this rank."""

    __slots__ = ("unit", "number", "group", "out_specs", "gathering")
    unit: "Unit"
    number: int
    group: ProcessGroup
    out_specs: list[Spec]
    gathering: Any

    def pull(self, cotangents: Any, create_graph: bool) -> list[tuple[tuple[Any, ...], Tensor]]:
        if not self.unit.trail.replica.syncs:
            self.unit.keep(self.number, cotangents[0])
            return []
        rows = self.unit.mean_rows(self.number, cotangents[0], self.group)
        pairs = zip(self.parents, rows, strict=True)
        return [(parent, row) for parent, row in pairs if parent is not None]

    def release(self) -> None:
        self.freed = True
        self.gathering = None
        self.parents = ()


class Trail:
    """Order in which the units of a model are called, and gradients that passes without
    communication left: `earlier` has the rows of a gradient whose place a whole one takes."""

    trains_along = True

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.units: list[Unit] = []
        self.earlier: dict[Tensor, Tensor] = {}
        self.begin()

    def keep(self, p: Tensor, whole: Tensor) -> None:
        """Add this rank's gradient of a whole parameter to the one in `.grad`."""
        if p.grad is not None and p.grad.shape != p.shape:
            p.grad = p.grad + whole
            return
        self.earlier.pop(p, None)
        if p.grad is not None:
            self.earlier[p] = p.grad
        p.grad = whole

    def pop_whole(self, p: Tensor) -> Tensor | None:
        """Take the whole gradient kept of a parameter, if any, to reduce it now."""
        if p.grad is None or p.grad.shape == p.shape:
            return None
        whole, p.grad = p.grad, self.earlier.pop(p, None)
        return whole

    def finish(self) -> None:
        """Reduce kept gradients of parameters that a backward pass did not reach."""
        with no_grad():
            for unit in self.units if self.replica.syncs else ():
                unit.finish()

    def begin(self) -> None:
        """Reset the state between forward passes."""
        self.last: Unit | None = None
        self.gathering: Gathering | None = None
        for unit in self.units:
            unit.ready = None


class Unit:
    """A module with the parameters that it gathers together: those of its inside that belong to no
    unit within it. `places` are, for each of them, the tables and names where modules keep it.
    Large ones are gathered to where they stay, the others of a dtype as one tensor."""

    beside: Any

    trains_along = True

    def __init__(
        self, module: Module, places: dict[Tensor, list[Any]], trail: Trail, groups: tuple[Any, ...]
    ) -> None:
        self.places = places
        self.trail = trail
        group, self.beside = groups
        self.group: Any = group._replace(label=f"unit {len(trail.units)}, {type(module).__name__}")
        self.group_again: Any = self.group._replace(name=f"{group.name} again")
        self.buckets: list[list[Tensor]] = buckets_of(list(places), sys.maxsize)
        self.shapes: list[list[Shape]] = [[p.shape for p in bucket] for bucket in self.buckets]
        self.is_first: bool = not trail.units
        self.following: Unit | None = None
        self.ready: list[Tensor] | None = None  # gathered before it is called
        self.outer: list[tuple[Any, ...]] = []  # while it is open, the state before
        trail.units.append(self)
        module.register_forward_pre_hook(self.enter, prepend=True)
        module.register_forward_hook(self.leave, always_call=True)

    def __reduce__(self) -> Any:
        expected = "no copies of a model whose parameters ranks share out"
        fix = "Copy it before gh.distributed.zero, or save its state."
        raise OptionError("zero", expected, "one", fix)

    def gather(self, group: ProcessGroup) -> list[Tensor]:
        """All ranks' rows of its parameters, by bucket."""
        with no_grad():
            flats = [gathered(*of, group) for of in zip(self.buckets, self.shapes, strict=True)]
        for number, flat in enumerate(flats if state.records else ()):
            trained = [
                (p.tape_entry, p.slot) if p.requires_grad else None for p in self.buckets[number]
            ]
            if any(trained):
                entry = GatherEntry()
                entry.unit, entry.number, entry.group = self, number, group
                entry.parents, entry.out_specs, entry.gathering = tuple(trained), [flat.spec], None
                attach(entry, [flat], None)
        return flats

    def keep(self, number: int, flat: Tensor) -> None:
        """Keep this rank's whole gradients of a bucket."""
        with no_grad():
            wholes = wholes_of(flat, self.shapes[number])
            for p, whole in zip(self.buckets[number], wholes, strict=True):
                self.trail.keep(p, whole)

    def mean_rows(self, number: int, flat: Tensor | None, group: ProcessGroup) -> list[Tensor]:
        """This rank's rows of the mean gradients of a bucket, with the kept ones added."""
        shapes, wholes = (
            self.shapes[number],
            [self.trail.pop_whole(p) for p in self.buckets[number]],
        )
        if flat is None or any(whole is not None for whole in wholes):
            pairs = zip(self.buckets[number], shapes, wholes, strict=True)
            gradients = [zeros(shape, p.dtype) if x is None else x for p, shape, x in pairs]
            before = flat_of(gradients, group.size)
            flat = before if flat is None else before + flat
        return mean_rows(flat, shapes, group, self.beside)

    def finish(self) -> None:
        """Reduce the gradients that are still kept."""
        for number, bucket in enumerate(self.buckets):
            if all(p.grad is None or p.grad.shape == p.shape for p in bucket):
                continue
            rows = self.mean_rows(number, None, self.group)
            for p, row in zip(bucket, rows, strict=True):
                slots = {p.slot: row}
                run_hooks(p.tape_entry, slots)
                p.tape_entry.accumulate(slots[p.slot])

    def take_flats(self) -> list[Tensor]:
        """Take the flats that were gathered before, or gather them now."""
        flats, self.ready = self.ready, None
        if flats is None or (state.records and flats[0].tape_entry is None):
            flats = self.gather(self.group)
        return flats

    def enter(self, module: Module, args: tuple[Tensor, ...]) -> None:
        """Put whole parameters in the places of rows, before forward."""
        if state.phase == "recompute":
            self.open_again()
            return
        trail = self.trail
        if self.is_first:
            trail.begin()
        flats = self.take_flats()
        if trail.last is not None:
            trail.last.following = self
        if self.following is not None:
            self.following.ready = self.following.take_flats()
        gathering = Gathering(self, trail.gathering)
        trail.last, trail.gathering = self, gathering
        self.open(flats, gathering)

    def leave(self, module: Module, args: tuple[Tensor, ...], result: Tensor) -> None:
        """Put rows in their places again, after forward."""
        self.close()
        if self.is_first and state.phase != "recompute":
            self.trail.begin()

    def open(self, flats: list[Tensor], gathering: Gathering) -> None:
        """Put whole parameters in the places of rows, until `close()`."""
        for number, (bucket, flat) in enumerate(zip(self.buckets, flats, strict=True)):
            if flat.tape_entry is not None:
                flat.tape_entry.gathering = gathering
            for p, value in zip(bucket, wholes_of(flat, self.shapes[number]), strict=True):
                for table, name in self.places[p]:
                    table[name] = value
        self.outer.append((state.saved_hooks, state.region_contexts))
        state.saved_hooks = remade_or(state.saved_hooks)
        state.region_contexts = (*state.region_contexts, self.region_context)

    def open_again(self) -> None:
        """Open it where a checkpoint runs again. The backward pass after it reads the parameters
        gathered here."""
        gathering = Gathering(self, None)
        gathering.flats = self.gather(self.group_again)
        self.open(gathering.flats, gathering)

    def close(self) -> None:
        """Put rows in their places again."""
        state.saved_hooks, state.region_contexts = self.outer.pop()
        for p, tables in self.places.items():
            for table, name in tables:
                table[name] = p

    @contextmanager
    def region_context(self, function: Callable[..., Any]) -> Iterator[None]:
        """Context of the second run of a checkpointed function that was called while this is open:
        it is open again if the function may use its parameters."""
        if self.outer or not self.is_used_by(function):
            yield
            return
        self.open_again()
        try:
            yield
        finally:
            self.close()

    def is_used_by(self, function: Callable[..., Any]) -> bool:
        """Whether a function may use its parameters: one of a module uses those inside of it, any
        other may use all."""
        function = inspect.unwrap(function)
        module = function if isinstance(function, Module) else getattr(function, "__self__", None)
        if not isinstance(module, Module):
            return True
        tables = {id(m._parameters) for m in module.modules()}
        return any(id(table) in tables for places in self.places.values() for table, _ in places)


def leave_uncaptured(module: Module) -> None:
    """Have captured functions call a module as it is, and give the reason."""
    forward = module.forward

    @functools.wraps(forward)
    def plain(*args, **kwargs):
        return forward(*args, **kwargs)

    why = "the parameters of ZeRO 3 are others in each call"
    plain.__gh_disabled__ = why  # type: ignore[attr-defined]  # read by capture
    module.forward = plain  # type: ignore[method-assign]  # of this module alone


for hook in (Unit.enter, Unit.leave):
    hook.__gh_disabled__ = True  # type: ignore[union-attr]  # read by capture


def remade_or(outer: Any) -> tuple[Callable[..., Any], ...]:
    """Hooks of the tape's saved values: values from gathered parameters are made again, the rest is
    packed as `outer` says."""

    def pack(tensor, entry):
        remade = origin_of(entry)
        if remade is not None or outer is None:
            return remade or tensor
        return outer[0](tensor, entry)

    def unpack(packed):
        if isinstance(packed, Remade):
            return packed.value()
        return packed if outer is None else outer[1](packed)

    return pack, unpack


def origin_of(entry: CallEntry | None) -> Remade | None:
    """Recipe for an entry's result, if gathered parameters alone make it cheaply."""
    calls: list[Any] = []
    while type(entry) is CallEntry:
        if len(entry.parents) != 1 or entry.call.primitive.name not in DERIVED:
            return None
        calls.append((entry.call.primitive, entry.call.attrs))
        entry = entry.parents[0][0]
    if type(entry) is GatherEntry and entry.gathering is not None:
        return Remade(entry.gathering, entry.number, calls[::-1])
    return None


def shard_parameters(
    module: Module,
    plan: dict[Any, Any],
    groups: tuple[Any, ...],
    modules: list[Module],
    replica: Replica,
) -> None:
    """Leave this rank its rows of the parameters in `plan`, and have these modules inside gather
    their own. `groups`: the ranks that share them out, and those beside, over which gradients are
    means too."""
    owners = owners_of(module, modules, plan)
    trail = module.__dict__["_trail"] = Trail(replica)
    for unit in (module, *modules):
        if places := {p: tables for p, (owner, tables) in owners.items() if owner is unit}:
            Unit(unit, places, trail, groups)
    leave_uncaptured(module)
    with no_grad():
        for p, sharding in plan.items():
            p.rebind(own_rows(p, groups[0]))
            p.sharding = sharding
            add_hook(p, AT_END, trail.finish)


def units_of(module: Module, patterns: Sequence[str] | None) -> list[Module]:
    """The modules that gather their own parameters, beside the whole one."""
    if patterns is not None:
        chosen = [m for p in patterns for m in matching("zero", module, p).values()]
        return list(dict.fromkeys(m for m in chosen if m is not module))
    units: list[Module] = []
    for child in module.children():
        is_list = isinstance(module, Sequential | ModuleList)
        if is_list and not isinstance(child, Sequential | ModuleList):
            units.append(child)
        else:
            units += units_of(child, None)
    return units


def owners_of(
    root: Module, units: list[Module], plan: dict[Any, Any]
) -> dict[Tensor, tuple[Any, ...]]:
    """Unit of each parameter, and the tables and names that have it; one that is part of several
    units belongs to the whole."""
    owners: dict[Tensor, tuple[Any, ...]] = {}

    def visit(module: Module, unit: Module) -> None:
        unit = module if module in units else unit
        for name, p in module._parameters.items():
            if p is not None and p in plan:
                owner, tables = owners.get(p, (unit, []))
                place = (module._parameters, name)
                if not any(table is place[0] and n == name for table, n in tables):
                    owners[p] = (unit if owner is unit else root, [*tables, place])
        for child in module.children():
            visit(child, unit)

    visit(root, root)
    return owners
