"""Other libraries' operators, told to watchers as calls of ours are.

A storey above looks on at a library. Its module is imported by name, and only where the library is
there: whoever does not use PyTorch loads nothing of it. A library that is imported later, by a
script that is counted, is seen from then on."""

import importlib
from collections.abc import Callable

from glasshouse.base.import_watch import when_imported
from glasshouse.dispatch.watch import Watcher

# The module that looks on, by library: its `observe(watcher, model)` gives a function that ends it.
OBSERVERS = {"torch": "glasshouse.torch.observe"}

folders: set[str] = set()  # of libraries that are looked at: frames there are no user's


class Observation:
    """Has a watcher told of the operators of libraries, until `end`. `model` is what names of
    modules begin at, where it is one of a library's."""

    def __init__(self, watcher: Watcher, model=None):
        self.watcher, self.model = watcher, model
        self.ends: list[Callable[[], None]] = []
        for library in OBSERVERS:
            self.ends.append(when_imported(library, self.begin))

    def begin(self, library) -> None:
        """The library is there."""
        observe = importlib.import_module(OBSERVERS[library.__name__]).observe
        self.ends.append(observe(self.watcher, self.model))

    def end(self) -> None:
        """Look no longer."""
        while self.ends:
            self.ends.pop()()
