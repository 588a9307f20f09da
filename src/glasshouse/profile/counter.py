"""The FLOP counter: what every primitive call costs, by operator, module and pass."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any, NamedTuple, Self

from glasshouse.base.errors import OptionError, check_known, type_name
from glasshouse.base.interpreter import items_of
from glasshouse.dispatch.bind import state, watchers
from glasshouse.dispatch.call import Call
from glasshouse.dispatch.scope import Origin, Scope, origin_of
from glasshouse.dispatch.watch import Tally, Watcher, ignore_call, kept, tallies
from glasshouse.ops.collective_start import sent_bytes_of
from glasshouse.profile.libraries import Observation
from glasshouse.profile.text import percent, si_text, table

VIEWS = ("matrix", "all")
COLUMNS = ("model", "algorithmic", "executed")
OUTSIDE = "(no module)"


class Counted(NamedTuple):
    """Calls of one primitive, in one module and pass, with the three counts and bytes moved."""

    module: str
    phase: str
    primitive: str
    calls: int
    model: int
    algorithmic: int
    executed: int
    bytes: int


class Sums(dict[Any, Any]):
    def add(self, key: Any, *values: Any) -> None:
        total = self.setdefault(key, [0] * len(values))
        total[:] = [a + b for a, b in zip(total, values, strict=True)]


class FlopCounter(Watcher):
    """Counts the primitives that this thread calls inside, whatever runs them.
    A multiply-add is `multiply_add` operations: 2, or 1 to count MACs. Each count has a view:
    "matrix" (products and convolutions, as papers do) or "all" (every primitive), and a column:
    model        operations of the mathematics, work on padding counted, no recomputation
    algorithmic  the same without work on padding
    executed     everything that ran, recomputation in checkpoints included
    `model` names the root of interest: with it, `uncalled` lists modules that did not run.
    `display` prints the table at the end.

    Raises: OptionError for another multiply_add, or a model that is not a Module.
    Example:
        >>> import glasshouse as gh
        >>> layer = gh.nn.Linear(3, 4)
        >>> with FlopCounter() as fc:
        ...     y = layer(gh.ones((2, 3)))
        >>> fc.total()
        48
    """

    wants_begin = False

    def __init__(self, model: Any = None, *, multiply_add: int = 2, display: bool = False) -> None:
        if multiply_add not in (1, 2):
            fix = "2 counts operations, 1 counts MACs."
            raise OptionError("FlopCounter", "multiply_add to be 1 or 2", repr(multiply_add), fix)
        if model is not None and not hasattr(model, "named_modules"):
            raise OptionError("FlopCounter", "a Module", type_name(model), "Leave it out.")
        self.model = model
        self.multiply_add = multiply_add
        self.display = display
        self.counts: dict[tuple[Any, ...], list[int]] = {}  # [number] by (call, origin)
        self.messages: Counter[Any] = (
            Counter()
        )  # how often (group's name, bytes) was sent by no call
        self.since: dict[Tally, int] = {}  # runs of captured Programs that are counted already
        self.called: set[int] = set()
        self.thread: int = 0
        self.op: Callable[..., None] = ignore_call

    def __enter__(self) -> Self:
        if self in watchers:
            expected = "a counter that is not counting"
            fix = "Make a second one: counters may be nested."
            raise OptionError("FlopCounter", expected, "one within itself", fix)
        self.thread = get_ident()
        self.op = counting(self.counts, state.thread)
        self.replayed: Any = state.thread, self.counts
        kept[id(self.since)] = self.since
        self.since |= {tally: tally.runs.get(self.thread, 0) for tally in tallies}
        self.watch()
        self.libraries: Observation = Observation(self, self.model)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.libraries.end()
        self.unwatch()
        self.op, self.replayed = ignore_call, None
        del kept[id(self.since)]
        self.digest()
        self.since.clear()
        if self.display:
            print(self)

    # -- counting ------------------------------------------------------------------------------

    def module(self, scope: Scope, begin_ns: int) -> None:
        self.called.add(id(scope.module()))

    def sent(self, group: Any, nbytes: int) -> None:
        if get_ident() == self.thread:
            self.messages[group.name, nbytes] += 1

    def digest(self) -> None:
        for tally, before in items_of(self.since):
            now = self.since[tally] = tally.runs.get(self.thread, 0)
            for key in tally.counts if now > before else ():
                self.counts.setdefault(key, [0])[0] += now - before

    def reset(self) -> None:
        self.digest()
        self.counts.clear()
        self.messages.clear()
        self.called.clear()

    # -- results -------------------------------------------------------------------------------

    def rows(self, view: str = "matrix") -> list[Counted]:
        """Counts, one row for each primitive in each module and pass."""
        check_one_of("view", view, VIEWS)
        self.digest()
        sums = Sums()
        counted = [(*key, calls) for key, (calls,) in items_of(self.counts)]
        for call, origin, calls in split_loops(counted):
            cost, phase = call.cost, origin.phase
            matrix, exact_matrix = cost.matrix_flops, cost.exact_matrix_flops
            flops = matrix if view == "matrix" else cost.flops
            exact = exact_matrix if view == "matrix" else cost.exact_flops
            if self.multiply_add == 1:
                flops, exact = flops - matrix // 2, exact - exact_matrix // 2
            once = 0 if phase == "recompute" else calls
            key = origin.module or OUTSIDE, phase, call.name
            added = (calls, flops * once, exact * once, flops * calls, cost.bytes * calls)
            sums.add(key, *added)
        return [Counted(*key, *values) for key, values in sums.items()]

    def total(self, view: str = "matrix", column: str = "model", **where: str) -> int:
        """One count; `where` narrows it by phase, primitive or module (which holds all below it).

        Raises: OptionError for an unknown view, column or part.
        """
        for name in where:
            check_one_of("part", name, ("phase", "primitive", "module"))
        return sum(n for row, n in self.column(view, column) if fits(row, where))

    def column(self, view: str, column: str) -> list[tuple[Counted, int]]:
        check_one_of("column", column, (*COLUMNS, "bytes", "calls"))
        return [(row, getattr(row, column)) for row in self.rows(view)]

    def by_operator(self, view: str = "matrix", column: str = "model") -> dict[str, int]:
        """Count by primitive, the largest first; those that count nothing are left out."""
        return self.by("primitive", view, column)

    def by_phase(self, view: str = "matrix", column: str = "model") -> dict[str, int]:
        """Count by pass: forward, backward, recompute, optimizer."""
        return self.by("phase", view, column)

    def by_module(
        self, depth: int | None = None, view: str = "matrix", column: str = "model"
    ) -> dict[str, int]:
        """Count by module, each with all below it, down to `depth` names."""
        return dict(by_path(((row.module, n) for row, n in self.column(view, column)), depth))

    def by(self, part: str, view: str, column: str) -> dict[str, int]:
        sums: Counter[Any] = Counter()
        for row, n in self.column(view, column):
            sums[getattr(row, part)] += n
        return {name: n for name, n in sums.most_common() if n}

    @property
    def bytes(self) -> int:
        """Bytes that all calls read and wrote, each on its own (fusion moves fewer)."""
        return self.total("all", "bytes")

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: executed operations per byte."""
        return self.total("all", "executed") / max(1, self.bytes)

    def sent_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes that this rank sends to others, by collective and name of the group; "send" counts
        the messages between stages of a pipeline."""
        self.digest()
        sums: Counter[Any] = Counter()
        for (name, nbytes), times in self.messages.items():
            sums["send", name] += nbytes * times
        counted = [(*key, calls) for key, (calls,) in items_of(self.counts)]
        for call, _, calls in split_loops(counted):
            if call.is_collective:
                sums[call.name, call.attrs["group"].name] += sent_bytes_of(call) * calls
        return dict(sums)

    def get_total_flops(self) -> int:
        """`total()`, under the name that PyTorch's counter has."""
        return self.total()

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Count by module, then by primitive; "Global" holds all."""
        counts: dict[str, Counter[Any]] = {"Global": Counter()}
        for row in self.rows():
            for path in ("Global", *prefixes(row.module)):
                counts.setdefault(path, Counter())[row.primitive] += row.model
        return {path: {k: n for k, n in ops.items() if n} for path, ops in counts.items()}

    def uncounted(self, view: str = "matrix") -> dict[str, int]:
        """Calls of the primitives that count nothing in this view."""
        executed = self.by("primitive", view, "executed")
        return {
            name: n
            for name, n in self.by("primitive", view, "calls").items()
            if name not in executed
        }

    def uncalled(self) -> list[str]:
        """Names of modules of the model whose forward did not run."""
        modules = self.model.named_modules() if self.model is not None else ()
        ran = {path for row in self.rows("all") for path in prefixes(row.module)}
        return [
            name
            for name, module in modules
            if name
            and id(module) not in self.called
            and not ran.intersection((name, f"{type(self.model).__name__}.{name}"))
        ]

    def table(self, depth: int | None = 3, view: str = "matrix") -> str:
        """The module tree with counts by pass and column, then the operators."""
        rows, headings = self.rows(view), ["module", "model", "%", *COLUMNS[1:]]
        phases = [
            p
            for p in ("forward", "backward", "recompute", "optimizer")
            if any(r.phase == p and r.executed for r in rows)
        ]
        total = sum(r.model for r in rows)
        lines = [line(rows, "total", {}, phases, total)]
        counted = [r.module for r in rows if r.executed]
        for path in ordered([p for module in counted for p in prefixes(module, depth)]):
            name = "  " * path.count(".") + path.rpartition(".")[2]
            lines.append(line(rows, name, {"module": path}, phases, total))
        operators = [
            [name, *line(rows, name, {"primitive": name}, phases, total)[1:]]
            for name in self.by("primitive", view, "executed")
        ]
        tail = [*phases, "bytes", "calls"]
        skipped = ", ".join(f"{name} {n}" for name, n in sorted(self.uncounted(view).items()))
        unit = "MACs" if self.multiply_add == 1 else "FLOPs, a multiply-add is 2"
        return (
            f"{'products and convolutions' if view == 'matrix' else 'all primitives'}, {unit}\n"
            f"{table([*headings, *tail], lines)}\n\n"
            f"{table(['operator', *headings[1:], *tail], operators)}\n"
            + (f"\nnot counted (calls): {skipped}\n" if skipped else "")
        )

    def __str__(self) -> str:
        return self.table()


def split_loops(counted: list[tuple[Call, Origin, int]]) -> Iterator[tuple[Call, Origin, int]]:
    """(call, origin, how often); a loop is replaced by the calls in its body."""
    for call, origin, calls in counted:
        if call.primitive.parts is None:
            yield call, origin, calls
            continue
        for part, times, is_again in call.primitive.parts(*call.specs, **call.attrs):
            place = origin._replace(phase="recompute") if is_again else origin
            yield from split_loops([(part, place, times * calls)])


def counting(counts: dict[Any, Any], thread: int) -> Callable[..., Any]:
    """The counter's `op`: a function with all its variables bound, because it runs at each call."""

    def op(call, result, begin_ns):
        now = state.__dict__
        if now["thread"] == thread:
            key = call, origin_of(now["scope"], now["phase"])
            count = counts.get(key)
            if count is None:
                counts[key] = [1]
            else:
                count[0] += 1

    return op


