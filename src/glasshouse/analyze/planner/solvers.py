"""Solvers: which values of a forward pass to keep for the backward pass, and which to recompute.

A value that is there in the backward pass is kept, or computed from others that are there. Two
solvers choose: `exact`, a mixed-integer program that also knows when a remade value is alive in the
backward pass; and `min_cut`, which puts a price on a byte, for which a minimum cut is the best
choice, and looks for the price at which the kept values fit.

Source: Jain et al. 2020, arXiv:1910.02653 (Checkmate), of which the integer program is the part in
    which a value is made again once; Picard 1976 for closures as minimum cuts
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError

PRICES = 24  # halvings in the search for the price of a byte
SPENT = 1e-9  # an edge with no more capacity is full
TIMES = 12  # times of the backward pass at which the integer program bounds the live bytes


class SolverValue(NamedTuple):
    """A value of the forward pass: bytes to keep it and ns to make it again (None: impossible), the
    values it is made of, and when the backward pass reads it first and last, if it does."""

    nbytes: int | None
    ns: float | None
    parents: tuple[int, ...] = ()
    reads: tuple[float, float] | None = None


class ValueChoice(NamedTuple):
    """Values that are kept, values that are made again, bytes of the former, ns of the latter."""

    kept: frozenset[int]
    remade: frozenset[int]
    nbytes: int
    ns: float


def choice_of(values: list[SolverValue], kept: set[int], remade: set[int]) -> ValueChoice:
    """Choice that keeps and makes again these values."""
    nbytes = sum(values[i].nbytes or 0 for i in kept)
    ns = sum(values[i].ns or 0.0 for i in remade)
    return ValueChoice(frozenset(kept), frozenset(remade), nbytes, ns)


class PricedCuts:
    """The cuts of some values at all prices of a byte. If two prices have the same cut, so have all
    between them: a cut's cost is a line over the prices, and the least cost a concave curve."""

    def __init__(self, values: list[SolverValue]) -> None:
        self.values = values
        self.prices: list[float] = []  # from the lowest on
        self.choices: list[ValueChoice] = []

    def at(self, price: float) -> ValueChoice:
        """Return the result of `cut_at` for the price, from the cache where it is known."""
        i = bisect_left(self.prices, price)
        if i < len(self.prices) and self.prices[i] == price:
            return self.choices[i]
        if 0 < i < len(self.prices) and self.choices[i - 1] == self.choices[i]:
            return self.choices[i]
        choice = cut_at(self.values, price)
        self.prices.insert(i, price)
        self.choices.insert(i, choice)
        return choice


def min_cut(
    values: list[SolverValue], room: int, cuts: PricedCuts | None = None
) -> ValueChoice | None:
    """A cheap choice that keeps at most `room` bytes; None if none was found. Many calls for the
    same values share their `cuts`."""
    cuts = PricedCuts(values) if cuts is None else cuts
    best = cuts.at(0.0)
    if best.nbytes <= room:
        return best
    longest_ns = max((v.ns for v in values if v.ns), default=0.0)
    low, high, price, best = 0.0, None, longest_ns / max(1, room) + 1e-12, None
    for _ in range(PRICES):
        choice = cuts.at(price)
        if choice.nbytes <= room:
            high = price
            best = choice if best is None or choice.ns < best.ns else best
        else:
            low = price
        price = 8 * price if high is None else (low + high) / 2
    return None if best is None else refined(values, best, room)


def refined(values: list[SolverValue], choice: ValueChoice, room: int) -> ValueChoice:
    """Keep more values of a choice as long as there is room: a single price leaves some unused."""
    better: ValueChoice | None = choice
    while better is not None:
        choice = better
        trials = [
            without_needless(values, choice.kept | {i}, choice.remade - {i})
            for i in choice.remade
            if values[i].nbytes is not None
        ]
        cheaper = [x for x in trials if x.nbytes <= room and x.ns < choice.ns]
        better = min(cheaper, key=lambda x: x.ns, default=None)
    return choice


