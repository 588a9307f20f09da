"""Parameters that ranks share out (ZeRO 3): a unit of a model gathers its own when it is called.

What the tape saves of a gathered weight is how to make it again from the rows of all ranks, so a
whole weight lives while its unit computes, forward and backward, and no longer."""

import functools
import sys
import weakref

from glasshouse.autograd import no_grad
from glasshouse.autograd.tape import CallEntry
from glasshouse.base.errors import OptionError
from glasshouse.dispatch import bind, state
from glasshouse.distributed.patterns import matching
from glasshouse.distributed.reducers import buckets_of
from glasshouse.distributed.rows import gathered, own_rows, wholes_of
from glasshouse.nn.containers import ModuleList, Sequential
from glasshouse.nn.module import Module
from glasshouse.ops.collective import ProcessGroup
from glasshouse.tensor import Tensor

DERIVED = {"cast", "expand", "permute", "reshape", "slice"}  # cheap to make again


class Remade:
    """A saved value that is made again: the gathering that it comes from, which of its tensors, and
    the calls since."""

    __slots__ = ("gathering", "number", "calls")

    def __init__(self, gathering: "Gathering", number: int, calls: list):
        self.gathering, self.number, self.calls = gathering, number, calls
        gathering.uses += 1

    def value(self) -> Tensor:
        x = self.gathering.once_more()[self.number]
        for primitive, attrs in self.calls:
            x = bind(primitive, (x,), attrs)
        return x


class Gathering:
    """The whole parameters of one call of a unit. In the backward pass they are gathered once more,
    with those of the unit that is next then, for as long as saved values need them."""

    def __init__(self, unit: "Unit", before: "Gathering | None"):
        self.unit, self.before = unit, before
        self.uses = 0
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


class Trail:
    """In which order the units of a model are called."""

    trains_along = True

    def __init__(self):
        self.units: list[Unit] = []
        self.begin()

    def begin(self) -> None:
        """A forward pass begins or has ended."""
        self.last: Unit | None = None
        self.gathering: Gathering | None = None
        for unit in self.units:
            unit.ready = None


class Unit:
    """A module with the parameters that it gathers together: those of its inside that belong to no
    unit within it. `places` are, for each of them, the tables and names where modules keep it.
    Large ones are gathered to where they stay, the others of a dtype as one tensor."""

    trains_along = True

    def __init__(self, module: Module, places: dict[Tensor, list], trail: Trail, group):
        self.places, self.trail, self.group = places, trail, group
        self.group_again = ProcessGroup(group.ranks, f"{group.name} again")
        self.buckets = buckets_of(list(places), sys.maxsize)
        self.shapes = [[p.shape for p in bucket] for bucket in self.buckets]
        self.is_first = not trail.units
        self.following: Unit | None = None
        self.ready: list[Tensor] | None = None  # gathered before it is called
        self.outer_hooks: list = []
        trail.units.append(self)
        module.register_forward_pre_hook(self.enter, prepend=True)
        module.register_forward_hook(self.leave, always_call=True)

    def __reduce__(self):
        raise OptionError(
            "zero",
            "no copies of a model whose parameters ranks share out",
            "one",
            "Copy it before gh.distributed.zero, or save its state.",
        )

    def gather(self, group: ProcessGroup) -> list[Tensor]:
        """All ranks' rows of its parameters, by bucket."""
        return [gathered(*of, group) for of in zip(self.buckets, self.shapes, strict=True)]

    def taken(self) -> list[Tensor]:
        """What was gathered before, or is now."""
        flats, self.ready = self.ready, None
        if flats is None or (state.records and flats[0].tape_entry is None):
            flats = self.gather(self.group_again if state.phase == "recompute" else self.group)
        return flats

    def enter(self, module: Module, args) -> None:
        """Before forward: whole parameters take the places of rows."""
        trail = self.trail
        if self.is_first:
            trail.begin()
        flats = self.taken()
        if trail.last is not None:
            trail.last.following = self
        if self.following is not None and state.phase != "recompute":
            self.following.ready = self.following.taken()
        gathering = Gathering(self, trail.gathering)
        trail.last, trail.gathering = self, gathering
        for number, (bucket, flat) in enumerate(zip(self.buckets, flats, strict=True)):
            if flat.tape_entry is not None:
                gatherings[flat.tape_entry] = gathering, number
            for p, value in zip(bucket, wholes_of(flat, self.shapes[number]), strict=True):
                for table, name in self.places[p]:
                    table[name] = value
        self.outer_hooks.append(state.saved_hooks)
        state.saved_hooks = remade_or(state.saved_hooks)

    def leave(self, module: Module, args, result) -> None:
        """After forward: rows take their places again."""
        state.saved_hooks = self.outer_hooks.pop()
        for p, tables in self.places.items():
            for table, name in tables:
                table[name] = p
        if self.is_first:
            self.trail.begin()


def leave_uncaptured(module: Module) -> None:
    """Have captured functions call a module as it is: its parameters are others in each call."""
    forward = module.forward

    @functools.wraps(forward)
    def plain(*args, **kwargs):
        return forward(*args, **kwargs)

    plain.__gh_disabled__ = True
    module.forward = plain


for hook in (Unit.enter, Unit.leave):
    hook.__gh_disabled__ = True
# By what the tape has of a tensor: the gathering, and which of its tensors.
gatherings: weakref.WeakKeyDictionary[CallEntry, tuple[Gathering, int]]
gatherings = weakref.WeakKeyDictionary()


def remade_or(outer):
    """Hooks of what the tape saves: what comes from gathered parameters is made again, the rest is
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


def origin_of(entry) -> Remade | None:
    """How to make again what an entry gave, if it is cheaply made of gathered parameters alone."""
    calls: list = []
    while type(entry) is CallEntry:
        gathering = gatherings.get(entry)
        if gathering is not None:
            return Remade(*gathering, calls[::-1])
        if len(entry.parents) != 1 or entry.call.primitive.name not in DERIVED:
            return None
        calls.append((entry.call.primitive, entry.call.attrs))
        entry = entry.parents[0][0]
    return None


def shard_parameters(
    module: Module, plan: dict, group: ProcessGroup, patterns: list[str] | None
) -> None:
    """Leave this rank its rows of the parameters in `plan`, and have units gather them."""
    modules = units_of(module, patterns)
    owners = owners_of(module, modules, plan)
    trail = module.__dict__["_trail"] = Trail()
    for unit in (module, *modules):
        if places := {p: tables for p, (owner, tables) in owners.items() if owner is unit}:
            Unit(unit, places, trail, group)
    leave_uncaptured(module)
    with no_grad():
        for p, sharding in plan.items():
            p.rebind(own_rows(p, group))
            p.sharding = sharding
            p.register_hook(lambda g: g * (1 / group.size))


def units_of(module: Module, patterns: list[str] | None) -> list[Module]:
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


def owners_of(root: Module, units: list[Module], plan: dict) -> dict[Tensor, tuple]:
    """For each parameter the unit that it belongs to, and the tables and names that have it; one
    that is part of several units belongs to the whole."""
    owners: dict[Tensor, tuple] = {}

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
