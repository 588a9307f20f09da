"""Notice when a module is imported, without importing it."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


class ImportWatch(importlib.abc.MetaPathFinder):
    """Finds one module as others do, and calls back when it has run."""

    def __init__(self, name: str, tell: Callable[..., Any]) -> None:
        self.name = name
        self.tell = tell

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec of the one module; None for all others."""
        if name != self.name:
            return None
        self.end()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_tell(module):
                run(module)
                self.tell(module)

            spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec

    def end(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def when_imported(name: str, tell: Callable[..., Any]) -> Callable[[], None]:
    """Have `tell(module)` called as soon as a module has been imported: now, where it is there.
    Returns a function that undoes this."""
    if name in sys.modules:
        tell(sys.modules[name])
        return lambda: None
    watch = ImportWatch(name, tell)
    sys.meta_path.insert(0, watch)
    return watch.end
