"""Kernels that go along one axis in order: positions of extremes, running sums, sorting.

A tensor is seen as (pre, size, post) in row-major order, the axis being the middle one. Where it is
the last one (post = 1), a kernel takes row by row; otherwise it takes columns side by side."""

from math import prod

from glasshouse.base.dtype import scan_dtype
from glasshouse.compile.kernels.c_text import (
    C_TYPES,
    SUFFIX,
    compute_type,
    guarded,
    loaded,
    memory_type,
    stored,
)
from glasshouse.compile.kernels.kernel_cache import IF_PARALLEL, PARALLEL_SIZE
from glasshouse.compile.kernels.kernel_writer import PARALLEL, size_lines
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.steps import LoweredStep
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import HEADERS, HandwrittenKernels

COLUMN_CHUNK = 1024  # columns that a thread takes side by side
LANES = 16  # running extremes of a row
MOST_POSITIONS = 1 << 31  # of a row: they are 32 bits wide while elements are compared
SORT_WORK = 16  # cycles or so that sorting takes for an element
SORT_HEADER = (HEADERS / "gh_sort.h").read_text()


class AxisKernels(HandwrittenKernels):
    """Kernels whose C text a subclass writes in `body`, with (x, *results) as pointers b0, b1, …"""

    work = 1  # cycles or so for an element
    helpers = ""

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.inputs[0].spec, *node.call.outs]
        fits = all(s.dtype.name in C_TYPES and s.size for s in specs)
        fits = fits and specs[0].shape[self.axis_of(node)] < MOST_POSITIONS
        return Claim([node]) if fits and node.host is None else None

    def plan(self, lowering: Lowering, claim: Claim) -> bool:
        node = claim.last
        x = lowering.row_major(node.inputs[0])
        results = [lowering.buffer(spec, node=node) for spec in node.call.outs]
        lowering.add_step(self, node, [x], results, (x, *(b.view() for b in results)))
        lowering.hand_out(node, results)
        return True

    def emit(self, step: LoweredStep) -> EmittedStep:
        node, views = step.node, step.plan
        x, axis = node.inputs[0], self.axis_of(node)
        pre, size, post = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
        units = pre * (post if self.takes_rows else -(-post // COLUMN_CHUNK))
        shared = units > 1 and self.work * x.spec.size > PARALLEL_WORK
        sizes = {"pre": pre, "size": size, "post": post, **self.sizes(node)}
        sizes[PARALLEL_SIZE] = int(shared)
        lines = [f"  {memory_type(v.base.dtype)} *b{k} = a[{k}];" for k, v in enumerate(views)]
        size_text = size_lines(sizes, len(views))
        text = size_text + "\n".join([*lines, self.body(node, post == 1)]) + "\n"
        args = [(v.base, v.offset) for v in views] + [("size", n) for n in sizes.values()]
        return EmittedStep(args, CKernel(text, guarded(self.helpers) if self.helpers else ""))

    takes_rows = False  # whether columns too are taken one by one

    def axis_of(self, node: Node) -> int:
        return node.attrs["axis"]

    def sizes(self, node: Node) -> dict[str, int]:
        """Further sizes that the body reads."""
        return {}

    def body(self, node: Node, is_last: bool) -> str:
        """The loops of the kernel; `is_last` says that post is 1."""
        raise NotImplementedError


def columns_text(before: str, step: str, after: str, order: str) -> str:
    """Columns side by side: statements for column `i` before the first, at each position `j`, which
    run in `order`, and after the last. `at` is the place of an element of x, `to` of column i."""
    loop = "#pragma omp simd\n      for (int64_t i = lo; i < hi; i++)"
    return f"""\
  #pragma omp {PARALLEL} collapse(2){IF_PARALLEL}
  for (int64_t p = 0; p < pre; p++)
    for (int64_t lo = 0; lo < post; lo += {COLUMN_CHUNK}) {{
      const int64_t hi = lo + {COLUMN_CHUNK} < post ? lo + {COLUMN_CHUNK} : post;
      {before}
      for ({order}) {{
      {loop} {{
        const int64_t at = (p * size + j) * post + i;
        {step}
      }}
      }}
      {after}
    }}"""


class ExtremeKernels(AxisKernels):
    """The first position of the largest or smallest element, or of a NaN."""

    ops: tuple[str, ...] = ("argmax", "argmin")

    def body(self, node: Node, is_last: bool) -> str:
        dtype = node.inputs[0].dtype
        sign, c = ">" if node.op == "argmax" else "<", compute_type(dtype)
        element = loaded("x[i + k]", dtype)
        index = "int64_t" if dtype.itemsize == 8 else "int32_t"  # as wide as what is compared
        extreme = f"gh_{'max' if sign == '>' else 'min'}imum_{SUFFIX[dtype.name]}"
        if not is_last:
            x = loaded("b0[at]", dtype)
            first = loaded("b0[p * size * post + i]", dtype)
            return columns_text(
                f"{c} best[{COLUMN_CHUNK}];\n"
                f"      {index} found[{COLUMN_CHUNK}];\n"
                "      for (int64_t i = lo; i < hi; i++)\n"
                f"        best[i - lo] = {first}, found[i - lo] = 0;",
                f"const {c} v = {x}, b = best[i - lo];\n"
                f"        const int better = (v {sign} b) | ((v != v) & (b == b));\n"
                "        best[i - lo] = better ? v : b;\n"
                f"        found[i - lo] = better ? ({index})j : found[i - lo];",
                "for (int64_t i = lo; i < hi; i++) b1[p * post + i] = found[i - lo];",
                "int64_t j = 1; j < size; j++",
            )
        return f"""\
  #pragma omp {PARALLEL}{IF_PARALLEL}
  for (int64_t p = 0; p < pre; p++) {{
    const {memory_type(dtype)} *x = b0 + p * size;
    {c} best[{LANES}];
    for (int k = 0; k < {LANES}; k++) best[k] = {loaded("x[0]", dtype)};
    int64_t i = 0;
    for (; i + {LANES} <= size; i += {LANES})
      #pragma omp simd
      for (int k = 0; k < {LANES}; k++) best[k] = {extreme}(best[k], {element});
    for (int k = 0; i + k < size; k++) best[k] = {extreme}(best[k], {element});
    for (int k = 1; k < {LANES}; k++) best[0] = {extreme}(best[0], best[k]);
    const {c} top = best[0];
    for (i = 0; i + {LANES} <= size; i += {LANES}) {{
      int hit = 0;
      #pragma omp simd reduction(| : hit)
      for (int k = 0; k < {LANES}; k++) {{
        const {c} v = {element};
        hit |= (v == top) | (v != v);
      }}
      if (hit) break;
    }}
    for (int k = 0; i < size; i++) {{
      const {c} v = {element};
      if (v == top || v != v) break;
    }}
    b1[p] = i;
  }}"""


class RunningSumKernels(AxisKernels):
    """Running sums in order, those of floats in float64."""

    ops: tuple[str, ...] = ("cumsum",)

    def body(self, node: Node, is_last: bool) -> str:
        dtype, reverse = node.dtype, node.attrs["reverse"]
        order = "int64_t j = 0; j < size; j++"
        if reverse:
            order = "int64_t j = size - 1; j >= 0; j--"
        c, nothing = compute_type(scan_dtype(dtype)), "0"
        if dtype.is_floating:
            nothing = "-0.0"  # -0.0 + x is x
        if not is_last:
            return columns_text(
                f"{c} sum[{COLUMN_CHUNK}];\n"
                f"      for (int64_t i = 0; i < hi - lo; i++) sum[i] = {nothing};",
                f"const {c} v = sum[i - lo] + {loaded('b0[at]', dtype)};\n"
                "        sum[i - lo] = v;\n"
                f"        b1[at] = {stored('v', dtype)};",
                "",
                order,
            )
        return f"""\
  #pragma omp {PARALLEL}{IF_PARALLEL}
  for (int64_t p = 0; p < pre; p++) {{
    {c} sum = {nothing};
    for ({order}) {{
      sum += {loaded("b0[p * size + j]", dtype)};
      b1[p * size + j] = {stored("sum", dtype)};
    }}
  }}"""


class SortKernels(AxisKernels):
    """Elements in order with the positions that they came from, all of a row or the first k."""

    ops: tuple[str, ...] = ("sort", "top_k")
    work: int = SORT_WORK
    takes_rows: bool = True
    helpers: str = SORT_HEADER

    def axis_of(self, node: Node) -> int:
        return node.inputs[0].spec.ndim - 1 if node.op == "top_k" else node.attrs["axis"]

    def sizes(self, node: Node) -> dict[str, int]:
        return {"taken": node.call.outs[0].shape[self.axis_of(node)]}

    def body(self, node: Node, is_last: bool) -> str:
        bits = 64 if node.inputs[0].dtype.itemsize == 8 else 32
        key = f"uint{bits}_t"
        return f"""\
  #pragma omp parallel{IF_PARALLEL}
  {{
    {key} *keys = malloc(2 * size * sizeof *keys);
    uint32_t *from = malloc(2 * size * sizeof *from);
    #pragma omp for schedule(static)
    for (int64_t r = 0; r < pre * post; r++) {{
      const int64_t first = r / post * size * post + r % post;
      const int64_t to = r / post * taken * post + r % post;
      for (int64_t j = 0; j < size; j++) {{
        keys[j] = {key_text(node, "b0[first + j * post]", bits)};
        from[j] = (uint32_t)j;
      }}
      const uint32_t *order = gh_sort_{bits}(keys, from, keys + size, from + size, size);
      for (int64_t j = 0; j < taken; j++) {{
        b1[to + j * post] = b0[first + order[j] * post];
        b2[to + j * post] = order[j];
      }}
    }}
    free(keys);
    free(from);
  }}"""


def key_text(node: Node, element: str, bits: int) -> str:
    """An element's key, by which it is sorted."""
    dtype = node.inputs[0].dtype
    descending = node.op == "top_k" or node.attrs["descending"]
    value = loaded(element, dtype)
    if dtype.is_floating:
        return f"{'~' if descending else ''}gh_key_f{bits}({value})"
    unsigned = f"(uint{bits}_t){value}"
    if dtype.kind == "int":  # the smallest number is 0, so that short types have few digits
        unsigned = f"({unsigned} + ((uint{bits}_t)1 << {8 * dtype.itemsize - 1}))"
    if not descending:
        return unsigned
    most = f"((uint{bits}_t)-1 >> {bits - 8 * dtype.itemsize})"
    return f"{most} - {unsigned}"
