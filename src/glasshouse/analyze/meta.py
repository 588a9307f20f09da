"""Tensors without storage, and models that are for a while made of them."""

from contextlib import contextmanager

from glasshouse.base.dtype import as_dtype
from glasshouse.base.errors import DTypeError, type_name
from glasshouse.base.shape import Spec, check_shape
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.bind import box
from glasshouse.dispatch.value import Value
from glasshouse.tensor import random

HELD = ("data", "backend", "spec", "node", "slot", "grad")  # by a tensor, before it became meta


def meta_backend():
    """A new backend that records and plans, and computes nothing."""
    return type(backends.load("meta"))()


def meta() -> backends.use:
    """Context: tensors made inside have shape and dtype and no storage; nothing is computed.

    A program that needs a value (`.item()`, `bool()`) raises BackendError with its line.

    Example: >>> import glasshouse as gh
             >>> with meta():
             ...     y = gh.ones((1_000_000, 1_000_000)) @ gh.ones((1_000_000, 8))
             >>> y.shape
             (1000000, 8)"""
    return backends.use(meta_backend())


def spec_of(where: str, x) -> Spec:
    """The spec of a tensor, a Spec, or a pair (shape, dtype). Raises: DTypeError for all else"""
    if isinstance(x, Value):
        return x.spec
    if isinstance(x, Spec):
        return x
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return Spec(tuple(x.shape), as_dtype(x.dtype))
    if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], (tuple, list)):
        return Spec(check_shape(where, x[0]), as_dtype(x[1]))
    raise DTypeError(where, "tensors, or pairs of shape and dtype", type_name(x),
                     'Write e.g. ((8, 3, 224, 224), "float32").')  # fmt: skip


def placed(spec: Spec, backend, owned: bool = False) -> Value:
    """A tensor of the meta backend that counts as computed."""
    return box(backend.leaf(spec, owned), spec, backend)


def is_owned(tensor: Value) -> bool:
    """Whether a tensor's memory is, or will be, the manager's."""
    data = tensor.data
    return getattr(data, "value", None) is None or getattr(data, "owned", True)


@contextmanager
def without_storage(model, optimizer, backend):
    """Inside, what model and optimizer hold is meta tensors; then as it was, the seed too."""
    modules = list(model.modules()) if hasattr(model, "modules") else []
    members = [(m, dict(m._parameters), dict(m._buffers)) for m in modules]
    tensors = [t for _, *parts in members for part in parts for t in part.values() if t is not None]
    held = {t: [getattr(t, name) for name in HELD] for t in tensors}
    generator = random.default_generator()
    seed = generator.state()
    state = getattr(optimizer, "state", None)
    kept = {p: dict(entry) for p, entry in state.items()} if state is not None else {}
    groups = [dict(group) for group in getattr(optimizer, "param_groups", ())]
    try:
        for t in held:
            t.data, t.backend = backend.leaf(t.spec, is_owned(t)), backend
            if t.grad is not None:
                t.grad = placed(t.grad.spec, backend, owned=True)
        for p, entry in kept.items():
            state[p] = {
                name: placed(x.spec, backend, is_owned(x)) if isinstance(x, Value) else x
                for name, x in entry.items()
            }
        yield
    finally:
        for module, parameters, buffers in members:
            module._parameters.update(parameters)
            module._buffers.update(buffers)
        for t, parts in held.items():
            for name, part in zip(HELD, parts, strict=True):
                setattr(t, name, part)
        generator.set_state(seed)
        if state is not None:
            state.clear()
            state.update(kept)
        for group, before in zip(getattr(optimizer, "param_groups", ()), groups, strict=True):
            group.update(before)
