"""Lookup of PyTorch's private names: once, at import, so that calls cost nothing extra."""

import contextlib
import importlib.util
import operator
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags


class MissingNameError(BackendError, AttributeError):
    """A name of PyTorch's that a feature needs is not in this version."""


class PrivateName(NamedTuple):
    """A private name of PyTorch: its path, its use, the oldest version from 2.6 on that has it, and
    whether this version has it."""

    path: str
    use: str
    since: str
    is_found: bool


NAMES: dict[str, PrivateName] = {}  # all that were looked up, by path


class MissingKind(type):
    """The class of `missing`'s classes: using one raises an error that names what is missing."""

    private_name: PrivateName
    __iter__: Callable[..., Any]
    __getitem__: Callable[..., Any]
    __contains__: Callable[..., Any]

    def fail(cls, *_args: Any, **_named: Any) -> Any:
        path, use = cls.private_name.path.replace(":", "."), cls.private_name.use
        got = f"PyTorch {torch.__version__}, which has no such name"
        fix = "Use an earlier version of PyTorch, or report this."
        raise MissingNameError("torch", f"{path}, to {use}", got, fix)

    __call__ = __iter__ = __getitem__ = __contains__ = fail

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # Python reads these of any object
            raise AttributeError(name)
        return cls.fail()


def missing(name: PrivateName) -> Any:
    """A placeholder class for a missing name. No object is an instance of it, no table has it as a
    key, and calling it raises MissingNameError."""
    return MissingKind(name.path.rpartition(".")[2], (Exception,), {"private_name": name})


def are_found(*values: Any) -> bool:
    """Whether none of these values is a placeholder for a missing name."""
    owners = (value.owner if isinstance(value, Slot) else value for value in values)
    return not any(isinstance(owner, MissingKind) for owner in owners)


def without_missing(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values that are not placeholders for missing names."""
    return tuple(value for value in values if are_found(value))


def find_module(path: str) -> None:
    """Look for a module, without importing it.

    Raises: ImportError where it is gone
    """
    if path not in sys.modules and importlib.util.find_spec(path) is None:
        raise ImportError(path)


def is_there(
    path: str, since: str, use: str, find: Callable[..., Any] = pkgutil.resolve_name
) -> bool:
    """Whether this PyTorch has a name; records it in NAMES. `find(path)` raises ImportError or
    AttributeError if the name is gone."""
    try:
        find(path)
        is_found = True
    except (ImportError, AttributeError):
        is_found = False
        if flags.debug:
            print(f"[gh] PyTorch {torch.__version__} has no {path.replace(':', '.')}, to {use}")
    NAMES[path] = PrivateName(path, use, since, is_found)
    return is_found


def has_attribute(path: str, since: str, use: str, sample: Any = None) -> bool:
    """Like `is_there`, for an attribute. `sample` is an instance, for attributes of instances."""
    if sample is None:
        return is_there(path, since, use)
    return is_there(path, since, use, lambda path: getattr(sample, path.rpartition(".")[2]))


def is_module(path: str, since: str, use: str) -> bool:
    """Like `is_there`, for a module, which is not imported."""
    return is_there(path, since, use, find_module)


def private(path: str, since: str, use: str, without: Any = MissingKind) -> Any:
    """The object at a private path such as "torch._ops:OpOverload". If it is gone: `without`, or a
    placeholder that raises when it is used."""
    if is_there(path, since, use):
        return pkgutil.resolve_name(path)
    return missing(NAMES[path]) if without is MissingKind else without


def attribute(
    path: str, since: str, use: str, sample: Any = None, without: Any = MissingKind
) -> Callable[..., Any]:
    """A function of an object that reads its private attribute."""
    if has_attribute(path, since, use, sample):
        return operator.attrgetter(path.rpartition(".")[2])
    return missing(NAMES[path]) if without is MissingKind else without


class Slot(NamedTuple):
    """A place that holds a private object: owner, attribute name, and the object at import. For a
    missing name the owner is a placeholder, so replacing the object has no effect."""

    owner: Any
    name: str
    original: Any

    @property
    def value(self) -> int:
        """The current object."""
        return getattr(self.owner, self.name)

    def put(self, value: Any) -> Callable[[], None]:
        """Replace the object; returns a function that restores the previous one."""
        owner, name = self.owner, self.name
        is_own, before = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, value)
        return lambda: setattr(owner, name, before) if is_own else delattr(owner, name)

    @contextlib.contextmanager
    def holding(self, value: Any) -> Iterator[None]:
        """Context manager: replace the object inside."""
        put_back = self.put(value)
        try:
            yield
        finally:
            put_back()


def slot(path: str, since: str, use: str, sample: torch.nn.Module | None = None) -> Slot:
    """The place of a private name that is read again and again, guarded or replaced."""
    owner, _, name = path.rpartition(":" if "." not in path.partition(":")[2] else ".")
    if not has_attribute(path, since, use, sample):
        gone = missing(NAMES[path])
        return Slot(gone, name, gone)
    found_in = pkgutil.resolve_name(owner)
    return Slot(found_in, name, getattr(found_in if sample is None else sample, name))


def settings(
    config: str, since: str, use: str, values: dict[Any, Any], *, is_needed: bool = False
) -> Callable[..., contextlib.AbstractContextManager]:
    """A function that makes a context in which a private module of settings has these values, or
    others of the same names. If some settings are missing, the context sets nothing, or raises if
    they are needed."""
    paths = [f"{config}:{name}" for name in values]
    gone = [path for path in paths if not is_there(path, since, use)]
    if gone and is_needed:
        return missing(NAMES[gone[0]])
    if gone:
        return lambda **_: contextlib.nullcontext()
    return lambda **others: pkgutil.resolve_name(config).patch(**(values | others))
