"""Random Python functions, run plain and captured, with equal results and effects.

GH_FUZZ=20000 makes that many functions instead of 2,000; it needs nothing but the library, so it
runs on every Python that capture supports.
"""

import copy
import os
import random

import numpy as np
import pytest

import glasshouse as gh

COUNT = int(os.environ.get("GH_FUZZ", "2000"))
PARTS = 20


class Box:
    """An object that programs write to."""

    def __init__(self, value):
        self.value = value
        self.log = []

    def add(self, n):
        self.value = self.value + n
        self.log.append(n)
        return self


class Program:
    """A random function `fn(x, n, items, table, box)`."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.numbers, self.tensors = ["n"], ["x"]
        self.count = 0
        self.block(1, 3 + self.random.randrange(5))
        result = f"{self.random.choice(self.tensors)}, {self.random.choice(self.numbers)}, items"
        self.lines.append(f"    return {result}, table, box.value")
        body = "\n".join(self.lines)
        self.text = f"def fn(x, n, items, table, box):\n    calls = 0\n{body}\n"

    def fresh(self, kind: list[str], prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def number(self) -> str:
        r = self.random
        return r.choice(
            [
                r.choice(self.numbers),
                str(r.randrange(-3, 6)),
                "len(items)",
                "sum(items)",
                f"({r.choice(self.numbers)} + {r.randrange(5)})",
                "table.get('a', 3)",
                "x.shape[0]",
                f"max({r.choice(self.numbers)}, 2)",
                f"({r.choice(self.numbers)} * 2 - 1)",
                f"abs({r.choice(self.numbers)})",
                "(items[-1] if items else 0)",
            ]
        )

    def tensor(self) -> str:
        r = self.random
        t = r.choice(self.tensors)
        return r.choice(
            [
                t,
                f"({t} + {self.number()})",
                f"gh.sin({t})",
                f"({t} * 0.5)",
                f"box.value * {t}",
                f"({t} - {r.choice(self.tensors)})",
                f"gh.where({t} > 0, {t}, -{t})",
                f"{t}.sum(axis=0)" if t == "x" else t,
            ]
        )

    def condition(self) -> str:
        r = self.random
        return r.choice(
            [
                f"{self.number()} > {self.number()}",
                f"{self.number()} % 2 == 0",
                "'a' in table",
                "items",
                f"not {self.number()}",
                "box.log",
                f"{self.number()} == {self.number()} or n > 1",
                f"({r.choice(self.tensors)}).sum() > {r.randrange(-2, 3)}",
            ]
        )

    def block(self, depth: int, count: int) -> None:
        """Statements; what they define is known inside only."""
        before = len(self.numbers), len(self.tensors)
        for _ in range(count):
            self.statement(depth)
        if depth > 1:
            del self.numbers[before[0] :], self.tensors[before[1] :]

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def statement(self, depth: int) -> None:
        r = self.random
        choice = r.randrange(15 if depth < 4 else 8)
        if choice == 0:
            name = self.fresh(self.numbers, "m")
            self.put(depth, f"{name} = {self.number()}")
            self.numbers.append(name)
        elif choice in (1, 2):
            name = self.fresh(self.tensors, "t")
            self.put(depth, f"{name} = {self.tensor()}")
            self.tensors.append(name)
        elif choice == 3:
            self.put(
                depth,
                r.choice(
                    [
                        f"items.append({self.number()})",
                        f"items.insert(0, {self.number()})",
                        "items.reverse()",
                        "items[:] = [i + 1 for i in items]",
                        "items += [calls]",
                        "items.pop() if items else None",
                    ]
                ),
            )
        elif choice == 4:
            self.put(
                depth,
                r.choice(
                    [
                        f"table['b'] = {self.number()}",
                        "table.pop('a', None)",
                        f"table.setdefault('c', {self.number()})",
                        "table.update({str(k): v for k, v in zip('xy', items)})",
                        "table['t'] = x",
                    ]
                ),
            )
        elif choice == 5:
            self.put(
                depth,
                r.choice(
                    [
                        f"box.add({self.number()})",
                        f"box.value = {self.tensor()}",
                        "calls += 1",
                        f"box.extra = {self.number()}",
                        "box.log.clear()",
                    ]
                ),
            )
        elif choice == 6:
            self.put(depth, r.choice(["gh.graph_break()", "record(calls)", "calls = calls + 1"]))
        elif choice == 7:
            self.put(
                depth, f"x = {self.tensor()}" if r.random() < 0.3 else f"n = {self.number()} % 7"
            )
        elif choice in (8, 9):
            self.put(depth, f"if {self.condition()}:")
            self.block(depth + 1, 1 + r.randrange(2))
            if r.random() < 0.5:
                self.put(depth, "else:")
                self.block(depth + 1, 1)
        elif choice == 10:
            name = self.fresh(self.numbers, "i")
            over = r.choice(
                [f"range({r.randrange(4)})", "list(items)", "sorted(table)", "enumerate(items[:2])"]
            )
            self.put(depth, f"for {name} in {over}:")
            self.block(depth + 1, 1 + r.randrange(2))
            if r.random() < 0.3:
                self.put(depth + 1, f"if {self.condition()}:")
                self.put(depth + 2, r.choice(["break", "continue"]))
        elif choice == 11:
            self.put(depth, "try:")
            self.block(depth + 1, 1)
            self.put(
                depth + 1,
                r.choice(
                    [
                        "items[9]",
                        "table['zz']",
                        f"1 // ({self.number()} % 2)",
                        "raise ValueError('v')",
                        "calls += 1",
                    ]
                ),
            )
            self.put(
                depth,
                f"except {r.choice(['(IndexError, KeyError)', 'Exception', 'ZeroDivisionError'])}:",
            )
            self.block(depth + 1, 1)
            if r.random() < 0.4:
                self.put(depth, "finally:")
                self.block(depth + 1, 1)
        elif choice == 12:
            name = self.fresh([], "f")
            self.put(depth, f"def {name}(v, k={r.randrange(3)}):")
            self.put(depth + 1, "nonlocal calls")
            self.put(depth + 1, "calls += 1")
            self.put(depth + 1, f"return {r.choice(['v + k', 'v * calls', 'v + len(items)'])}")
            made = self.fresh(self.numbers, "m")
            self.put(depth, f"{made} = {name}({self.number()})")
            self.numbers.append(made)
        elif choice == 13:
            self.put(depth, "with gh.no_grad():")
            self.block(depth + 1, 1 + r.randrange(2))
        else:
            name = self.fresh(self.numbers, "m")
            source = r.choice(["range(3)", "items", "(v + 1 for v in items)"])
            self.put(depth, f"{name} = sum(v for v in {source} if v > {r.randrange(2)})")
            self.numbers.append(name)


def arguments(seed: int):
    rng = np.random.default_rng(seed)
    x = gh.asarray(rng.normal(size=3).astype(np.float32))
    return [x, seed % 4, [1, 2, 3][: seed % 4], {"a": 1} if seed % 2 else {}, Box(seed % 3)]


def outcome(fn, args, seen: list):
    """What a call does: result or error, arguments afterwards, what it told."""
    seen.clear()
    try:
        result = fn(*args)
    except Exception as error:
        result = type(error), str(error)
    box = args[4]
    return result, args[1:4], box.__dict__, list(seen)


def same(a, b) -> bool:
    if isinstance(a, gh.Tensor) or isinstance(b, gh.Tensor):
        return (
            type(a) is type(b)
            and a.shape == b.shape
            and np.allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6, equal_nan=True)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


@pytest.mark.parametrize("part", range(PARTS))
def test_random_functions(part):
    for seed in range(part * COUNT // PARTS, (part + 1) * COUNT // PARTS):
        program, seen = Program(seed), []
        names = {"gh": gh, "record": gh.disable(seen.append)}
        exec(compile(program.text, f"<random {seed}>", "exec"), names)
        fast = gh.optimize("eager")(names["fn"])
        for call in (0, 0, 1, 2):
            args = arguments(seed + call)
            want = outcome(names["fn"], copy.deepcopy(args), seen)
            got = outcome(fast, args, seen)
            assert same(want, got), (
                f"seed {seed}, call {call}:\n{program.text}\nwant {want}\ngot  {got}"
            )
