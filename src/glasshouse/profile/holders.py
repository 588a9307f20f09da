"""Owners of memory blocks: parameters by their path in a model, their gradients, and optimizer
state by its name.

Models and optimizers are found among all objects of the process. A recording looks at their tensors
when it begins and ends, and after passes in which more memory was in use than before. A tensor that
still waits is recorded by the event of its call."""

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.dispatch.value import Value
from glasshouse.graph.node import Node
from glasshouse.memory import Tag

if TYPE_CHECKING:
    from glasshouse.profile.record import RecordedRun


MODEL, OPTIMIZER = "named_parameters", "add_param_group"  # the methods that identify them
FINDS = 4  # looks for which objects are found again: a script makes its model in the recording
LOOKS = 2  # after memory has grown: a captured Program's outputs are bound after watchers saw it
WRAPPED = "_orig_mod."  # in the paths of a model that was compiled
PARAMETER, BUFFER, GRADIENT = "parameter", "buffer", "gradient of"
KINDS = {PARAMETER: "parameters", BUFFER: "buffers", GRADIENT: "gradients"}
OTHERS = "others"
marks: "itertools.count[int]" = itertools.count(
    -2, -1
)  # for calls without an event, which were made before a recording

# Of libraries' tensors, by class: the addresses of a tensor, and its shape and dtype as text.
tensor_kinds: dict[type[Any], Callable[[Any], tuple[list[int], str]]] = {}


class HeldTensor(NamedTuple):
    """A tensor that a model or an optimizer holds: its tag, and its shape and dtype as text."""

    tag: Tag
    spec: str


def kind_of(tag: Tag) -> str:
    """Kind of memory that a tag names: parameters, buffers, gradients, optimizer state, others."""
    is_state = tag.primitive.endswith(" of")
    return KINDS.get(tag.primitive) or ("optimizer state" if is_state else OTHERS)


class Holders:
    """Tensors that models and optimizers held at some moments of a recording."""

    highest: int
    looks: int
    finds: int

    def __init__(self) -> None:
        self.models: list[weakref.ref[Any]] = []
        self.optimizers: list[weakref.ref[Any]] = []
        self.blocks: list[tuple[int, dict[int, HeldTensor]]] = []  # by events until then
        self.calls: dict[int, HeldTensor] = {}  # by the event of a call that waits
        self.places: dict[tuple[int, int], HeldTensor] = {}  # by Program, and place of a call in it
        self.existing: dict[int, HeldTensor] = {}  # of libraries, which nobody is known to hold
        self.highest, self.looks, self.finds = -1, LOOKS, FINDS

    def find(self) -> None:
        """Look for models and optimizers."""
        objects: dict[str, list[Any]] = {MODEL: [], OPTIMIZER: []}
        kinds: dict[type[Any], Any] = {}
        for x in gc.get_objects():
            kind = type(x)
            if kind not in kinds:
                methods = {name for c in kind.__mro__ for name in vars(c)}
                kinds[kind] = next(
                    (matches for name, matches in objects.items() if name in methods), None
                )
            if kinds[kind] is not None:
                kinds[kind].append(x)
        inner = {id(x) for model in objects[MODEL] for x in parts_of(model).values()}
        roots = [x for x in objects[MODEL] if id(x) not in inner]
        roots.sort(key=lambda x: any(c.__name__ == "GraphModule" for c in type(x).__mro__))
        self.models = [weakref.ref(x) for x in roots]
        self.optimizers = [weakref.ref(x) for x in objects[OPTIMIZER]]

    def look_again(self, highest: int, rows: int) -> None:
        """Look at the tensors that are held if memory has grown to `highest` bytes since the last
        look; there are `rows` memory events so far."""
        if highest > self.highest:
            self.highest, self.looks = highest, LOOKS
        if self.looks > 0:
            self.looks -= 1
            self.look(rows)

    def look(self, rows: int) -> None:
        """Record the addresses of all tensors that are held."""
        if self.finds > 0:
            self.finds -= 1
            self.find()
        blocks: dict[int, HeldTensor] = {}
        for tensor, tag in self.held_tensors():
            addresses, spec = place_of(tensor)
            for address in addresses:
                blocks.setdefault(address, HeldTensor(tag, spec))
            if not addresses and isinstance(payload := getattr(tensor, "payload", None), Node):
                if not hasattr(payload, "event"):
                    payload.event = next(marks)
                self.calls.setdefault(payload.event, HeldTensor(tag, spec))
        self.blocks.append((rows, blocks))

    def held_tensors(self) -> Iterator[tuple[Any, Tag]]:
        """Each tensor that is held, and its tag."""
        paths: dict[int, str] = {}
        for model in living(self.models):
            yield from held_by_model(model, paths)
        for optimizer in living(self.optimizers):
            yield from held_by_optimizer(optimizer, paths)

    def place_calls(self, runs: "list[RecordedRun]") -> None:
        """Find the calls that waited in the Programs that computed them."""
        numbers = np.array(sorted(self.calls), np.int64)
        for run in runs:
            for place in np.flatnonzero(np.isin(run.events, numbers)).tolist():
                tensor = self.calls[int(run.events[place])]
                self.places.setdefault((id(run.program), place), tensor)

    def name_block(self, address: int, first: int, last: int, at: int) -> HeldTensor | None:
        """Return the tensor that a block held at the row `at`, if the block lived from the row
        `first` to `last`: the nearest look in its life says it."""
        looks = [x for x in self.blocks if first < x[0] <= last and address in x[1]]
        nearest = min(looks, key=lambda x: abs(x[0] - at), default=None)
        if nearest is not None:
            return nearest[1][address]
        return self.existing.get(address) if first < 0 else None


