"""Operators of other libraries, passed to watchers as our calls are.

A storey above watches a library, where it is installed (`base/upper_storeys.py`). A library that is
imported later, by a script that is counted, is watched from then on."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from glasshouse.base.import_watch import when_imported
from glasshouse.base.upper_storeys import LIBRARIES, offered
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.watch import Watcher

GRAPH_CODE = "<eval_with_key>"  # how names of files begin in which torch.fx writes graphs
folders: set[str] = set()  # of libraries that are watched: no frame there is a user's
# Small programs by library, which call their argument before each of their calls; "" is ours.
programs: dict[str, Callable[[Callable[[], None]], None]] = {}


def library_of(call: Call) -> str:
    """Library of a call's operator; "" if it is a primitive of ours."""
    return getattr(call.primitive, "library", "")


class Observation:
    """Passes operators of libraries to a watcher, until `end`. `model` is the root of names of
    modules, where it is a library's model."""

    def __init__(self, watcher: Watcher, model: Any = None) -> None:
        self.watcher = watcher
        self.model = model
        self.ends: list[Callable[[], None]] = []
        for library in LIBRARIES:
            self.ends.append(when_imported(library, self.begin))

    def begin(self, library: ModuleType) -> None:
        """Watch a library that has been loaded."""
        observe = offered(library.__name__, "observe")
        self.ends.append(observe(self.watcher, self.model))

    def end(self) -> None:
        """Stop watching."""
        while self.ends:
            self.ends.pop()()
