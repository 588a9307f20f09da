"""Tensors without storage, and models that consist of them for a while."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from glasshouse.base import DType, DTypeError, Spec, as_dtype, check_shape, having, type_name
from glasshouse.dispatch import Value, box, state
from glasshouse.dispatch import backend as backends
from glasshouse.ir.node import all_of, map_nodes, parts_of, with_parts
from glasshouse.tensor import Tensor, random

CONTAINERS = (dict, OrderedDict, list, set, deque)  # whose contents an analysis leaves alone
HELD = (
    "payload",
    "backend",
    "spec",
    "tape_entry",
    "slot",
    "grad",
)  # fields of a tensor, saved before it became meta


def meta_backend() -> Any:
    """A new backend that records and plans, and computes nothing."""
    return type(backends.load("meta"))()


def meta() -> having:
    """Context: tensors that this thread makes have a shape and a dtype, no storage, and no value.

    A program that needs a value (`.item()`, `bool()`) raises BackendError with its line.


    Example:
        >>> import glasshouse as gh
        >>> with meta():
        ...     y = gh.ones((1_000_000, 1_000_000)) @ gh.ones((1_000_000, 8))
        >>> y.shape
        (1000000, 8)
    """
    return having(state, backend=meta_backend())


def is_pair(x: Any) -> bool:
    """Whether it is (shape, dtype)."""
    named = isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], (str, DType, type))
    return named and isinstance(x[0], (tuple, list)) and not any(map(parts_of, x[0]))


def is_spec(x: Any) -> bool:
    """Whether it has one tensor's shape and dtype."""
    return isinstance(x, (Value, Spec)) or hasattr(x, "shape") and hasattr(x, "dtype") or is_pair(x)


def spec_of(where: str, x: Any) -> Spec:
    """The spec of a tensor, a Spec, or a pair (shape, dtype).

    Raises: DTypeError for all else
    """
    if isinstance(x, (Value, Spec)):
        return x.spec if isinstance(x, Value) else x
    if is_spec(x):
        shape, dtype = x if is_pair(x) else (x.shape, x.dtype)
        return Spec(check_shape(where, tuple(shape)), as_dtype(dtype))
    expected = "tensors, or pairs of shape and dtype (or lists, tuples, dicts, dataclasses of them)"
    raise DTypeError(where, expected, type_name(x), 'Write e.g. ((8, 3, 224, 224), "float32").')


def specs_in(where: str, x: Any) -> Any:
    """`x` with the spec of each tensor or pair in it, inside containers.

    Raises: DTypeError
    """

    def of(part):
        return spec_of(where, part) if is_spec(part) else with_parts(part, of)

    specs = of(x)
    return specs if all_of(Spec, specs) else spec_of(where, x)


def specs_of(inputs: Any) -> list[Any]:
    """The specs of a step's inputs; one tensor or dict is the model's input alone."""
    alone = is_spec(inputs) or not isinstance(inputs, (tuple, list))
    return [specs_in("step", x) for x in ([inputs] if alone else inputs)]


def placed(spec: Spec, backend: Any, owned: bool = False) -> Tensor:
    """A tensor of the meta backend that counts as computed."""
    return box(backend.leaf(spec, owned), spec, backend)


def is_owned(tensor: Value) -> bool:
    """Whether a tensor's memory is, or will be, the manager's."""
    data = tensor.payload
    return getattr(data, "value", None) is None or getattr(data, "owned", True)


def address_of(tensor: Tensor | None) -> int | None:
    """Address of a meta tensor; None if there is none, or its memory is NumPy's."""
    buffer = getattr(getattr(getattr(tensor, "payload", None), "value", None), "buffer", None)
    return None if buffer is None else buffer.address


def contents_of(containers: list[Any]) -> list[tuple[Any, Any]]:
    """Containers within these, each with a copy of its contents. Attributes of objects that
    `trains_along`, as reducers of gradients do, count as contents."""
    contents: dict[int, tuple[Any, Any]] = {}
    while containers:
        x = containers.pop()
        x = vars(x) if getattr(type(x), "trains_along", False) else x
        if id(x) not in contents and type(x) in (*CONTAINERS, tuple):
            contents[id(x)] = x, copy(x)
            containers += x.values() if isinstance(x, dict) else x
    return list(contents.values())


@contextmanager
def without_storage(model: Any, optimizer: Any, backend: Any) -> Iterator[None]:
    """Inside, the tensors of model and optimizer are meta tensors, but tensors that are attributes
    keep their values; at the end all is as before, the seed too."""
    modules = list(model.modules()) if hasattr(model, "modules") else []
    members = {t for m in modules for t in (*m._parameters.values(), *m._buffers.values())} - {None}
    contents = contents_of([vars(m) for m in modules])
    parts = (x.values() if isinstance(x, dict) else x for x, _ in contents)
    tensors = members | {
        t for values in parts for t in values if isinstance(t, Tensor) and not t.mode
    }
    saved_fields = {t: [getattr(t, name) for name in HELD] for t in tensors}
    generator = random.default_generator()
    seed = generator.state()
    entries = getattr(optimizer, "state", {})
    saved_state = {p: dict(entry) for p, entry in entries.items()}
    groups = [dict(group) for group in getattr(optimizer, "param_groups", ())]
    room = []  # for attributes
    try:
        for t in saved_fields:
            if t in members or t.backend.name == "meta":
                t.payload, t.backend = backend.leaf(t.spec, is_owned(t)), backend
            elif is_owned(t):
                room.append(backend.leaf(t.spec))
            if t.grad is not None:
                t.grad = placed(t.grad.spec, backend, owned=True)
        for p, entry in saved_state.items():
            entries[p] = map_nodes(entry, lambda x: placed(x.spec, backend, is_owned(x)), Value)
        yield
    finally:
        for x, before in contents:
            if not isinstance(x, tuple):
                x.clear()
                (x.extend if isinstance(x, (list, deque)) else x.update)(before)
        for t, values in saved_fields.items():
            for name, part in zip(HELD, values, strict=True):
                setattr(t, name, part)
        generator.set_state(seed)
        if entries is not None:
            entries.clear()
            entries.update(saved_state)
        for group, before in zip(getattr(optimizer, "param_groups", ()), groups, strict=True):
            group.update(before)
