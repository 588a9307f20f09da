"""Expressions in C: the statements of a fused kernel for the values that it computes."""

from glasshouse.base.dtype import DType
from glasshouse.compile.kernels.c_text import (
    SUFFIX,
    CardCall,
    bitcast_text,
    compute_type,
    kernel_of,
    literal,
    loaded,
    rounded,
    stored_exactly,
    text_of_call,
)
from glasshouse.compile.kernels.kernel_pattern import KernelPattern, counted
from glasshouse.compile.kernels.kernel_writer import KernelWriter
from glasshouse.compile.kernels.loops import KernelLoops, Loop
from glasshouse.compile.steps.expr import Expr, walk
from glasshouse.compile.steps.steps import Root
from glasshouse.compile.steps.view import View


class ExprWriter(KernelWriter):
    """Writes expressions at the current position of some loops."""

    loops: "KernelLoops"
    kept: list[Loop]
    summed: list[Loop]
    inner: list[Loop]

    def __init__(self, pattern: KernelPattern) -> None:
        super().__init__(pattern)
        loops = self.loops = pattern.loops
        self.kept, self.summed, self.inner = loops.kept, loops.summed, loops.inner
        self.inner_reduced: bool = loops.inner_reduced
        self.inner_by_number: dict[int, bool] = {}  # results of `is_inner`
        self.helpers: dict[str, None] = {}  # C that the texts of cards need

    # -- positions -----------------------------------------------------------------------------

    def index(self, view: View) -> str:
        """Index of the element of a buffer that a view shows at the current position."""
        terms = self.terms((*self.kept, *self.summed, *self.inner), view)
        return " + ".join(terms) or "0"

    def terms(self, loops: tuple[Loop, ...], view: View) -> list[str]:
        """Terms of the index of a view's element: the positions of loops, and the view's offset."""
        terms = []
        for loop in loops:
            step = loop.stride(view)
            if step:
                terms.append(loop.name if step == 1 else f"{loop.name} * {self.distance(step)}")
        if view.base is None and view.offset:
            terms.append(self.distance(view.offset))
        return terms

    def extent(self, loop: Loop) -> str:
        """Number of positions of a loop."""
        return self.size(f"n_{loop.name}", loop.size, "loop", self.loops.all.index(loop))

    def pointer(self, view: View) -> str:
        return self.arg((view.base, view.offset))

    # -- values --------------------------------------------------------------------------------

    def is_inner(self, expr: Expr) -> bool:
        """Whether a value changes along the innermost loop."""
        if expr.number not in self.inner_by_number:
            moves = expr.view is not None and any(x.stride(expr.view) for x in self.inner)
            if expr.op == "reduced":
                moves = not self.inner_reduced
            self.inner_by_number[expr.number] = moves or any(map(self.is_inner, expr.args))
        return self.inner_by_number[expr.number]

    def declare(self, roots: list[Expr], inner: bool) -> None:
        """Declare all parts of `roots` that do, or do not, change along the inner loop."""
        for expr in walk(roots, lambda e: e.number in self.names):
            if expr.number in self.names or self.is_inner(expr) != inner:
                declare_row(self, expr, inner)
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
            return rounded(f"({compute_type(dtype)})({self.index(expr.view)})", dtype)
        args = [self.names[a.number] for a in expr.args]
        if op == "random":
            return f"gh_random((uint64_t)({self.index(expr.view)}), {', '.join(args)})"
        if op == "gather":
            return self.gather_text(expr)
        if op == "part":
            return f"gh_part_{SUFFIX[expr.args[0].dtype.name]}({args[0]}, {self.index(expr.view)})"
        if op == "complex":
            return f"__builtin_complex({args[0]}, {args[1]})"
        if op == "bitcast":
            return bitcast_text(args[0], expr.args[0].dtype, dtype)
        if kernel_of(op).helpers:
            self.helpers[kernel_of(op).helpers] = None
        return text_of_call(call_of_expr(expr), args)

    def constant(self, value: float, dtype: DType) -> str:
        """Write a number; whole ones that may count elements are arguments."""
        number = counted(value, dtype)
        if number is None:
            return literal(value, dtype)
        count = self.size(f"count{len(self.sizes)}", number, "count")
        return rounded(f"(({compute_type(dtype)}){count})", dtype)

    def gather_text(self, expr: Expr) -> str:
        stride, table = expr.value[0], self.pointer(expr.view)
        at = self.names.get((expr.number, "row")) or row_text(self, expr)
        element = f"{table}[{self.index(expr.view)} + {self.distance(stride)} * {at}]"
        return loaded(element, expr.dtype)

    def store(self, root: Root, name: str, only: str = "") -> None:
        target = f"{self.pointer(root.store)}[{self.index(root.store)}]"
        self.put(f"{only}{target} = {stored_exactly(name, root.store.base.dtype)};")

    def scalar_text(self, k: int, dtype: DType) -> str:
        """A scalar argument as a local constant of its dtype."""
        c, whole = compute_type(dtype), "uint64_t" if dtype.kind == "uint" else "int64_t"
        argument = f"*({'double' if dtype.is_floating else whole} *)a[{k}]"
        return f"const {c} b{k} = {rounded(f'({c}){argument}', dtype)};"


def call_of_expr(expr: Expr) -> CardCall:
    operands = tuple(a.dtype for a in expr.args)
    return CardCall(expr.op, operands, expr.dtype, expr.value or ())


def declare_row(writer: ExprWriter, expr: Expr, inner: bool) -> None:
    """Look up before the inner loop which row a gather reads, where all of it reads the same: the
    check of an index keeps a loop from being done in vectors."""
    row = expr.number, "row"
    is_same = expr.op == "gather" and writer.is_inner(expr) and not writer.is_inner(expr.args[0])
    if is_same and not inner and row not in writer.names and expr.args[0].number in writer.names:
        name = f"row{expr.number}"
        writer.put(f"const int64_t {name} = {row_text(writer, expr)};")
        writer.names[row] = name
        writer.scopes[-1].append(row)


def row_text(writer: ExprWriter, expr: Expr) -> str:
    """The number of the row that a gather reads, which is checked."""
    assert expr.view is not None
    rows = writer.size(f"rows{writer.pointer(expr.view)[1:]}", expr.value[1], "table")
    position = writer.names[expr.args[0].number]
    return f"gh_index((int64_t){position}, {rows}, {writer.arg(('error', 0))})"
