"""Composed functions: pure compositions of cards, whose calls are replayed without their Python.

The primitive calls of a pure function of tensors and static arguments depend on the tensors' specs,
on the arguments and on settings in force, never on contents. After the first call it is replayed:
native/replay.c makes the same primitive calls without running the Python between them."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.spelling import takes_names_of_pytorch

packages: dict[str, set[str]] = {}  # packages around the modules of composed functions, by module


def packages_around(module: str) -> list[str]:
    """The packages in which a module lies, down to its storey: "a.b" and "a.b.c" of "a.b.c.d"."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts))]


def composed(fn: Callable[..., Any] | None = None, *, scalars: bool = False) -> Any:
    """A decorator for functions of tensors that only call cards and other pure functions: nothing
    is written to, no value read, no random number drawn; calls with other arguments (arrays,
    lists, tensors of a transform) run as they are. `scalars`: a Python float among the arguments
    becomes a scalar operand as it is, so that another one needs no new calls. Arguments may have
    the names that PyTorch gives them (`dim` for `axis`). Nodes note the name of the outermost
    one that they were recorded in."""
    if fn is None:
        return functools.partial(composed, scalars=scalars)
    name = sys.intern(fn.__name__)
    packages.setdefault(name, set()).update(packages_around(fn.__module__))
    what = (fn if scalars else takes_names_of_pytorch(fn)), scalars, name

    @functools.wraps(fn)
    def call(*args, **named):
        return hooks.compose(what, args, named)

    return call


def is_public(name: str) -> bool:
    """Whether users call a composed function by this name: its package exports it."""
    return any(hasattr(sys.modules.get(package), name) for package in packages.get(name, ()))


CALL = composed(lambda: None).__code__  # of all composed functions, as stacks have it
packages.clear()
