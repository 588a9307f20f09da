"""Python's own generators for the rest of those that the interpreter began."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any


class GeneratorRemainder:
    """The rest of a generator that the interpreter began, as the operand of a `yield from`."""

    send: Callable[..., Any]
    throw: Callable[..., Any]

    def __init__(self, generator: Any, step: Callable[..., Any]) -> None:
        self.generator = generator
        self.step: Callable[..., Any] = step
        self.send, self.throw = generator.send, generator.throw

    def __iter__(self) -> Iterator[Any]:
        return self

    def close(self) -> Any:
        if self.generator.rest() is not None:  # else it was let go of, and others continue
            return self.generator.close()
        return None

    def __next__(self) -> Any:
        step, self.step = self.step, self.generator.__next__
        try:
            return step()
        finally:
            del step  # it may hold the error, whose traceback has this frame


def going_on(generator: Any) -> Generator[Any, Any, Any]:
    """A generator for the rest of one that the interpreter began and that is at a `yield`."""
    try:
        sent = yield
    except BaseException as error:
        if isinstance(error, GeneratorExit) and generator.rest() is None:
            raise  # released, not closed: `generator` may continue
        rest = GeneratorRemainder(generator, partial(generator.throw, error))
    else:
        rest = GeneratorRemainder(generator, partial(generator.send, sent))
    return (yield from rest)


def caught_here() -> Generator[Any, Any, Any]:
    """A generator that yields the exception thrown into it."""
    try:
        yield
    except BaseException as error:
        yield error


def error_thrown(*args: Any) -> Any:
    """The exception that `throw` raises with these arguments."""
    catcher = caught_here()
    next(catcher)
    try:
        return catcher.throw(*args)
    finally:
        next(catcher, None)  # to its end, so that releasing it throws nothing into it