def line(
    rows: list[Counted], name: str, where: dict[Any, Any], phases: list[str], total: int
) -> list[str]:
    matches = [r for r in rows if fits(r, where)]
    columns = (*COLUMNS, "bytes", "calls")
    model, algorithmic, executed, moved, calls = (
        sum(getattr(r, c) for r in matches) for c in columns
    )
    by_phase = [si_text(sum(r.executed for r in matches if r.phase == p)) for p in phases]
    return [
        name,
        si_text(model),
        percent(model, total),
        si_text(algorithmic),
        si_text(executed),
        *by_phase,
        si_text(moved, "B"),
        f"{calls:,}",
    ]


def ordered(paths: list[str]) -> list[str]:
    """Paths with each module before the modules in it, in the order in which they come."""
    place = {path: i for i, path in enumerate(dict.fromkeys(paths))}
    return sorted(place, key=lambda path: [place.get(p, 0) for p in prefixes(path)])


def prefixes(path: str, depth: int | None = None) -> list[str]:
    """The path of a module and of those it lies in, the outermost first."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))][:depth]


def by_path(pairs: Iterable[Any], depth: int | None) -> Counter[Any]:
    """The sums of (module, number) by module, each with all below it."""
    sums: Counter[Any] = Counter()
    for module, n in pairs:
        for path in prefixes(module or OUTSIDE, depth):
            sums[path] += n
    return sums


def is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(outer + ".")


def fits(row: Counted, where: dict[Any, Any]) -> bool:
    return all(
        is_within(row.module, value) if part == "module" else getattr(row, part) == value
        for part, value in where.items()
    )


def check_one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    check_known("FlopCounter", f"one of {', '.join(choices)} as {what}", value, choices)
