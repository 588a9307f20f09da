"""Times at which the user's Python functions run, whether or not they call an operator.

The interpreter reports each call and return, by `sys.setprofile`, to native/functions.c, which
records them. Python's own library, installed packages and this one are left out: their time counts
for the user's function that called them. Threads from before a recording are not seen."""

import functools
import sys
import sysconfig
import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.base.errors import PACKAGE
from glasshouse.compile.building import toolchain
from glasshouse.dispatch.bind import state
from glasshouse.profile.libraries import GRAPH_CODE, folders

if TYPE_CHECKING:
    from glasshouse.profile.record import Threads


FUNCTION = np.dtype([("begin", "i8"), ("end", "i8"), ("what", "i8")])
TIMED_CALL = np.dtype([*FUNCTION.descr, ("thread", "i8")])
# Python's own library and installed packages.
FOLDERS = ("stdlib", "platstdlib", "purelib", "platlib")
INSTALLED = tuple({sysconfig.get_path(name) for name in FOLDERS})
WRITTEN_BY_CODE = ("<frozen ", "<string>", GRAPH_CODE)  # as methods of named tuples are


class SlowFunctions:
    """Slow clear twin of native/functions.c."""

    def __init__(self, number_of: Any, room: int) -> None:
        self.number_of = number_of
        self.room = room
        self.active: bool = False
        self.events: list[tuple[int, int, int]] = []
        self.open: list[tuple[Any, ...]] = []

    def begin(self) -> None:
        """Record this thread's functions from now on."""
        self.active = True
        sys.setprofile(self)

    def __call__(self, frame: Any, event: Any, argument: Any) -> None:
        if not self.active:
            sys.setprofile(None)
        elif event == "call":
            what = self.number_of(frame.f_code)
            if what >= 0:
                self.open.append((frame, perf_counter_ns(), what))
        elif event == "return" and any(entry[0] is frame for entry in self.open):
            while self.write(self.open.pop()) is not frame:
                pass

    def write(self, entry: tuple[Any, ...]) -> Any:
        frame, begin_ns, what = entry
        if len(self.events) < self.room:
            self.events.append((begin_ns, perf_counter_ns(), what))
        return frame

    def end(self) -> bytes:
        """Return the events as bytes; functions that still run end now."""
        self.active = False
        while self.open:
            self.write(self.open.pop())
        return np.array(self.events, FUNCTION).tobytes()


@functools.cache
def kind_of_functions() -> type[Any]:
    """Return the class that notes a thread's functions: in C where that can be compiled."""
    try:
        return toolchain.extension(toolchain.NATIVE / "functions.c").Functions
    except toolchain.CompileError:
        return SlowFunctions


class TimedFunctions:
    """`events` has the calls of functions, `names` (file, line, name) of each number in them."""

    def __init__(self, events: np.ndarray, names: list[list[Any]]) -> None:
        self.events: np.ndarray = events
        self.names = names


class FunctionWatch(TimedFunctions):
    """Records the calls of the user's functions in this thread and in those that begin from now on;
    `events` has them once it has ended, with the numbers of threads in `threads`. `room` bounds the
    calls of each thread."""

    def __init__(self, room: int, threads: "Threads") -> None:
        super().__init__(np.zeros(0, TIMED_CALL), [])
        self.room = room
        self.threads = threads
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []  # code objects: a live one keeps its id
        self.watched: list[tuple[int, Any]] = []
        self.is_there: bool = False

    def begin(self) -> "FunctionWatch":
        """Begin, unless somebody else profiles."""
        self.is_there = sys.getprofile() is None
        if self.is_there:
            self.before: Any = threading.getprofile()
            threading.setprofile(self.begin_thread)
            self.begin_thread()
        return self

    def begin_thread(self, *_: Any) -> None:
        """Record a thread that begins, or the thread that records."""
        functions = kind_of_functions()(self.number_of, self.room)
        self.watched.append((self.threads[state.thread], functions))
        functions.begin()

    def end(self) -> None:
        """Stop recording."""
        if not self.is_there:
            return
        self.is_there = False
        threading.setprofile(self.before)
        if isinstance(sys.getprofile(), kind_of_functions()):
            sys.setprofile(None)
        parts = [np.frombuffer(functions.end(), FUNCTION) for _, functions in self.watched]
        self.events: np.ndarray = np.zeros(sum(map(len, parts)), TIMED_CALL)
        for name in ("begin", "end", "what"):
            self.events[name] = np.concatenate([part[name] for part in parts])
        self.events["thread"] = np.repeat([n for n, _ in self.watched], [*map(len, parts)])
        self.watched = []

    def number_of(self, code: Any) -> int:
        """The number of a function of the user's; -1 of others."""
        number = self.numbers.get(id(code))
        if number is None:
            file = code.co_filename
            others = (PACKAGE, *WRITTEN_BY_CODE, *INSTALLED, *folders)
            number = -1 if file.startswith(others) else len(self.names)
            if number >= 0:
                self.names.append([file, code.co_firstlineno, code.co_qualname])
            self.numbers[id(code)] = number
            self.alive.append(code)
        return number
