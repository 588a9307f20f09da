"""The front ends of other libraries, each loaded when its library is in the process."""

import sys
from collections.abc import Callable
from typing import Any

from glasshouse.base.upper_storeys import LIBRARIES, load, offered
from glasshouse.capture.trace.front import FrontEnd
from glasshouse.capture.values.plain import TRUSTED

places: dict[str, str] = {}  # of users' front ends, by library: "module:class"
loaded: dict[str, FrontEnd] = {}


def register_front_end(library: str, place: str) -> None:
    """Register a front end that captures calls on tensors of a library, once that is imported.
    `place` is "module:class" of the front end."""
    places[library] = place
    loaded.pop(library, None)


def known_fronts() -> list[FrontEnd]:
    """The front ends of the libraries that are in the process."""
    for library in (LIBRARIES.keys() | places.keys()) - loaded.keys():
        if library in sys.modules:
            TRUSTED.append(f"{library}.")
            loaded[library] = front_end_of(library)()
    return list(loaded.values())


def front_end_of(library: str) -> type[FrontEnd]:
    """The class of a library's front end."""
    return load(places[library]) if library in places else offered(library, "front")


def is_foreign_module(value: Any) -> bool:
    """Whether a value is a module of another library."""
    return any(front.is_module(value) for front in known_fronts())


def foreign_compiler(name: str) -> Callable[..., Any] | None:
    """The compiler that another library has under a name, or None."""
    compilers = (front.named_compiler(name) for front in known_fronts())
    return next((x for x in compilers if x is not None), None)


def foreign_compiler_names() -> list[str]:
    """The names of the compilers that other libraries have."""
    return [name for front in known_fronts() for name in front.compiler_names()]


def front_for(fn: Callable[..., Any], slots: tuple[Any, ...], usual: FrontEnd) -> FrontEnd:
    """The front end for a call of fn: the first that claims it, else the usual one."""
    if not usual.yields:
        return usual
    return next((front for front in known_fronts() if front.claims(fn, slots)), usual)
