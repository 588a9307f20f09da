"""Packages that are called: `gh.fit(model, …)` calls the function `fit` of `glasshouse.fit`, and
`import glasshouse.fit as f; f.Checkpoint(…)` is the package.

Python finds `glasshouse.fit` in both; a function of that name in `glasshouse` would hide the
package."""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

from glasshouse.base.missing_names import AbsentNameError

__all__ = ["make_callable"]


class CallableModule(ModuleType):
    """A package that is also its function or class of the same name."""

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        return self.__wrapped__(*args, **named)

    def __getattr__(self, name: str) -> Any:
        """Look up an attribute that the package lacks on its function or class."""
        try:
            return getattr(self.__dict__["__wrapped__"], name)
        except AttributeError:
            owner = f"module {self.__name__!r}"
            raise AbsentNameError(owner, name, lambda: dir(self)) from None

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.__wrapped__)

    def __mro_entries__(self, _bases: Any) -> tuple[Any, ...]:
        return (self.__wrapped__,)


def make_callable(name: str, called: Any) -> None:
    """Make a package act as this function or class too: in calls, as a base class, and for
    attributes that it lacks."""
    module = sys.modules[name]
    module.__class__ = CallableModule
    vars(module).update(__wrapped__=called, __signature__=signature(called))
