"""Keys of the texts of fused kernels: equal kernels, and those of other sizes, are written once.

A model has the same kernel in each of its layers, and in each of its Programs for other sizes. The
text names sizes and pointers without their values, so it depends only on the expressions, on
which of the pointers and strides are equal, and on how rows are cut."""

from typing import Any, NamedTuple

from glasshouse.base.dtype import DType
from glasshouse.compile.kernels.loops import CHUNK, LANES, KernelLoops
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.expr import Expr
from glasshouse.compile.steps.steps import FusedKernel
from glasshouse.compile.steps.view import View
from glasshouse.dispatch.primitive import primitives

MAX_WHOLE = 1 << 53  # whole numbers that a float64 has exactly
SCRATCH_BYTES = 1 << 16  # of a row that is kept between two sweeps, or drawn at once
FEW_WORDS = 64  # of a row, below which blocks of random words are drawn word by word
MOST_TEMPLATES = 1 << 10  # texts of some KB each

SizeSource = tuple[str, int]  # an argument's source: a list of the pattern, and the place there


class KernelTemplate(NamedTuple):
    """A kernel's text, and the places of arguments for a kernel of the same pattern: the numbers of
    pointers and scalars, None for the error flag, and the sources of sizes."""

    kernel: CKernel
    args: list[tuple[str, int] | None]
    sizes: list[SizeSource]


class KernelPattern:
    """`key` determines a kernel's text; `pointers`, `scalars` and `values` are a kernel's arguments
    to it. Strides of equal value are one size, so the key says which are equal."""

    def __init__(self, kernel: FusedKernel, loops: KernelLoops) -> None:
        self.kernel = kernel
        self.loops = loops
        self.pointers: dict[tuple[Any, ...], int] = {}
        self.scalars: dict[tuple[Any, ...], int] = {}
        self.distances: dict[int, int] = {}  # by value the order of their first use
        self.counts: dict[int, int] = {}
        self.tables: dict[int, int] = {}
        self.numbers: dict[int, int] = {}  # of expressions, in the key
        self.axes: list[int] = [loop.axes[-1] for loop in loops.all if loop.axes]
        self.roots: dict[int, int] = {root.number: i for i, root in enumerate(kernel.roots)}
        self.words: list[Any] = [*self.cut(), len(kernel.roots)]
        for expr in loops.parts:
            if expr.args:
                for operand in expr.args:
                    if operand.number not in self.numbers:
                        self.add(operand)
                self.add(expr)
        for root in kernel.roots:
            if root.expr.number not in self.numbers:
                self.add(root.expr)
            self.words += (self.numbers[root.expr.number], root.reduce, root.local)
            self.add_view(root.store)
        self.key: tuple[Any, ...] = tuple(self.words)

    def cut(self) -> tuple[Any, ...]:
        """Cuts of loops and rows, as part of the key."""
        loops = self.loops
        inner = loops.inner[0].size
        narrow = min(LANES, 1 << inner.bit_length() - 1) if inner else 0
        scratch = SCRATCH_BYTES // max(1, inner)  # how wide elements of a row that is kept may be
        return (
            self.kernel.axes is None,
            loops.inner_reduced,
            loops.has_rows,
            *(tuple(loop.size == 1 for loop in group) for group in (loops.kept, loops.summed)),
            bool(loops.inner[0].axes),
            inner == 1,
            inner <= CHUNK,
            narrow,
            bool(narrow and inner % narrow),
            inner % LANES == 0,
            min(scratch, 16).bit_length(),
            self.draws_rows(),
        )

    def draws_rows(self) -> bool:
        """Whether the random words of a row, or of a part of it, are drawn before its loop."""
        inner = self.loops.inner[0].size
        in_parts = self.kernel.axes is None and not self.loops.kept
        return inner >= FEW_WORDS and (in_parts or inner * 4 <= SCRATCH_BYTES)

    def add(self, expr: Expr) -> None:
        """An expression whose operands have been added."""
        op, value, words = expr.op, expr.value, self.words
        self.numbers[expr.number] = len(self.numbers)
        words.append(primitives.get(op) or op)
        words.append(expr.dtype.name)
        words.append(len(expr.args))
        words += [self.numbers[a.number] for a in expr.args]
        if op == "gather":
            stride, size = value
            words += (self.distance(stride), self.tables.setdefault(size, len(self.tables)))
        elif op == "full":
            number = counted(value, expr.dtype)
            if number is None:
                words.append(repr(value))
            else:
                words.append(self.counts.setdefault(number, len(self.counts)))
        elif op == "scalar":
            words.append(self.scalars.setdefault((value, expr.dtype), len(self.scalars)))
        elif op == "reduced":
            words.append(self.roots[value])
        elif value is not None:
            words.append(repr(value))
        if expr.view is not None:
            self.add_view(expr.view)

    def add_view(self, view: View) -> None:
        words, strides = self.words, view.strides
        if view.base is None:
            words.append(self.distance(view.offset))
        else:
            words.append(self.pointers.setdefault((view.base, view.offset), len(self.pointers)))
            words.append(view.base.spec.dtype.name)
        for axis in self.axes:
            step = strides[axis]
            words.append(step if -2 < step < 2 else self.distance(step))

    def distance(self, elements: int) -> int:
        """Return the key's number for a count of elements, the same for equal ones."""
        if -2 < elements < 2:
            return elements
        return self.distances.setdefault(elements, len(self.distances)) + 2

    # -- arguments -----------------------------------------------------------------------------

    @property
    def values(self) -> dict[str, list[int]]:
        """Sizes of this kernel, by their kind."""
        loops = self.loops
        return {
            "loop": [loop.size for loop in loops.all],
            "distance": list(self.distances),
            "count": list(self.counts),
            "table": list(self.tables),
            "parallel": [int(loops.is_parallel)],
            "rows": [loops.summed_rows],
            "units": [loops.units],
            "split_blocks": [loops.split_blocks],
            "column_blocks": [loops.column_blocks],
        }

    def source(self, kind: str, value: int) -> SizeSource:
        """Return the place of a size of this kind and value."""
        classes = {"distance": self.distances, "count": self.counts, "table": self.tables}.get(kind)
        return kind, (0 if classes is None else classes[value])

    def filled(self, template: KernelTemplate) -> EmittedStep:
        """Build the step of this kernel from the text of an equal pattern."""
        pointers, scalars, values = list(self.pointers), list(self.scalars), self.values
        args: list[tuple[Any, Any]] = []
        for where in template.args:
            if where is None:
                args.append(("error", 0))
            elif where[0] == "pointer":
                args.append(pointers[where[1]])
            else:
                args.append(("scalar", scalars[where[1]][0]))
        args += [("size", values[kind][at]) for kind, at in template.sizes]
        return EmittedStep(args, template.kernel)


templates: dict[tuple[Any, ...], KernelTemplate] = {}


def add_template(pattern: KernelPattern, template: KernelTemplate) -> None:
    """Keep a text for further kernels; all are dropped now and then."""
    if len(templates) >= MOST_TEMPLATES:
        templates.clear()
    templates[pattern.key] = template


def counted(value: float, dtype: DType) -> int | None:
    """Number that a constant is, if it may count elements: those are arguments."""
    if dtype.is_bool or dtype.is_complex:
        return None
    number = int(value) if dtype.is_integer else float(dtype.np.type(value))
    return int(number) if LANES <= abs(number) < MAX_WHOLE and number == int(number) else None
