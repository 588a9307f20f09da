"""Other libraries' operators, told to watchers as calls of ours are.

A storey above looks on at a library, where that is there (`base/upper_storeys.py`). A library that
is imported later, by a script that is counted, is seen from then on."""

from collections.abc import Callable

from glasshouse.base.import_watch import when_imported
from glasshouse.base.upper_storeys import LIBRARIES, offered
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.watch import Watcher

GRAPH_CODE = "<eval_with_key>"  # how names of files begin that torch.fx writes graphs as
folders: set[str] = set()  # of libraries that are looked at: frames there are no user's
programs: dict[str, Callable[[], None]] = {}  # small ones, by library; "" is ours


def library_of(call: Call) -> str:
    """Whose operator a call is of; "" if it is a primitive of ours."""
    return getattr(call.primitive, "library", "")


class Observation:
    """Has a watcher told of the operators of libraries, until `end`. `model` is what names of
    modules begin at, where it is one of a library's."""

    def __init__(self, watcher: Watcher, model=None):
        self.watcher, self.model = watcher, model
        self.ends: list[Callable[[], None]] = []
        for library in LIBRARIES:
            self.ends.append(when_imported(library, self.begin))

    def begin(self, library) -> None:
        """The library is there."""
        observe = offered(library.__name__, "observe")
        self.ends.append(observe(self.watcher, self.model))

    def end(self) -> None:
        """Look no longer."""
        while self.ends:
            self.ends.pop()()
