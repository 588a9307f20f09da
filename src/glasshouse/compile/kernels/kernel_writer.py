"""Writer of a kernel's text: lines in blocks, names of values, and arguments.

Sizes are arguments, so that kernels which differ in them alone have one text: `n_i` is how many
positions the loop over i has, `step0` a number of elements between two of them in memory,
`parallel` whether the cores share the work. The text itself has the cuts of a row. kernel_cache.py
decides for which of the sizes a text is compiled."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from glasshouse.compile.kernels.kernel_pattern import KernelPattern, SizeSource

PARALLEL = "parallel for schedule(static)"


class KernelWriter:
    """Writes lines of C; `args` are pointers and scalars, `sizes` the arguments by name after them,
    with their `sources` in the kernel's pattern; `names` are those of values in the open scopes."""

    def __init__(self, pattern: KernelPattern) -> None:
        self.pattern = pattern
        self.args: list[Any] = []
        self.sizes: dict[str, int] = {}
        self.sources: dict[str, SizeSource] = {}
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}  # expression (or its row) -> C name
        self.scopes: list[list[Any]] = []
        self.indent: int = 1

    def put(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """Put braces around the lines inside; the names of their values end there."""
        self.put(text + " {")
        self.indent += 1
        self.scopes.append([])
        yield
        self.indent -= 1
        for number in self.scopes.pop():
            self.names.pop(number, None)
        self.put("}")

    def loop(self, name: str, stop: str, start: str = "0", pragma: str = "") -> Any:
        """The block of a loop that counts up."""
        if pragma:
            self.put(f"#pragma omp {pragma}")
        return self.block(f"for (int64_t {name} = {start}; {name} < {stop}; {name}++)")

    def part_of(self, count: int, end: str) -> tuple[str, str]:
        """Bounds of up to `count` positions from `lo` on."""
        self.put(f"const int64_t hi = lo + {count} < {end} ? lo + {count} : {end};")
        return "lo", "hi"

    def arg(self, what: tuple[Any, ...]) -> str:
        """The name of a pointer or scalar argument."""
        if what not in self.args:
            self.args.append(what)
        return f"b{self.args.index(what)}"

    def distance(self, elements: int) -> str:
        """Write a distance in elements; equal ones are one argument, 0 and 1 are literals."""
        if -2 < elements < 2:
            return str(elements)
        steps = [name for name in self.sizes if name.startswith("step")]
        equal = (name for name in steps if self.sizes[name] == elements)
        return next(equal, None) or self.size(f"step{len(steps)}", elements, "distance")

    def size(self, name: str, value: int, kind: str, at: int | None = None) -> str:
        """Name an argument of the pattern's sizes of a kind; a single position is a literal."""
        if value == 1 and name.startswith("n_"):
            return str(value)
        while self.sizes.get(name, value) != value:
            name += "_"
        self.sizes[name] = value
        self.sources[name] = (kind, at) if at is not None else self.pattern.source(kind, value)
        return name


def size_line(name: str, number: int, alignment: str = "") -> str:
    """The line of a kernel that takes a size."""
    return f"  const int64_t {name} = (int64_t)a[{number}]{alignment};"


def size_lines(names: Iterable[str], first: int) -> str:
    """The lines of a kernel that take its sizes, which follow `first` other arguments."""
    return "".join(size_line(name, k) + "\n" for k, name in enumerate(names, first))


def canonical(text: str) -> str:
    """The text with names numbered in order of appearance, so that equal kernels read equal."""
    names: dict[str, str] = {}

    def rename(match):
        return names.setdefault(match[0], f"{match[1]}{len(names)}")

    return re.sub(r"\b(v|t|s|r|part|kept|room|words|row|wide)\d+\b(?!\()", rename, text)
