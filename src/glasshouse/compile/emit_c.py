"""Emission of C: one function per fused kernel.

A kernel runs over rows of its domain: the innermost axis in memory is the vector loop, the others
are shared out to the cores. A kernel that reduces the innermost axis sweeps each row once per
dependent reduction, while the row is in cache; one that reduces outer axes adds rows up block by
block. Sums of float32 go in float32 over at most `BLOCK` rows or `CHUNK` elements, and from there
in float64. Their order depends on the shape alone, not on the number of threads or on what else the
kernel computes, and no product is fused into a sum: a value has the same bits in every kernel.

Sizes are arguments, so that kernels which differ in them alone have one text: `n_i` is how many
positions the loop over i has, `step0` a number of elements between two of them in memory,
`parallel` whether the cores share the work. How a row is cut stands in the text. kernel_cache.py
decides for which of the sizes a text is compiled."""

import re
from contextlib import ExitStack, contextmanager
from math import prod

from glasshouse.base.dtype import DType
from glasshouse.compile.c_text import (
    SUFFIX,
    CardCall,
    bitcast_text,
    compute_type,
    guarded,
    kernel_of,
    literal,
    loaded,
    memory_type,
    rounded,
    stored,
    text_of_call,
)
from glasshouse.compile.emitted import CKernel, EmittedStep
from glasshouse.compile.expr import Expr, walk
from glasshouse.compile.kernel_cache import IF_PARALLEL
from glasshouse.compile.steps import FusedKernel, PlannedBuffer, Root, kernel_order
from glasshouse.compile.view import View

SIGNS = {"sum": "+", "prod": "*", "any": "|", "all": "&"}  # of reductions
PARALLEL = "parallel for schedule(static)"
PARALLEL_WORK = 20_000  # cycles or so below which starting the other cores costs more than it saves
CHUNK = 4096  # elements that one thread takes at a time from a row without outer axes
LANES = 16  # sums that the elements of a row go to in turn, a power of two
BLOCK = 128  # rows that are added up in float32 before going on in float64
MAX_WHOLE = 1 << 53  # whole numbers that a float64 has exactly
MAX_BLOCKS = 256  # of rows whose sums are added up apart
MAX_PARTIALS = 1 << 20  # elements of partial results that a kernel may keep
SCRATCH_BYTES = 1 << 16  # of a row that is kept between two sweeps
SCRATCH_COST = 8  # an expression this costly is kept between sweeps


def emit(kernel: FusedKernel) -> EmittedStep:
    return KernelEmitter(kernel).emit()


