"""Emission of C: one function per fused kernel.

A kernel runs over rows of its domain: the innermost axis in memory is the vector loop, the others
are shared out to the cores. A kernel that reduces the innermost axis sweeps each row once per
dependent reduction, while the row is in cache; one that reduces outer axes adds rows up block by
block. Sums of float32 go in float32 over at most `BLOCK` rows or `CHUNK` elements, and from there
in float64. Their order depends on the shape alone, not on the number of threads or on the kernel's
other results, and no product is fused into a sum: a value has the same bits in every kernel."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from glasshouse.base.flags import flags
from glasshouse.compile.kernels.c_text import compute_type, guarded, memory_type, rounded
from glasshouse.compile.kernels.expr_writer import ExprWriter
from glasshouse.compile.kernels.kernel_cache import IF_PARALLEL
from glasshouse.compile.kernels.kernel_pattern import (
    SCRATCH_BYTES,
    KernelPattern,
    KernelTemplate,
    add_template,
    templates,
)
from glasshouse.compile.kernels.kernel_writer import PARALLEL, canonical, size_line
from glasshouse.compile.kernels.loops import (
    BLOCK,
    CHUNK,
    LANES,
    MAX_BLOCKS,
    KernelLoops,
    Loop,
    sweeps_of,
)
from glasshouse.compile.kernels.reductions import combined, start, total_type
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.expr import Expr, walk
from glasshouse.compile.steps.steps import FusedKernel, PlannedBuffer, Root

SCRATCH_COST = 8  # an expression this costly is kept between sweeps


def emit(kernel: FusedKernel) -> EmittedStep:
    """Build the step of a kernel; a kernel of a known pattern reuses its text."""
    pattern = KernelPattern(kernel, KernelLoops(kernel))
    template = templates.get(pattern.key)
    if template is None:
        template = KernelEmitter(kernel, pattern).emit()
        add_template(pattern, template)
    elif flags.verify:
        fresh = KernelEmitter(kernel, pattern).emit()
        assert pattern.filled(fresh) == pattern.filled(template), "emit: another text"
    return pattern.filled(template)


class KernelEmitter(ExprWriter):
    """Writes one kernel."""

    def __init__(self, kernel: FusedKernel, pattern: KernelPattern) -> None:
        super().__init__(pattern)
        self.kernel = kernel
        self.scratch: dict[int, str] = {}
        self.filled: set[int] = set()  # the scratch rows that hold their values

    def emit(self) -> KernelTemplate:
        for root in self.kernel.roots:
            if not root.local:
                self.pointer(root.store)
        self.sweeps: list[list[Root]] = sweeps_of(self.kernel)
        if self.kernel.axes is None:
            self.emit_map()
        elif not self.inner_reduced:
            self.emit_columns()
        elif self.loops.has_rows:
            self.emit_rows()
        else:
            self.emit_split()
        text = canonical("\n".join([*self.head(), *self.lines]) + "\n")
        helpers = "".join(map(guarded, self.helpers))
        sources = [self.sources[name] for name in self.sizes]
        return KernelTemplate(CKernel(text, helpers), self.arg_sources(), sources)

    def head(self) -> list[str]:
        """The lines that take the arguments."""
        lines = []
        for k, (name, value) in enumerate(self.sizes.items(), len(self.args)):
            # A multiple of the vector's length needs no loop over a remainder.
            alignment = f" & -{LANES}" if name == "n_i" and value % LANES == 0 else ""
            lines.append(size_line(name, k, alignment))
        for k, what in enumerate(self.args):
            if isinstance(what[0], PlannedBuffer):
                lines.append(f"  {memory_type(what[0].dtype)} *b{k} = a[{k}];")
            elif what[0] == "scalar":
                lines.append(f"  {self.scalar_text(k, what[2])}")
            else:
                lines.append(f"  int64_t *b{k} = a[{k}];")
        return lines

    def arg_sources(self) -> list[tuple[str, int] | None]:
        """Sources of the arguments before the sizes, in the pattern."""
        pattern = self.pattern
        return [
            None
            if what == ("error", 0)
            else ("scalar", pattern.scalars[what[1:]])
            if what[0] == "scalar"
            else ("pointer", pattern.pointers[what])
            for what in self.args
        ]

    # -- loops ---------------------------------------------------------------------------------

    def shared(self, collapsed: str = "") -> str:
        """Pragma of a loop that cores share if there is enough work."""
        self.size("parallel", int(self.loops.is_parallel), "parallel")
        return f"#pragma omp {PARALLEL}{collapsed}{IF_PARALLEL}"

    @contextmanager
    def rows(self, parallel: bool) -> Iterator[None]:
        """Open the loops over all rows, which cores share."""
        if parallel and self.kept:
            self.put(self.shared(f" collapse({len(self.kept)})" if len(self.kept) > 1 else ""))
        with ExitStack() as nest:
            for loop in self.kept:
                nest.enter_context(self.loop(loop.name, self.extent(loop)))
            if not self.kept:
                nest.enter_context(self.block(""))
            yield

    @contextmanager
    def rows_between(self, first: str, last: str, loops: "list[Loop]") -> Iterator[None]:
        """Open a loop over rows by their number; the index of each loop is counted, not divided."""
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
        """Write a kernel without reductions: every row by itself; a single long row in chunks."""
        (inner,) = self.inner
        roots = [root for sweep in self.sweeps for root in sweep]
        n = self.extent(inner)
        if len(roots) == 1 and is_copy(roots[0]):  # such as a scatter's first step
            source, target = self.pointer(roots[0].expr.view), self.pointer(roots[0].store)
            self.put(f"if ({source} == {target}) return;  // donated memory")
        if not self.kept and inner.size > CHUNK:
            step = f"lo += {CHUNK}"
            self.put(self.shared())
            with self.block(f"for (int64_t lo = 0; lo < {n}; {step})"):
                self.row_of_stores(roots, *self.part_of(CHUNK, n))
        else:
            with self.rows(True):
                self.row_of_stores(roots, "0", n)

    def row_of_stores(self, roots: list[Root], lo: str, hi: str) -> None:
        exprs = [root.expr for root in roots]
        self.declare(exprs, False)
        self.draw_words(exprs, lo, hi)
        with self.loop("i", hi, lo, pragma="simd"):
            self.take_in(roots, exprs, "")

    def draw_words(self, exprs: "list[Expr]", lo: str, hi: str) -> None:
        """Draw the random words of a part of a row, four at a time, before its loop. The loop draws
        one by one in short or long rows, and where words are not neighbours along a row."""
        if not self.pattern.draws_rows():
            return
        (inner,), at = self.inner, "i" if lo == "0" else f"i - {lo}"
        for expr in walk(exprs, lambda e: e.number in self.names or e.number in self.filled):
            number = expr.number
            if expr.op != "random" or number in self.names or inner.stride(expr.view) != 1:
                continue
            first = " + ".join([*self.terms((*self.kept, *self.summed), expr.view), lo])
            count = hi if lo == "0" else f"{hi} - {lo}"
            keys = [self.names[a.number] for a in expr.args]
            arguments = ", ".join([first, count, *keys, f"room{number}"])
            self.put(f"uint32_t room{number}[GH_WORDS({count})];")
            self.put(f"const uint32_t *words{number} = gh_random_row({arguments});")
            self.names[number] = f"words{number}[{at}]"
            self.scopes[-1].append(number)

    def emit_rows(self) -> None:
        """Write reductions along the row: one sweep after the other, while the row is in cache."""
        with self.rows(True):
            self.plan_scratch()
            for sweep in self.sweeps:
                self.emit_sweep(sweep)

    def plan_scratch(self) -> None:
        """Plan rows of scratch memory for costly values that a later sweep reads again."""
        inner, count = self.inner[0].size, self.extent(self.inner[0])
        if self.summed or len(self.sweeps) < 2:
            return
        earlier: set[int] = set()
        for sweep in self.sweeps:
            exprs = [root.expr for root in sweep]
            stop = {e.number for e in walk(exprs) if e.number in earlier and e.cost > SCRATCH_COST}
            for expr in walk(exprs, lambda e, stop=stop: e.number in stop, include=True):
                fits = inner * expr.dtype.itemsize <= SCRATCH_BYTES
                is_needed = expr.number in stop and expr.number not in self.scratch
                if is_needed and fits and self.is_inner(expr):
                    name = self.scratch[expr.number] = f"kept{expr.number}"
                    self.put(f"{compute_type(expr.dtype)} {name}[{count}];")
            earlier |= {e.number for e in walk(exprs)}

    def emit_sweep(self, sweep: list[Root]) -> None:
        """Write one pass over a row: the reductions and results of one level."""
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

    def sums_of_row(self, sweep: list[Root], exprs: "list[Expr]", reductions: list[Root]) -> None:
        """Write the sums of a row, in pieces that are added up in float32."""
        end = self.extent(self.inner[0])
        if not reductions:
            with self.block(""):
                self.row_of_stores(sweep, "0", end)
        elif self.inner[0].size <= CHUNK:
            self.sums_of_part(sweep, exprs, reductions, "0", end)
        else:
            with self.block(f"for (int64_t lo = 0; lo < {end}; lo += {CHUNK})"):
                self.sums_of_part(sweep, exprs, reductions, *self.part_of(CHUNK, end))

    def sums_of_part(
        self, sweep: list[Root], exprs: "list[Expr]", reductions: list[Root], lo: str, hi: str
    ) -> None:
        """Write the vector loop of a sweep, and add its result to the totals. The order of sums
        does not depend on the compiler: each element goes to one of a few sums, `LANES` at most,
        which are added at the end. The last elements of an uneven row overlap with earlier ones."""
        size = self.inner[0].size
        lanes = min(LANES, 1 << size.bit_length() - 1)
        fresh = "k >= met" if size % lanes else ""
        with self.block(""):
            self.declare(exprs, False)
            self.draw_words(exprs, lo, hi)
            for root in reductions:
                c, begin = compute_type(root.expr.dtype), f"{{[0 ... {lanes - 1}] = {start(root)}}}"
                self.put(f"{c} s{root.number}[{lanes}] = {begin};")
            with self.block(f"for (int64_t at = {lo}; at < {hi}; at += {lanes})"):
                if fresh:
                    self.put(f"const int met = at + {lanes} <= {hi} ? 0 : at + {lanes} - {hi};")
                position = f"const int64_t i = at {'- met ' if fresh else ''}+ k;"
                widen(self, exprs, each := f"for (int k = 0; k < {lanes}; k++)", position)
                self.put("#pragma omp simd")
                with self.block(each):
                    self.put(position)
                    self.take_in(sweep, exprs, "[k]", fresh)
            for root in reductions:
                t, s = f"t{root.number}", f"s{root.number}"
                self.put(f"GH_HALVES({lanes}) {s}[k] = {combined(root, f'{s}[k]', f'{s}[k + h]')};")
                self.add(root, t, f"{s}[0]")

    def take_in(self, sweep: list[Root], exprs: "list[Expr]", at: str, fresh: str = "") -> None:
        """Write a sweep's work at a position of a row: add its values to the sums `at` it, or store
        them. Unless it is `fresh`, only work that may be repeated is done."""
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
        """Write the total of a reduction as a value, and store it if another step reads it."""
        number, c = root.number, compute_type(root.store.base.dtype)
        self.put(f"const {c} r{number} = {rounded(f'({c})t{number}', root.store.base.dtype)};")
        if not root.local:
            self.store(root, f"r{number}")

    def add_blocks(self, reductions: list[Root], blocks: str) -> None:
        """Add the blocks' partial results to the totals, in order."""
        for root in reductions:
            self.put(f"{total_type(root)} t{root.number} = {start(root)};")
            with self.loop("block", blocks):
                self.add(root, f"t{root.number}", f"part{root.number}[block]")
            self.finish(root)

    def emit_split(self) -> None:
        """Write reductions to few rows: each row in blocks, whose results are added in order."""
        inner = self.extent(self.inner[0])
        units = self.size("units", self.loops.units, "units")
        blocks = self.size("blocks", self.loops.split_blocks, "split_blocks")
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
            self.add_blocks(reductions, blocks)

    def emit_columns(self) -> None:
        """Write reductions along outer axes: rows are added up, in blocks that cores share."""
        (sweep,) = self.sweeps
        loops, inner = self.loops, self.extent(self.inner[0])
        rows, shared = self.size("rows", loops.summed_rows, "rows"), not loops.has_rows
        blocks = self.size("blocks", loops.column_blocks, "column_blocks") if shared else "1"
        reductions = [root for root in sweep if root.reduce]
        with self.rows(not shared):
            for root in reductions:
                c = total_type(root)
                self.put(f"{c} *part{root.number} = malloc(sizeof({c}) * {blocks} * {inner});")
            if shared:
                self.put(self.shared())
            with self.loop("block", blocks):
                self.block_of_columns(sweep, reductions, rows, blocks)
            self.add_rows_of_blocks(reductions, blocks, inner)
            for root in reductions:
                self.put(f"free(part{root.number});")

    def add_rows_of_blocks(self, reductions: list[Root], blocks: str, inner: str) -> None:
        """Add the blocks' rows of partial results to the first row, in order."""
        parts = [f"part{root.number}" for root in reductions]
        if blocks != "1":
            with self.loop("block", blocks, "1"), self.loop("i", inner, pragma="simd"):
                for root, part in zip(reductions, parts, strict=True):
                    self.add(root, f"{part}[i]", f"{part}[block * {inner} + i]")
        with self.loop("i", inner, pragma="simd"):
            for root, part in zip(reductions, parts, strict=True):
                self.put(f"const {total_type(root)} t{root.number} = {part}[i];")
                self.finish(root)

    def block_of_columns(
        self, sweep: list[Root], reductions: list[Root], rows: str, blocks: str
    ) -> None:
        """Write the rows of one block: short runs of them in a row of accumulators."""
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
                self.draw_words(exprs, "0", inner)
                with self.loop("i", inner, pragma="simd"):
                    self.take_in(sweep, exprs, "[i]")
            with self.loop("i", inner, pragma="simd"):
                for root in reductions:
                    self.add(root, f"t{root.number}[i]", f"s{root.number}[i]")
        for root in reductions:
            self.put(f"free(s{root.number});")


def widen(writer: KernelEmitter, exprs: "list[Expr]", each: str, position: str) -> None:
    """Read narrow elements of a part of a row before its loop, as float32 or int32: gcc takes
    shorter vectors for all of a loop in which one of `LANES` narrow elements is short."""
    is_wide = any(x.dtype.itemsize >= 4 or x.dtype.is_floating for x in exprs)
    for expr in walk(exprs, lambda e: e.number in writer.names or e.number in writer.filled):
        is_narrow = expr.op == "load" and expr.dtype.itemsize < 4
        if is_wide and is_narrow and writer.is_inner(expr):
            name = f"wide{expr.number}"
            writer.put(f"{'float' if expr.dtype.is_floating else 'int32_t'} {name}[{LANES}];")
            writer.put(f"{each} {{ {position} {name}[k] = {writer.text_of(expr)}; }}")
            writer.names[expr.number] = f"{name}[k]"
            writer.scopes[-1].append(expr.number)


def is_copy(root: Root) -> bool:
    """Whether a result is a value of memory as it is."""
    return root.expr.op == "load" and root.expr.dtype == root.store.base.dtype