def without_needless(values: list[SolverValue], kept: Any, remade: Any) -> ValueChoice:
    """Drop values that neither the backward pass nor a remade value needs."""
    needed = {i for i, v in enumerate(values) if v.reads is not None}
    for i in range(len(values) - 1, -1, -1):
        if i in needed and i in remade:
            needed.update(values[i].parents)
    return choice_of(values, needed & set(kept), needed & set(remade))


def cut_at(values: list[SolverValue], price: float) -> ValueChoice:
    """Find the choice with the least ns, where each byte that is kept costs `price`. For each value
    it decides whether it is there, and made again; implications are edges that cannot be cut."""
    network = FlowNetwork(2 * len(values) + 2)
    source, sink = 2 * len(values), 2 * len(values) + 1
    for i, v in enumerate(values):
        there, remade = 2 * i, 2 * i + 1
        keeping = inf if v.nbytes is None else price * v.nbytes
        making = inf if v.ns is None else v.ns
        if v.reads is not None:
            network.add(source, there, inf)
        # Kept: there and not remade. Remade implies there, and that all its parents are there.
        network.add(there, remade, keeping)
        network.add(remade, sink, making)
        for parent in (i, *v.parents):
            network.add(remade, 2 * parent, inf)
    side = network.cut(source, sink)
    is_there, is_remade = side[: 2 * len(values) : 2], side[1 : 2 * len(values) : 2]
    remade_values = {i for i in range(len(values)) if is_remade[i]}
    kept_values = {i for i in range(len(values)) if is_there[i]} - remade_values
    return choice_of(values, kept_values, remade_values)


class FlowNetwork:
    """A network with minimum cuts.

    Source: Dinic 1970
    """

    def __init__(self, count: int) -> None:
        self.edges: list[list[Any]] = [
            [] for _ in range(count)
        ]  # [to, capacity, number of the reverse]

    def add(self, tail: int, head: int, capacity: float) -> None:
        """Add an edge; its reverse begins with no capacity."""
        self.edges[tail].append([head, capacity, len(self.edges[head])])
        self.edges[head].append([tail, 0.0, len(self.edges[tail]) - 1])

    def levels(self, source: int) -> list[int]:
        """Distance of each node from the source; -1 where it cannot be reached."""
        level = [-1] * len(self.edges)
        level[source], queue = 0, deque([source])
        while queue:
            tail = queue.popleft()
            for head, capacity, _ in self.edges[tail]:
                if capacity > SPENT and level[head] < 0:
                    level[head] = level[tail] + 1
                    queue.append(head)
        return level

    def cut(self, source: int, sink: int) -> list[bool]:
        """For each node, whether a minimum cut leaves it with the source."""
        while True:
            level = self.levels(source)
            if level[sink] < 0:
                return [distance >= 0 for distance in level]
            next_edge = [0] * len(self.edges)  # of each node: those before are dead ends
            while self.push(source, sink, level, next_edge):
                pass

    def push(self, source: int, sink: int, level: list[int], next_edge: list[int]) -> bool:
        """Send flow along one path; returns whether there was one."""
        path, tail = [], source
        while tail != sink:
            edges = self.edges[tail]
            while next_edge[tail] < len(edges):
                head, capacity, _ = edges[next_edge[tail]]
                if capacity > SPENT and level[head] == level[tail] + 1:
                    break
                next_edge[tail] += 1
            if next_edge[tail] < len(edges):
                path.append(edges[next_edge[tail]])
                tail = path[-1][0]
            elif not path:
                return False
            else:  # a dead end
                head, _, reverse = path.pop()
                tail = self.edges[head][reverse][0]
                next_edge[tail] += 1
        flow = min(capacity for _, capacity, _ in path)
        assert flow < inf, "min-cut: a value is read, and can be neither kept nor made"
        for edge in path:
            head, _, reverse = edge
            edge[1] -= flow
            self.edges[head][reverse][1] += flow
        return True


