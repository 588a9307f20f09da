"""Signals that wait while work must not be left half done.

Python runs a signal's handler between any two instructions of the main thread, and its exception
(KeyboardInterrupt, SystemExit) is lost where Python cannot propagate it: in a weak reference's
callback, in __del__. Inside `with held`, or from `hold()` to `release()`, handlers wait; they run
when the outermost hold ends, or at a `deliver()`. A signal that comes again while it waits is
handled at once: a user who sends it twice does not want to wait."""

import _signal  # `signal` wraps its functions in ones that make enums, which takes 15 times longer
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from typing import Any

NUMBERS = tuple(
    getattr(_signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP")
    if hasattr(_signal, name)
)
came: list[int] = []  # signals whose handlers wait


class Held:
    """The context inside which signals wait; for the main thread, which alone runs handlers."""

    depth: int = 0  # of holds within holds
    handlers: dict[int, Callable[..., Any]] = {}  # in whose place `note` is

    def __enter__(self) -> None:
        if get_ident() == threading.main_thread().ident:
            if not self.depth:
                self.begin()
            self.depth += 1

    def __exit__(self, *exc_info: object) -> None:
        if self.depth and get_ident() == threading.main_thread().ident:
            self.depth -= 1
            if not self.depth:
                self.end()

    def begin(self) -> None:
        """Replace every handler that is a function by `note`. Code run by a garbage collection may
        hold as well, after any call, so no call lies between storing a handler and replacing it. No
        branch ends the loop's body: CPython 3.13 puts its jump back outside the `try`."""
        handlers = [(number, _signal.getsignal(number)) for number in NUMBERS]
        handlers = [x for x in handlers if callable(x[1]) and x[1] is not note]
        try:
            for number, handler in handlers:
                self.handlers[number] = handler
                _signal.signal(number, note)
        except BaseException:  # of a handler that was not held yet
            self.end()
            raise

    def end(self) -> None:
        """Put the handlers back, and run those whose signals came. An error from a handler that is
        back already waits for the others: no function of ours is called in between."""
        error, back = None, {}
        while True:
            try:
                for number, handler in list(self.handlers.items()):
                    if _signal.getsignal(number) is note:  # else somebody has set another one
                        _signal.signal(number, handler)
                    back[number] = handler
                    self.handlers.pop(number, None)
                break
            except BaseException as raised:
                error = raised
        for number, handler in back.items():
            if number in came:
                came.remove(number)
                handler(number, sys._getframe(2))
        if error is not None:
            raise error


class Living(dict[Any, Any]):
    """Objects, as long as they live. When one dies only C runs, unlike in a WeakSet, where an
    interrupt would be lost."""

    def add(self, x: Any) -> None:
        self[id(x)] = weakref.ref(x, partial(self.pop, id(x)))

    def __iter__(self) -> Iterator[Any]:
        return iter([x for ref in list(self.values()) if (x := ref()) is not None])


held: Held = Held()
hold: Callable[..., None] = held.__enter__
release: Callable[..., None] = held.__exit__


def note(number: int, frame: Any) -> None:
    handler = held.handlers.get(number)
    if number in came and handler is not None:
        handler(number, frame)
    else:
        came.append(number)


def deliver() -> None:
    """Run the waiting handlers, at a point where no work is half done.

    Raises: the handlers' errors
    """
    handlers = held.handlers.copy()
    while came and held.depth and get_ident() == threading.main_thread().ident:
        number = came.pop(0)
        if number in handlers:
            handlers[number](number, sys._getframe(1))


class let_through:
    """The context inside a hold in which signals do not wait."""

    def __enter__(self) -> None:
        self.depth: int = held.depth if get_ident() == threading.main_thread().ident else 0
        if self.depth:
            held.depth = 0
            try:
                held.end()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *exc_info: object) -> None:
        if self.depth:
            held.begin()
            held.depth = self.depth