def living(references: Iterable[weakref.ref[Any]]) -> Iterator[Any]:
    return (x for x in [reference() for reference in references] if x is not None)


def parts_of(model: Any) -> dict[Any, Any]:
    return getattr(model, "__dict__", {}).get("_modules") or {}


def named_tensors(model: Any, method: str) -> list[tuple[str, Any]]:
    """(path, tensor) of a model's parameters or buffers by the method that lists them; a shared
    tensor once, with all its paths: "embed.weight and head.weight"."""
    paths: dict[int, list[str]] = {}
    tensors: dict[int, Any] = {}
    for path, tensor in all_named(getattr(model, method)):
        path = path.replace(WRAPPED, "")
        if path not in paths.setdefault(id(tensor), []):
            paths[id(tensor)].append(path)
        tensors[id(tensor)] = tensor
    return [(joined(paths[key]), tensor) for key, tensor in tensors.items()]


def all_named(list_members: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The members that `list_members` lists, a shared tensor once per path."""
    for options in ({"remove_duplicate": False}, {}):
        try:
            return list(list_members(**options))
        except Exception:  # a class of the user's that has a method of this name
            continue
    return []


def joined(paths: list[str]) -> str:
    """Several paths as text."""
    *others, last = paths
    return f"{', '.join(others)} and {last}" if others else last


def first_path(path: str) -> str:
    """First of the paths that `named_tensors` lists for a tensor."""
    return path.split(", ")[0].split(" and ")[0]


def held_by_model(model: Any, paths: dict[int, str]) -> Iterator[tuple[Any, Tag]]:
    """Parameters with their gradients, and buffers; adds the parameters to `paths`, by their ids,
    where those of other models are."""
    for path, tensor in named_tensors(model, "named_parameters"):
        if paths.setdefault(id(tensor), path) == path:
            yield tensor, Tag(PARAMETER, path)
            yield from gradient_of(tensor, path)
    for path, tensor in named_tensors(model, "named_buffers"):
        yield tensor, Tag(BUFFER, path)


def gradient_of(tensor: Any, path: str) -> Iterator[tuple[Any, Tag]]:
    if tensor.grad is not None:
        yield tensor.grad, Tag(GRADIENT, path, "backward")


def held_by_optimizer(optimizer: Any, paths: dict[int, str]) -> Iterator[tuple[Any, Tag]]:
    """Tensors of an optimizer's state, and parameters that no model has, by their numbers."""
    number = 0
    for group in getattr(optimizer, "param_groups", ()):
        for p in group.get("params", ()):
            path = paths.get(id(p))
            if path is None:
                path = paths[id(p)] = f"{number} of {type(optimizer).__name__}"
                yield p, Tag(PARAMETER, path)
                yield from gradient_of(p, path)
            number += 1
            for name, x in flat(optimizer.state.get(p, {})):
                yield x, Tag(f"{name} of", path, "optimizer")


def flat(state: Any, name: str = "state") -> Iterator[tuple[str, Any]]:
    """(name, tensor) of a state, whose tensors may lie in dicts and lists."""
    if isinstance(state, dict):
        for key, x in state.items():
            yield from flat(x, str(key))
    elif type(state) in (list, tuple):
        for x in state:
            yield from flat(x, name)
    elif isinstance(state, (Value, *tensor_kinds)):
        yield name, state


def place_of(tensor: Any) -> tuple[list[int], str]:
    """The addresses of a tensor's memory, none while it waits, and its shape and dtype as text."""
    if not isinstance(tensor, Value):
        place = next((f for kind, f in tensor_kinds.items() if isinstance(tensor, kind)), None)
        return place(tensor) if place is not None else ([], "")
    payload = tensor.payload
    array = payload.value if isinstance(payload, Node) else payload
    is_array = isinstance(array, np.ndarray)
    address = [array.__array_interface__["data"][0]] if is_array else []
    return address, repr(tensor.spec)