def exact(
    values: list[SolverValue],
    room: int,
    limits: Sequence[tuple[float, int]] = (),
    limit_s: float = 20.0,
) -> ValueChoice | None:
    """Find the cheapest choice that keeps at most `room` bytes, and at each time of `limits` (time,
    room) has no more alive; None if there is none, or none was found in `limit_s`.

    Raises: OptionError where scipy is not installed
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        fix = "Install glasshouse[plan], or take solver='min-cut'."
        raise OptionError("plan", "scipy for solver='exact'", "none", fix) from None
    program, count = IntegerProgram(values, room, limits), len(values)
    lower, upper = program.bounds()
    factors, rows, columns = zip(*program.entries, strict=True) if program.entries else ((), (), ())
    matrix = csr_array((factors, (rows, columns)), shape=(len(program.most), program.count))
    is_integer = np.r_[np.ones(2 * count), np.zeros(program.count - 2 * count)]
    solution = milp(
        program.costs,
        integrality=is_integer,
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, -inf, program.most),
        options={"time_limit": limit_s},
    )
    if solution.x is None:
        return None
    is_there, is_remade = (solution.x[: 2 * count].reshape(count, 2) > 0.5).T
    remade = {i for i in range(count) if is_remade[i]}
    return without_needless(values, {i for i in range(count) if is_there[i]} - remade, remade)


class IntegerProgram:
    """Variables 2i (value i is there) and 2i + 1 (it is made again), and for each time whether it
    was made by then; each row says that a sum is at most `most`. An entry is (factor, row,
    variable)."""

    def __init__(self, values: list[SolverValue], room: int, limits: Any) -> None:
        self.values = values
        self.entries: list[tuple[float, int, int]] = []
        self.most: list[float] = []
        self.scale: int = max([v.nbytes or 0 for v in values] + [1])
        for i, v in enumerate(values):
            for parent in (i, *v.parents):
                self.add([(1, 2 * i + 1), (-1, 2 * parent)], 0)
        self.add(
            [term for i in range(len(values)) for term in self.bytes_terms(i)], room / self.scale
        )
        self.count: int = 2 * len(values)
        for time, room_then in limits:
            self.limit_at(time, room_then)

    def add(self, terms: Any, most: float) -> None:
        """Add a row: the sum of factor times variable is at most `most`."""
        self.entries += [(factor, len(self.most), variable) for factor, variable in terms]
        self.most.append(most)

    def bytes_terms(self, i: int) -> list[tuple[float, int]]:
        """Terms for the bytes of a value that is kept: there, and not made again."""
        share = (self.values[i].nbytes or 0) / self.scale
        return [(share, 2 * i), (-share, 2 * i + 1)] if share else []

    def limit_at(self, time: float, room: int) -> None:
        """Allow at most `room` bytes alive then. A remade value is alive from the time at which the
        backward pass first reads it, or a value made of it by then, until its last read."""
        made_by_then, terms = self.count, []  # the first of new variables, one for each value
        self.count += len(self.values)
        for i, v in enumerate(self.values):
            if v.reads is not None:
                first, last = v.reads
                if first <= time:
                    self.add([(1, 2 * i + 1), (-1, made_by_then + i)], 0)
                if time <= last:
                    share = (v.nbytes or 0) / self.scale
                    terms += [*self.bytes_terms(i), (share, made_by_then + i)]
            for parent in v.parents:  # made by then, if it is made again at all
                row = [(1, made_by_then + i), (1, 2 * parent + 1), (-1, made_by_then + parent)]
                self.add(row, 1)
        self.add(terms, room / self.scale)

    @property
    def costs(self) -> np.ndarray:
        """Cost of each variable, as a fraction of the longest time."""
        longest_ns = max([v.ns or 0.0 for v in self.values] + [1e-9])
        costs = np.zeros(self.count)
        costs[1 : 2 * len(self.values) : 2] = [(v.ns or 0.0) / longest_ns for v in self.values]
        return costs

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the most of each variable."""
        lower, upper = np.zeros(self.count), np.ones(self.count)
        for i, v in enumerate(self.values):
            lower[2 * i] = v.reads is not None
            upper[2 * i + 1] = v.ns is not None
            if v.nbytes is None:  # not kept: made again if it is there
                self.add([(1, 2 * i), (-1, 2 * i + 1)], 0)
        return lower, upper
