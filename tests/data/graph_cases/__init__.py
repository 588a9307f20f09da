"""Small functions over tensors, by theme, for tools/judges/compare_graph_counts.py.

Each is written once, over a module `xp` that has the names that Glasshouse and PyTorch share; the
package is loaded once for each library."""

from typing import Any, NamedTuple

import xp

CALLS = 3  # of each function, unless a case says otherwise


class Fresh(NamedTuple):
    """A tensor among the arguments of a case, a new one for each call."""

    shape: tuple[int, ...]
    kind: str = "float32"

    def make(self):
        count = 1
        for n in self.shape:
            count *= n
        numbers = [((7 * i + 3) % 11) / 4 - 1 for i in range(count)]
        if self.kind == "int64":
            numbers = list(range(count))
        values = xp.asarray(numbers, dtype=getattr(xp, self.kind.partition(" ")[0]))
        values = xp.reshape(values, self.shape)
        return values.requires_grad_() if self.kind.endswith("grad") else values


def t(*shape: int) -> Fresh:
    """A tensor of float32."""
    return Fresh(shape)


def ints(*shape: int) -> Fresh:
    """A tensor of int64: 0, 1, 2, …"""
    return Fresh(shape, "int64")


def leaf(*shape: int) -> Fresh:
    """A tensor that requires a gradient."""
    return Fresh(shape, "float32 grad")


class Case(NamedTuple):
    """A function and its arguments; `make` returns a new pair."""

    theme: str
    name: str
    make: Any


cases: list[Case] = []


def made(value):
    """An argument with its tensors made."""
    if isinstance(value, Fresh):
        return value.make()
    if type(value) in (list, tuple):
        return type(value)(map(made, value))
    if type(value) is dict:
        return {key: made(part) for key, part in value.items()}
    return value


def add(fn, make) -> None:
    cases.append(Case(fn.__module__.rpartition(".")[2], fn.__name__, make))


def case(*args):
    """Have a function be called with these arguments, every time."""
    return case_of(*[args] * CALLS)


def case_of(*calls: tuple):
    """Have a function be called with each of these tuples of arguments in turn."""

    def register(fn):
        add(fn, lambda: (fn, [tuple(map(made, args)) for args in calls]))
        return fn

    return register


def built(*args):
    """Have a function that makes one be called, and that be called with these arguments."""
    return built_of(*[args] * CALLS)


def built_of(*calls: tuple):
    """Like `built`, with each of these tuples of arguments in turn."""

    def register(make):
        add(make, lambda: (make(), [tuple(map(made, args)) for args in calls]))
        return make

    return register
