"""Which values of a forward pass to keep for the backward pass, and which to make again.

A value that is there in the backward pass is kept, or made of others that are there. Two solvers
choose: `exact`, a mixed-integer program that also knows when in the backward pass what is made
again is alive; and `min_cut`, which puts a price on a byte, for which a minimum cut tells the best
choice, and looks for the price at which what is kept fits.

Source: Jain et al. 2020, arXiv:1910.02653 (Checkmate), of which the integer program is the part in
    which a value is made again once; Picard 1976 for closures as minimum cuts
"""

from collections import deque
from math import inf
from typing import NamedTuple

import numpy as np

from glasshouse.base.errors import OptionError

PRICES = 24  # halvings in the search for the price of a byte
TIMES = 12  # of the backward pass at which the integer program looks at what is alive


class Value(NamedTuple):
    """A value of the forward pass: bytes to keep it and ns to make it again (None: it cannot be),
    of which others it is made, and when the backward pass reads it first and last, if it does."""

    nbytes: int | None
    ns: float | None
    parents: tuple[int, ...] = ()
    reads: tuple[float, float] | None = None


class Saved(NamedTuple):
    """A choice: which values are kept, which made again, bytes of the former, ns of the latter."""

    kept: frozenset[int]
    made: frozenset[int]
    nbytes: int
    ns: float


def saved(values: list[Value], kept, made) -> Saved:
    nbytes = sum(values[i].nbytes or 0 for i in kept)
    return Saved(frozenset(kept), frozenset(made), nbytes, sum(values[i].ns or 0.0 for i in made))


def min_cut(values: list[Value], room: int) -> Saved | None:
    """A cheap choice that keeps at most `room` bytes; None if none was found."""
    low, high, best = 0.0, None, cut_at(values, 0.0)
    if best.nbytes <= room:
        return best
    longest = max((v.ns for v in values if v.ns), default=0.0)
    price, best = longest / max(1, room) + 1e-12, None
    for _ in range(PRICES):
        found = cut_at(values, price)
        if found.nbytes <= room:
            high, best = price, found if best is None or found.ns < best.ns else best
        else:
            low = price
        price = 8 * price if high is None else (low + high) / 2
    return None if best is None else refined(values, best, room)


def refined(values: list[Value], found: Saved, room: int) -> Saved:
    """A choice with values kept as long as there is room: what a single price leaves unused."""
    best: Saved | None = found
    while best is not None:
        found, keepable = best, [i for i in best.made if values[i].nbytes is not None]
        trials = [needed(values, found.kept | {i}, found.made - {i}) for i in keepable]
        better = (x for x in trials if x.nbytes <= room and x.ns < found.ns)
        best = min(better, key=lambda x: x.ns, default=None)
    return found


def needed(values: list[Value], kept, made) -> Saved:
    """The choice without what nobody needs: the backward pass, or a value that is made again."""
    wanted = {i for i, v in enumerate(values) if v.reads is not None}
    for i in range(len(values) - 1, -1, -1):
        if i in wanted and i in made:
            wanted.update(values[i].parents)
    return saved(values, wanted & set(kept), wanted & set(made))


def cut_at(values: list[Value], price: float) -> Saved:
    """The choice with the least ns, where each byte that is kept costs `price`. Of each value is
    decided whether it is there, and made again; implications are edges that cannot be cut."""
    flow = Flow(2 * len(values) + 2)
    source, sink = 2 * len(values), 2 * len(values) + 1
    for i, v in enumerate(values):
        there, again = 2 * i, 2 * i + 1
        keeping = inf if v.nbytes is None else price * v.nbytes
        making = inf if v.ns is None else v.ns
        if v.reads is not None:
            flow.add(source, there, inf)
        # Kept: there and not again. Again implies there, and that all it is made of are there.
        flow.add(there, again, keeping)
        flow.add(again, sink, making)
        for p in (i, *v.parents):
            flow.add(again, 2 * p, inf)
    side = flow.cut(source, sink)
    kept = {i for i in range(len(values)) if side[2 * i] and not side[2 * i + 1]}
    return saved(values, kept, {i for i in range(len(values)) if side[2 * i + 1]})


