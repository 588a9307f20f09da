"""Errors for names that are not there, which suggest the nearest one."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from glasshouse.base.errors import suggest_nearest

__all__ = ["AbsentNameError", "suggest_names"]


class AbsentNameError(AttributeError):
    """An attribute that is not there. The nearest of the names is looked for when it is shown, so
    that asking with `hasattr` costs nothing.

    Example:
        >>> str(AbsentNameError("module 'm'", "relo", lambda: ["relu", "tanh"]))
        "module 'm' has no attribute 'relo'. Did you mean 'relu'?"
    """

    def __init__(self, owner: str, missing: str, names: Callable[[], Iterable[str]]) -> None:
        super().__init__(owner, missing, name=missing, obj=None)
        self.owner = owner
        self.missing = missing
        self.names = names

    def __str__(self) -> str:
        text = f"{self.owner} has no attribute {self.missing!r}"
        if self.missing.startswith("_"):  # protocols ask for such names: they are not misspelled
            return text
        public = [name for name in self.names() if not name.startswith("_")]
        return f"{text}. {near}" if (near := suggest_nearest(self.missing, public)) else text

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


def suggest_names(*modules: str) -> None:
    """Have modules suggest the nearest name to one that they do not have."""
    for name in modules:
        module = sys.modules[name]
        if "__getattr__" not in vars(module):
            module.__dict__["__getattr__"] = suggestion_of(module, name)


def suggestion_of(module: Any, module_name: str) -> Callable[[str], NoReturn]:
    def missing(name: str) -> NoReturn:
        raise AbsentNameError(f"module {module_name!r}", name, lambda: dir(module))

    return missing
