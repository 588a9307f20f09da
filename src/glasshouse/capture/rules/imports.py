"""Import statements: a module that is loaded already is read from sys.modules."""

import builtins
import sys
import types
from types import ModuleType
from typing import Any

from glasshouse.capture.values.plain import is_instance as isinstance


def import_name(names: Any, name: Any, fromlist: Any, level: Any) -> Any:
    """Run an import statement as in a module with these names."""
    return builtins.__import__(name, names, None, fromlist, level)


def loaded_module(names: dict[Any, Any], name: str, is_from: bool, level: int) -> str | None:
    """The name in sys.modules of the module of an import statement, if it is loaded already; else
    None. `level` is the number of dots of a relative import."""
    package: Any = names.get("__package__")
    if level and not (is_from and isinstance(package, str)):
        return None
    if level:
        base = package.rsplit(".", level - 1)[0]
        name = f"{base}.{name}" if name else base
    if name not in sys.modules:
        return None
    return name if is_from else name.partition(".")[0]


def has_in_its_dict(module: ModuleType, name: str) -> bool:
    """Whether a module has a name that is read without code of its class."""
    if not isinstance(module, types.ModuleType):
        return False
    plain = type(module).__getattribute__ is types.ModuleType.__getattribute__
    return plain and name in module.__dict__