class Flow:
    """A network in which a minimum cut is found.

    Source: Dinic 1970
    """

    def __init__(self, count: int):
        self.edges: list[list] = [[] for _ in range(count)]  # [to, capacity, number of the reverse]

    def add(self, a: int, b: int, capacity: float) -> None:
        self.edges[a].append([b, capacity, len(self.edges[b])])
        self.edges[b].append([a, 0.0, len(self.edges[a]) - 1])

    def levels(self, source: int) -> list[int]:
        """How far each node is from the source; -1 where it cannot be reached."""
        level = [-1] * len(self.edges)
        level[source], queue = 0, deque([source])
        while queue:
            a = queue.popleft()
            for b, capacity, _ in self.edges[a]:
                if capacity > 1e-9 and level[b] < 0:
                    level[b] = level[a] + 1
                    queue.append(b)
        return level

    def cut(self, source: int, sink: int) -> list[bool]:
        while True:
            level = self.levels(source)
            if level[sink] < 0:
                return [n >= 0 for n in level]
            at = [0] * len(self.edges)
            while self.push(source, sink, level, at):
                pass

    def push(self, source: int, sink: int, level: list[int], at: list[int]) -> bool:
        """Send flow along one path; whether there was one."""
        path, a = [], source
        while a != sink:
            edges = self.edges[a]
            while at[a] < len(edges):
                b, capacity, _ = edges[at[a]]
                if capacity > 1e-9 and level[b] == level[a] + 1:
                    break
                at[a] += 1
            if at[a] < len(edges):
                path.append(edges[at[a]])
                a = path[-1][0]
            elif not path:
                return False
            else:  # a dead end
                edge = path.pop()
                a = self.edges[edge[0]][edge[2]][0]
                at[a] += 1
        flow = min(edge[1] for edge in path)
        assert flow < inf, "saving: a value is read, and can be neither kept nor made"
        for edge in path:
            edge[1] -= flow
            self.edges[edge[0]][edge[2]][1] += flow
        return True


def exact(
    values: list[Value], room: int, beside: list[tuple[float, int]] = (), limit_s: float = 20.0
) -> Saved | None:
    """The cheapest choice that keeps at most `room` bytes, and at each time of `beside` (time,
    room) has no more alive; None if there is none, or none was found in `limit_s`.

    Raises: OptionError where scipy is not installed
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError:
        fix = "Install glasshouse[plan], or take solver='min-cut'."
        raise OptionError("plan", "scipy for solver='exact'", "none", fix) from None
    rows = Rows(values, room, beside)
    lower, upper = rows.bounds()
    data, row, column = zip(*rows.entries, strict=True) if rows.entries else ((), (), ())
    matrix = csr_array((data, (row, column)), shape=(len(rows.most), rows.count))
    integral = np.r_[np.ones(2 * len(values)), np.zeros(rows.count - 2 * len(values))]
    found = milp(
        rows.costs,
        integrality=integral,
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, -inf, rows.most),
        options={"time_limit": limit_s},
    )
    if found.x is None:
        return None
    there, again = (found.x[k : 2 * len(values) : 2] > 0.5 for k in (0, 1))
    made = {i for i in range(len(values)) if again[i]}
    return needed(values, {i for i in range(len(values)) if there[i]} - made, made)


class Rows:
    """The integer program: variables 2i (value i is there) and 2i + 1 (it is made again), and for
    each time whether it was made by then; each row says that a sum is at most `most`."""

    def __init__(self, values: list[Value], room: int, beside):
        self.values, self.entries, self.most = values, list[tuple[float, int, int]](), list[float]()
        self.scale = max([v.nbytes or 0 for v in values] + [1])
        for i, v in enumerate(values):
            for p in (i, *v.parents):
                self.add([(1, 2 * i + 1), (-1, 2 * p)], 0)
        self.add([x for i in range(len(values)) for x in self.kept(i)], room / self.scale)
        self.count = 2 * len(values)
        for time, bytes_then in beside:
            self.look_at(time, bytes_then)

    def add(self, terms, most: float) -> None:
        self.entries += [(n, len(self.most), at) for n, at in terms]
        self.most.append(most)

    def kept(self, i: int) -> list[tuple[float, int]]:
        share = (self.values[i].nbytes or 0) / self.scale
        return [(share, 2 * i), (-share, 2 * i + 1)] if share else []

    def look_at(self, time: float, room: int) -> None:
        """Nothing more than `room` is alive then. What is made again is so from when the backward
        pass first reads it, or something that was made of it by then, until it last does."""
        first, terms = self.count, []
        self.count += len(self.values)
        for i, v in enumerate(self.values):
            if v.reads is not None:
                if v.reads[0] <= time:
                    self.add([(1, 2 * i + 1), (-1, first + i)], 0)
                if time <= v.reads[1]:
                    share = (v.nbytes or 0) / self.scale
                    terms += [*self.kept(i), (share, first + i)]
            for p in v.parents:  # made by then, so what it is made of was, if it is made at all
                self.add([(1, first + i), (1, 2 * p + 1), (-1, first + p)], 1)
        self.add(terms, room / self.scale)

    @property
    def costs(self) -> np.ndarray:
        unit = max([v.ns or 0.0 for v in self.values] + [1e-9])
        costs = np.zeros(self.count)
        costs[1 : 2 * len(self.values) : 2] = [(v.ns or 0.0) / unit for v in self.values]
        return costs

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = np.zeros(self.count), np.ones(self.count)
        for i, v in enumerate(self.values):
            lower[2 * i] = v.reads is not None
            upper[2 * i + 1] = v.ns is not None
            if v.nbytes is None:  # not kept: made again if it is there
                self.add([(1, 2 * i), (-1, 2 * i + 1)], 0)
        return lower, upper