class KernelEmitter:
    def __init__(self, kernel: FusedKernel):
        self.kernel = kernel
        self.args: list = []
        self.sizes: dict[str, int] = {}  # arguments by name
        self.lines: list[str] = []
        self.names: dict[int, str] = {}  # expression -> C name, in the open scopes
        self.scopes: list[list[int]] = []
        self.indent = 1
        self.scratch: dict[int, str] = {}
        self.inner_known: dict[int, bool] = {}  # what `is_inner` found
        self.helpers: dict[str, None] = {}  # C that the texts of cards need
        self.filled: set[int] = set()  # the scratch rows that hold their values
        self.set_loops()

    # -- loops ---------------------------------------------------------------------------------

    def set_loops(self) -> None:
        """The loops: axes of the domain in memory order, kept ones first, neighbours merged."""
        kernel, axes = self.kernel, self.kernel.axes or ()
        order = [i for i in kernel_order(kernel) if kernel.domain[i] > 1]
        reduced = [i for i in order if i in axes]
        self.inner_reduced = kernel.axes is not None and (not reduced or order[-1] in axes)
        inside: list[int] = []
        if axes and not self.inner_reduced:
            inside = [i for i in order[order.index(reduced[0]) :] if i not in axes]
        groups = [[i for i in order if i not in (*axes, *inside)], reduced, inside]
        shown = [e.view for e in walk(root.expr for root in kernel.roots) if e.view is not None]
        views = [*(root.store for root in kernel.roots), *shown]
        kept, summed, inner = (merge_axes(group, kernel.domain, views) for group in groups)
        if axes and not self.inner_reduced:
            kept, inner = kept + inner[:-1], inner[-1:]
        elif axes:
            summed, inner = summed[:-1], summed[-1:]
        else:
            kept, inner = kept[:-1], kept[-1:]
        self.kept, self.summed, self.inner = kept, summed, inner or [Loop((), 1)]
        for name, loops in (("p", kept), ("q", summed)):
            for k, loop in enumerate(loops):
                loop.name = f"{name}{k}"

    def index(self, view: View) -> str:
        """The element of a buffer that a view shows at the current position."""
        terms = []
        for loop in (*self.kept, *self.summed, *self.inner):
            step = loop.stride(view)
            if step:
                terms.append(loop.name if step == 1 else f"{loop.name} * {self.distance(step)}")
        if view.base is None and view.offset:
            terms.append(self.distance(view.offset))
        return " + ".join(terms) or "0"

    def distance(self, elements: int) -> str:
        """A number of elements in memory; equal ones are one argument."""
        steps = [name for name in self.sizes if name.startswith("step")]
        equal = (name for name in steps if self.sizes[name] == elements)
        return next(equal, None) or self.size(f"step{len(steps)}", elements)

    def extent(self, loop: "Loop") -> str:
        """How many positions a loop has."""
        return self.size(f"n_{loop.name}", loop.size)

    def size(self, name: str, value: int) -> str:
        """An argument of this name; a single position, and a step of one, as they are."""
        if abs(value) == 1 and name.startswith(("n_", "step")):
            return str(value)
        while self.sizes.get(name, value) != value:
            name += "_"
        self.sizes[name] = value
        return name

    # -- text ----------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    @contextmanager
    def block(self, text: str):
        """Braces around what is put meanwhile; the names of values in them end there."""
        self.put(text + " {")
        self.indent += 1
        self.scopes.append([])
        yield
        self.indent -= 1
        for number in self.scopes.pop():
            self.names.pop(number, None)
        self.put("}")

    def loop(self, name: str, stop, start="0", pragma: str = ""):
        """The block of a loop that counts up."""
        if pragma:
            self.put(f"#pragma omp {pragma}")
        return self.block(f"for (int64_t {name} = {start}; {name} < {stop}; {name}++)")

    def part_of(self, count: int, end) -> tuple[str, str]:
        """The bounds of up to `count` positions from `lo` on."""
        self.put(f"const int64_t hi = lo + {count} < {end} ? lo + {count} : {end};")
        return "lo", "hi"

    def pointer(self, view: View) -> str:
        return self.arg((view.base, view.offset))

    def arg(self, what) -> str:
        """The name of a pointer or scalar argument."""
        if what not in self.args:
            self.args.append(what)
        return f"b{self.args.index(what)}"

    def emit(self) -> EmittedStep:
        for root in self.kernel.roots:
            if not root.local:
                self.pointer(root.store)
        self.sweeps = self.plan_sweeps()
        size = prod(self.kernel.domain)
        self.parallel = size * max(r.expr.cost for r in self.kernel.roots) > PARALLEL_WORK
        self.has_rows = prod(loop.size for loop in self.kept) >= 4 or size <= CHUNK
        if self.kernel.axes is None:
            self.emit_map()
        elif not self.inner_reduced:
            self.emit_columns()
        elif self.has_rows:
            self.emit_rows()
        else:
            self.emit_split()
        head = []
        for k, (name, value) in enumerate(self.sizes.items(), len(self.args)):
            # A multiple of the vector's length needs no loop over what is left.
            alignment = f" & -{LANES}" if name == "n_i" and value % LANES == 0 else ""
            head.append(size_line(name, k, alignment))
        for k, what in enumerate(self.args):
            if isinstance(what[0], PlannedBuffer):
                head.append(f"  {memory_type(what[0].dtype)} *b{k} = a[{k}];")
            elif what[0] == "scalar":
                head.append(f"  {self.scalar_text(k, what[2])}")
            else:
                head.append(f"  int64_t *b{k} = a[{k}];")
        text = canonical("\n".join([*head, *self.lines]) + "\n")
        helpers = "".join(map(guarded, self.helpers))
        args = [*(what[:2] for what in self.args), *(("size", n) for n in self.sizes.values())]
        return EmittedStep(args, CKernel(text, helpers))

    def scalar_text(self, k: int, dtype: DType) -> str:
        """A scalar argument as a local constant of its dtype."""
        c, whole = compute_type(dtype), "uint64_t" if dtype.kind == "uint" else "int64_t"
        given = f"*({'double' if dtype.is_floating else whole} *)a[{k}]"
        return f"const {c} b{k} = {rounded(f'({c}){given}', dtype)};"

    # -- expressions ---------------------------------------------------------------------------

    def is_inner(self, expr: Expr) -> bool:
        """Whether a value changes along the innermost loop."""
        if expr.number not in self.inner_known:
            moves = expr.view is not None and any(x.stride(expr.view) for x in self.inner)
            if expr.op == "reduced":
                moves = not self.inner_reduced
            self.inner_known[expr.number] = moves or any(map(self.is_inner, expr.args))
        return self.inner_known[expr.number]

    def declare(self, roots, inner: bool) -> None:
        """Statements for all parts of `roots` that do, or do not, change along the inner loop."""
        for expr in walk(roots, lambda e: e.number in self.names):
            if expr.number in self.names or self.is_inner(expr) != inner:
                continue
            text = self.text_of(expr)
            if expr.op not in ("full", "scalar") and not text.isidentifier():
                self.put(f"const {compute_type(expr.dtype)} v{expr.number} = {text};")
                text = f"v{expr.number}"
            self.names[expr.number] = text
            self.scopes[-1].append(expr.number)

    def text_of(self, expr: Expr) -> str:
        op, dtype = expr.op, expr.dtype
        if op == "load":
            return loaded(f"{self.pointer(expr.view)}[{self.index(expr.view)}]", dtype)
        if op == "full":
            return self.constant(expr.value, dtype)
        if op == "scalar":
            return self.arg(("scalar", expr.value, dtype))
        if op == "reduced":
            return f"r{expr.value}"
        if op == "iota":
            return f"({compute_type(dtype)})({self.index(expr.view)})"
        args = [self.names[a.number] for a in expr.args]
        if op == "random":
            return f"gh_random((uint64_t)({self.index(expr.view)}), {', '.join(args)})"
        if op == "gather":
            return self.gather_text(expr, args[0])
        if op == "bitcast":
            return bitcast_text(args[0], expr.args[0].dtype, dtype)
        if kernel_of(op).helpers:
            self.helpers[kernel_of(op).helpers] = None
        return text_of_call(call_of_expr(expr), args)

    def constant(self, value, dtype: DType) -> str:
        """A number; whole ones that may count something are arguments."""
        if dtype.is_bool:
            return literal(value, dtype)
        number = int(value) if dtype.is_integer else float(dtype.np.type(value))
        if not (LANES <= abs(number) < MAX_WHOLE and number == int(number)):
            return literal(value, dtype)
        return f"(({compute_type(dtype)}){self.size(f'count{len(self.sizes)}', int(number))})"

    def gather_text(self, expr: Expr, position: str) -> str:
        stride, size = expr.value
        error, table = self.arg(("error", 0)), self.pointer(expr.view)
        rows = self.size(f"rows{table[1:]}", size)
        at = f"gh_index((int64_t){position}, {rows}, {error})"
        element = f"{table}[{self.index(expr.view)} + {self.distance(stride)} * {at}]"
        return loaded(element, expr.dtype)

    def store(self, root: Root, name: str, only="") -> None:
        target = f"{self.pointer(root.store)}[{self.index(root.store)}]"
        self.put(f"{only}{target} = {stored(name, root.store.base.dtype)};")

    # -- sweeps --------------------------------------------------------------------------------

    def plan_sweeps(self) -> list[list[Root]]:
        """The roots by the number of reductions, each needing the one before, that they need."""
        level: dict[int, int] = {}
        level_of_result: dict[int, int] = {}
        sweeps: list[list[Root]] = []
        for root in self.kernel.roots:
            for expr in walk([root.expr]):
                own = level_of_result.get(expr.value, -1) + 1 if expr.op == "reduced" else 0
                level[expr.number] = max([own, *(level[a.number] for a in expr.args)])
            at = level[root.expr.number]
            if root.reduce is not None:
                level_of_result[root.number] = at
            elif root.local:
                continue
            while len(sweeps) <= at:
                sweeps.append([])
            sweeps[at].append(root)
        return [sweep for sweep in sweeps if sweep]

    def shared(self, collapsed: str = "") -> str:
        """The pragma of a loop that cores share if there is enough work."""
        self.sizes["parallel"] = int(self.parallel)
        return f"#pragma omp {PARALLEL}{collapsed}{IF_PARALLEL}"

    @contextmanager
    def rows(self, parallel: bool):
        """The loops over all rows, which cores share."""
        if parallel and self.kept:
            self.put(self.shared(f" collapse({len(self.kept)})" if len(self.kept) > 1 else ""))
        with ExitStack() as nest:
            for loop in self.kept:
                nest.enter_context(self.loop(loop.name, self.extent(loop)))
            if not self.kept:
                nest.enter_context(self.block(""))
            yield

    @contextmanager
    def rows_between(self, first: str, last: str, loops):
        """The loop over rows by their number, with the index of each loop: counted, not divided."""
        if len(loops) < 2:
            with self.loop(loops[0].name if loops else "u", last, first):
                yield
            return
        self.put(f"int64_t rest = {first};")
        for loop in reversed(loops[1:]):
            self.put(f"int64_t {loop.name} = rest % {self.extent(loop)};")
            self.put(f"rest /= {self.extent(loop)};")
        self.put(f"int64_t {loops[0].name} = rest;")
        following = f"{loops[0].name}++;"
        for loop in loops[1:]:
            name = loop.name
            following = f"if (++{name} == {self.extent(loop)}) {{ {name} = 0; {following} }}"
        with self.loop("u", last, first):
            yield
            self.put(following)

    def emit_map(self) -> None:
        """No reduction: every row by itself; a single long row in chunks."""
        (inner,) = self.inner
        roots = [root for sweep in self.sweeps for root in sweep]
        n = self.extent(inner)
        if not self.kept and inner.size > CHUNK:
            step = f"lo += {CHUNK}"
            self.put(self.shared())
            with self.block(f"for (int64_t lo = 0; lo < {n}; {step})"):
                self.row_of_stores(roots, *self.part_of(CHUNK, n))
        else:
            with self.rows(True):
                self.row_of_stores(roots, "0", n)

    def row_of_stores(self, roots, lo, hi) -> None:
        exprs = [root.expr for root in roots]
        self.declare(exprs, False)
        with self.loop("i", hi, lo, pragma="simd"):
            self.take_in(roots, exprs, "")

    def emit_rows(self) -> None:
        """Reductions along the row: one sweep after the other, while the row is in cache."""
        with self.rows(True):
            self.plan_scratch()
            for sweep in self.sweeps:
                self.emit_sweep(sweep)

    def plan_scratch(self) -> None:
        """Rows of costly values that a later sweep needs again."""
        inner, count = self.inner[0].size, self.extent(self.inner[0])
        if self.summed or len(self.sweeps) < 2:
            return
        earlier: set[int] = set()
        for sweep in self.sweeps:
            exprs = [root.expr for root in sweep]
            stop = {e.number for e in walk(exprs) if e.number in earlier and e.cost > SCRATCH_COST}
            for expr in walk(exprs, lambda e, stop=stop: e.number in stop, include=True):
                fits = inner * expr.dtype.itemsize <= SCRATCH_BYTES
                wanted = expr.number in stop and expr.number not in self.scratch
                if wanted and fits and self.is_inner(expr):
                    name = self.scratch[expr.number] = f"kept{expr.number}"
                    self.put(f"{compute_type(expr.dtype)} {name}[{count}];")
            earlier |= {e.number for e in walk(exprs)}

    def emit_sweep(self, sweep) -> None:
        """One pass over a row: the reductions and results of one level."""
        exprs = [root.expr for root in sweep]
        reductions = [root for root in sweep if root.reduce]
        for root in reductions:
            self.put(f"{total_type(root)} t{root.number} = {start(root)};")
        with ExitStack() as nest:
            for loop in self.summed:
                nest.enter_context(self.loop(loop.name, self.extent(loop)))
            self.sums_of_row(sweep, exprs, reductions)
        for root in reductions:
            self.finish(root)

    def sums_of_row(self, sweep, exprs, reductions) -> None:
        """The sums of a row, so much of it at a time as is added up in float32."""
        end = self.extent(self.inner[0])
        if not reductions:
            with self.block(""):
                self.row_of_stores(sweep, "0", end)
        elif self.inner[0].size <= CHUNK:
            self.sums_of_part(sweep, exprs, reductions, "0", end)
        else:
            with self.block(f"for (int64_t lo = 0; lo < {end}; lo += {CHUNK})"):
                self.sums_of_part(sweep, exprs, reductions, *self.part_of(CHUNK, end))

    def sums_of_part(self, sweep, exprs, reductions, lo: str, hi: str) -> None:
        """The vector loop of a sweep, and adding its result to the totals. The compiler is not to
        choose the order of sums: an element goes to one of a few, `LANES` at most, which are then
        added. The last of an uneven row are met together with some that were met before."""
        size = self.inner[0].size
        lanes = min(LANES, 1 << size.bit_length() - 1)
        fresh = "k >= met" if size % lanes else ""
        with self.block(""):
            self.declare(exprs, False)
            for root in reductions:
                c, begin = compute_type(root.expr.dtype), f"{{[0 ... {lanes - 1}] = {start(root)}}}"
                self.put(f"{c} s{root.number}[{lanes}] = {begin};")
            with self.block(f"for (int64_t at = {lo}; at < {hi}; at += {lanes})"):
                if fresh:
                    self.put(f"const int met = at + {lanes} <= {hi} ? 0 : at + {lanes} - {hi};")
                self.put("#pragma omp simd")
                with self.block(f"for (int k = 0; k < {lanes}; k++)"):
                    self.put(f"const int64_t i = at {'- met ' if fresh else ''}+ k;")
                    self.take_in(sweep, exprs, "[k]", fresh)
            for root in reductions:
                t, s = f"t{root.number}", f"s{root.number}"
                self.put(f"GH_HALVES({lanes}) {s}[k] = {combined(root, f'{s}[k]', f'{s}[k + h]')};")
                self.add(root, t, f"{s}[0]")

    def take_in(self, sweep, exprs, at: str, fresh="") -> None:
        """What a sweep does at a position of a row: its values go into the sums `at` it, or are
        stored; unless it is `fresh`, only what may be done twice is done."""
        for number, name in self.scratch.items():
            if number in self.filled:
                self.names[number] = f"{name}[i]"
                self.scopes[-1].append(number)
        self.declare(exprs, True)
        stores = not all(root.reduce for root in sweep)  # perhaps over what the sweep reads
        only = f"if ({fresh}) " if fresh and stores else ""
        for expr in walk(exprs):
            if expr.number in self.scratch and expr.number not in self.filled:
                self.put(f"{only}{self.scratch[expr.number]}[i] = {self.names[expr.number]};")
                self.filled.add(expr.number)
        for root in sweep:
            value, total = self.names[root.expr.number], f"s{root.number}{at}"
            if root.reduce:
                added = combined(root, total, value)
                if fresh and root.reduce in ("sum", "prod"):
                    added = f"{fresh} ? {added} : {total}"
                self.put(f"{total} = {added};")
            else:
                self.store(root, value, only)

    def add(self, root: Root, total: str, value: str) -> None:
        self.put(f"{total} = {combined(root, total, value)};")

    def finish(self, root: Root) -> None:
        """The total of a reduction as a value, and stored if somebody reads it."""
        number, c = root.number, compute_type(root.store.base.dtype)
        self.put(f"const {c} r{number} = {rounded(f'({c})t{number}', root.store.base.dtype)};")
        if not root.local:
            self.store(root, f"r{number}")

    def add_blocks(self, reductions, blocks: str, at: str) -> None:
        """The totals of the blocks' partial results, added in order."""
        for root in reductions:
            self.put(f"{total_type(root)} t{root.number} = {start(root)};")
            with self.loop("block", blocks):
                self.add(root, f"t{root.number}", f"part{root.number}[{at}]")
            self.finish(root)

    def emit_split(self) -> None:
        """Reductions that leave few rows: each row in blocks, whose results are added in order."""
        inner = self.extent(self.inner[0])
        count = prod(loop.size for loop in self.summed)
        count = count if self.summed else -(-self.inner[0].size // CHUNK)
        units = self.size("units", count)
        blocks = self.size("blocks", min(count, MAX_BLOCKS))
        (sweep,) = self.sweeps
        reductions = [root for root in sweep if root.reduce]
        exprs = [root.expr for root in sweep]
        with self.rows(False):
            for root in reductions:
                self.put(f"{total_type(root)} part{root.number}[{MAX_BLOCKS}];")
            self.put(self.shared())
            with self.loop("block", blocks):
                for root in reductions:
                    self.put(f"{total_type(root)} t{root.number} = {start(root)};")
                self.put(f"const int64_t first = block * {units} / {blocks};")
                self.put(f"const int64_t last = (block + 1) * {units} / {blocks};")
                with self.rows_between("first", "last", self.summed):
                    if self.summed:
                        self.sums_of_row(sweep, exprs, reductions)
                    else:
                        self.put(f"const int64_t lo = u * {CHUNK}LL;")
                        part = self.part_of(CHUNK, inner)
                        self.sums_of_part(sweep, exprs, reductions, *part)
                for root in reductions:
                    self.put(f"part{root.number}[block] = t{root.number};")
            self.add_blocks(reductions, blocks, "block")

    def emit_columns(self) -> None:
        """Reductions along outer axes: rows are added up, in blocks that cores share out."""
        (sweep,) = self.sweeps
        inner, count = self.extent(self.inner[0]), prod(loop.size for loop in self.summed)
        rows, shared = self.size("rows", count), not self.has_rows
        most = min(64, -(-count // BLOCK), MAX_PARTIALS // self.inner[0].size)
        blocks = self.size("blocks", max(1, most)) if shared else "1"
        reductions = [root for root in sweep if root.reduce]
        with self.rows(not shared):
            for root in reductions:
                c = total_type(root)
                self.put(f"{c} *part{root.number} = malloc(sizeof({c}) * {blocks} * {inner});")
            if shared:
                self.put(self.shared())
            with self.loop("block", blocks):
                self.block_of_columns(sweep, reductions, rows, blocks)
            with self.loop("i", inner, pragma="simd"):
                self.add_blocks(reductions, blocks, f"block * {inner} + i")
            for root in reductions:
                self.put(f"free(part{root.number});")

    def block_of_columns(self, sweep, reductions, rows: str, blocks: str) -> None:
        """The rows of one block: short runs of them in a row of accumulators."""
        inner = self.extent(self.inner[0])
        exprs = [root.expr for root in sweep]
        each = f"for (int64_t i = 0; i < {inner}; i++)"
        for root in reductions:
            number, c, total = root.number, compute_type(root.expr.dtype), total_type(root)
            self.put(f"{total} *t{number} = part{number} + block * {inner};")
            self.put(f"{c} *s{number} = malloc(sizeof({c}) * {inner});")
            self.put(f"{each} t{number}[i] = {start(root)};")
        self.put(f"const int64_t last = (block + 1) * {rows} / {blocks};")
        first = f"block * {rows} / {blocks}"
        with self.block(f"for (int64_t lo = {first}; lo < last; lo += {BLOCK})"):
            self.part_of(BLOCK, "last")
            for root in reductions:
                self.put(f"{each} s{root.number}[i] = {start(root)};")
            with self.rows_between("lo", "hi", self.summed):
                self.declare(exprs, False)
                with self.loop("i", inner, pragma="simd"):
                    self.take_in(sweep, exprs, "[i]")
            with self.loop("i", inner, pragma="simd"):
                for root in reductions:
                    self.add(root, f"t{root.number}[i]", f"s{root.number}[i]")
        for root in reductions:
            self.put(f"free(s{root.number});")


def size_line(name: str, number: int, alignment: str = "") -> str:
    """The line of a kernel that takes a size."""
    return f"  const int64_t {name} = (int64_t)a[{number}]{alignment};"


def canonical(text: str) -> str:
    """The text with names numbered in order of appearance, so that equal kernels read equal."""
    names: dict[str, str] = {}

    def rename(match):
        return names.setdefault(match[0], f"{match[1]}{len(names)}")

    return re.sub(r"\b(v|t|s|r|part|kept)\d+\b(?!\()", rename, text)


def decoded(flat: str, axes) -> list[str]:
    """Statements for the index of each axis (name, size) from the flat index over all of them."""
    lines, below = [], 1
    for k, (name, size) in reversed(list(enumerate(axes))):
        text = f"{flat} / {below}" if below != 1 else flat
        lines.append(f"const int64_t {name} = {f'({text}) % {size}' if k else text};")
        below *= size
    return lines


class Loop:
    """One loop over neighbouring axes that every view of the kernel crosses evenly."""

    def __init__(self, axes: tuple[int, ...], size: int, name: str = "i"):
        self.axes, self.size, self.name = axes, size, name

    def stride(self, view: View) -> int:
        """Elements that a view moves per step; that of its innermost axis."""
        return view.strides[self.axes[-1]] if self.axes else 0


def merge_axes(axes, domain, views) -> list[Loop]:
    """Loops over the axes, outermost first; neighbours merge where all views allow it."""
    loops: list[Loop] = []
    for axis in axes:
        if loops:
            last = loops[-1].axes[-1]
            if all(v.strides[last] == v.strides[axis] * domain[axis] for v in views):
                loops[-1] = Loop((*loops[-1].axes, axis), loops[-1].size * domain[axis])
                continue
        loops.append(Loop((axis,), domain[axis]))
    return loops


def call_of_expr(expr: Expr) -> CardCall:
    operands = tuple(a.dtype for a in expr.args)
    return CardCall(expr.op, operands, expr.dtype, expr.value or ())


# -- reductions -------------------------------------------------------------------------------


def total_type(root: Root) -> str:
    """What partial results are added up in: float64 for sums of floats."""
    wide = root.expr.dtype.is_floating and root.reduce in ("sum", "prod")
    return "double" if wide else compute_type(root.expr.dtype)


def start(root: Root) -> str:
    """The result of reducing nothing."""
    dtype = root.expr.dtype
    if root.reduce in SIGNS:
        return "1" if root.reduce in ("prod", "all") else "0"
    if dtype.is_floating:
        return "-INFINITY" if root.reduce == "max" else "INFINITY"
    name = dtype.name.replace("int", "INT").replace("u", "U")
    if root.reduce == "max":
        return "0" if dtype.kind == "uint" else f"{name}_MIN"
    return f"{name}_MAX"


def combined(root: Root, total: str, value: str) -> str:
    """A running result with `value` taken in."""
    op, dtype = str(root.reduce), root.expr.dtype
    if op in SIGNS:
        return f"{total} {SIGNS[op]} {value}"
    return f"gh_{op}imum_{SUFFIX[dtype.name]}({total}, {value})"
