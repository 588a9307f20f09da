"""Depthwise convolutions, where each channel has its own kernel, and their gradients, as
kernels of ours where oneDNN's are slower.

The functions are in gh_depthwise.h of `headers`; this file writes their sizes, and the loops that
share rows out to the cores. oneDNN's convolution is the twin."""

from math import gcd, prod
from typing import Any, NamedTuple

from glasshouse.base import Spec, bfloat16, float32
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.view import View
from glasshouse.compile.steps.work import is_depthwise, product_of
from glasshouse.dispatch.call import Call
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.writing.epilogues import with_epilogue
from glasshouse.targets.cpu.writing.handwritten import (
    PlannedKernel,
    WrittenKernels,
    vector_functions,
)
from glasshouse.targets.cpu.writing.layouts import channels_last, channels_last_view

LANES = 16  # of the widest vectors: there are as many channels at least
MOST_COLUMNS = 8  # of a kernel, whose sums are kept in registers
FEW_WEIGHTS = 9  # of a kernel, up to which oneDNN's convolution of single steps is as fast
TILE = 8  # results along a row that are computed at once …
SPAN = 32  # … of so many elements at most
REGISTERS = 24  # of 32 that sums may take …
MORE_REGISTERS = 28  # … with the weights and an element
PARTS = 8  # that the rows of a weight's gradient are summed in, at least


class DepthwiseConvolutions(WrittenKernels):
    """Convolutions with a bias where there is one, and the gradients of their data and weights."""

    ops: tuple[str, ...] = ("conv", "conv_data_grad", "conv_weight_grad")
    label = "template"
    header = vector_functions("gh_depthwise.h")
    moves_first = True
    has_scratch = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fits = node.host is None and is_supported(node) and is_faster(node)
        return with_epilogue(graph, node, takes_relu=False) if fits else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, (bias, _) = claim.nodes[0], claim.plan
        if node.op == "conv_weight_grad":
            text, reads, target, scratch = plan_weights(lowering, node)
        else:
            view = None if bias is None else lowering.row_major(bias)
            text, reads, target, scratch = plan_data(lowering, node, view)
        views = [*reads[:2], target.view(), scratch.view(), *reads[2:]]
        more = {"scratch": [scratch], "computes": claim.nodes}
        return self.add_kernel(lowering, node, reads, target, PlannedKernel(text, views), **more)

    def product_name(self, call: Call) -> str:
        return f"{product_of(call)} {self.label} float32"


def shapes_of(node: Node) -> tuple[tuple[int, ...], ...]:
    """The shapes of data, results and weights of a node's convolution."""
    first, second = (x.shape for x in node.inputs)
    if node.op == "conv":
        return first, node.shape, second
    if node.op == "conv_weight_grad":
        return first, second, node.shape
    return node.shape, first, second


def is_supported(node: Node) -> bool:
    if node.op not in DepthwiseConvolutions.ops or node.spec.ndim != 4:
        return False
    x, _, w = shapes_of(node)
    specs = [node.spec, *(operand.spec for operand in node.inputs)]
    alike = all(s.dtype is node.dtype and s.size for s in specs)
    narrow = w[3] <= MOST_COLUMNS and (w[3] - 1) * node.attrs["dilation"][1] < SPAN
    fits = alike and narrow and node.dtype in (float32, bfloat16) and x[1] >= LANES
    return fits and is_depthwise(node.call)


def is_faster(node: Node) -> bool:
    """Whether this was measured to be faster than oneDNN's (docs/inside/compiler.md)."""
    brief, strided = node.dtype is bfloat16, {*node.attrs["stride"]} != {1}
    if brief and onednn.lacks(bfloat16):
        return True
    large = prod(shapes_of(node)[2][2:]) > FEW_WEIGHTS
    if node.op == "conv":
        return not brief and (large or strided)
    if node.op == "conv_data_grad":
        return strided if brief else large
    return large or not brief


def constants_of(node: Node) -> str:
    """The sizes as `gh_depthwise` has them, and `plane`: the channels, rounded up to vectors."""
    (_, channels, height, width), (_, _, *out), (_, _, *kernel) = shapes_of(node)
    sizes = {
        "height": height,
        "width": width,
        "channels": channels,
        "out_height": out[0],
        "out_width": out[1],
        "rows": kernel[0],
        "columns": kernel[1],
        "top": node.attrs["padding"][0][0],
        "left": node.attrs["padding"][1][0],
        "brief": int(node.dtype is bfloat16),
    }
    for name, pair in (("step", node.attrs["stride"]), ("gap", node.attrs["dilation"])):
        sizes |= {f"row_{name}": pair[0], f"column_{name}": pair[1]}
    fields = ", ".join(f".{name} = {size}" for name, size in sizes.items())
    return f"""\
static const gh_depthwise s = {{{fields}}};
const int64_t plane = (s.channels + GH_LANES - 1) / GH_LANES * GH_LANES;
"""


def scratch_of(lowering: Any, node: Node, parts: int) -> Any:
    """Memory for a kernel of float32 in each of several parts, with its channels rounded up, and
    for a bias."""
    _, _, (channels, _, *kernel) = shapes_of(node)
    floats = (parts * prod(kernel) + 1) * (channels + LANES)
    return lowering.buffer(Spec((floats,), float32))


def plan_weights(lowering: Any, node: Node) -> tuple[Any, ...]:
    """Each part sums some rows of an image; then the parts are added in order."""
    (images, *_), (_, _, out_height, _), (*_, columns) = shapes_of(node)
    pieces = min(out_height, -(-PARTS // images))
    vectors = max(1, min(4, REGISTERS // columns))
    reads = [channels_last_view(lowering, x) for x in node.inputs]
    target = lowering.buffer(node.spec, node=node)
    text = f"""\
{constants_of(node)}\
const int64_t weights = s.rows * s.columns * plane;
float *work = a[3];
#pragma omp parallel
{{
  #pragma omp for schedule(static)
  for (int64_t p = 0; p < {images * pieces}; p++) {{
    const int64_t image = p / {pieces}, piece = p % {pieces};
    const int64_t end = (piece + 1) * s.out_height / {pieces};
    float *sum = work + p * weights;
    for (int64_t i = 0; i < weights; i++) sum[i] = 0;
    for (int64_t j = piece * s.out_height / {pieces}; j < end; j++)
      gh_depthwise_sums(&s, a[0], a[1], image, j, sum, plane, {columns}, {vectors});
  }}
  #pragma omp for schedule(static)
  for (int64_t v = 0; v < plane / GH_LANES; v++)
    gh_depthwise_results(&s, work, a[2], v, {images * pieces}, weights, plane);
}}
"""
    return text, reads, target, scratch_of(lowering, node, images * pieces)


class AxisSteps(NamedTuple):
    """Along an axis: results `spacing` apart use the same taps of a kernel, and read elements
    `apart` from one another; from a tap that a result uses to the next are `tap` taps of the kernel
    and `element` elements."""

    spacing: int
    apart: int
    tap: int
    element: int


def steps_of(node: Node, axis: int) -> AxisSteps:
    step, gap = node.attrs["stride"][axis], node.attrs["dilation"][axis]
    if node.op == "conv":
        return AxisSteps(1, step, 1, gap)
    taps = step // gcd(step, gap)
    return AxisSteps(step, 1, taps, -(taps * gap // step))


def taps_of(node: Node, axis: int, place: int) -> list[tuple[int, int]]:
    """(element, tap) that a result reads along an axis, those outside of the data too."""
    attrs, taps = node.attrs, range(shapes_of(node)[2][2 + axis])
    step, gap, low = attrs["stride"][axis], attrs["dilation"][axis], attrs["padding"][axis][0]
    if node.op == "conv":
        return [(place * step - low + t * gap, t) for t in taps]
    reads = [(place + low - t * gap, t) for t in taps]
    return [(at // step, t) for at, t in reads if at % step == 0]


def rows_of(node: Node) -> list[tuple[int, int, int]]:
    """For each row of results the first row of data and of the kernel, and how many there are."""
    rows, height = [], node.inputs[0].shape[2]
    for place in range(node.shape[2]):
        inside = [read for read in taps_of(node, 0, place) if 0 <= read[0] < height]
        rows.append((*inside[0], len(inside)) if inside else (0, 0, 0))
    return rows


class Phase(NamedTuple):
    """The fields of `gh_phase`, and how many vectors of channels are computed at once."""

    first: int
    spacing: int
    places: int
    start: int
    tap: int
    columns: int
    element: int
    apart: int
    results: int
    vectors: int


def phases_of(node: Node) -> list[Phase]:
    """The results along a row by the columns of the kernel that they use."""
    along, phases = steps_of(node, 1), []
    for first in range(min(along.spacing, node.shape[3])):
        places = len(range(first, node.shape[3], along.spacing))
        taps = taps_of(node, 1, first)
        start, tap = taps[0] if taps else (0, 0)
        reach = max(0, len(taps) - 1) * abs(along.element)
        most = max(1, min(TILE if along.apart == 1 else TILE // 2, (SPAN - reach) // along.apart))
        results = -(-places // -(-places // most))
        vectors = 2 if 2 * (results + len(taps) + 1) <= MORE_REGISTERS else 1
        columns = (along.element, along.apart, results, vectors)
        phases.append(Phase(first, along.spacing, places, start, tap, len(taps), *columns))
    return phases


def plan_data(lowering: Any, node: Node, bias: View | None) -> tuple[Any, ...]:
    """A convolution, or the gradient of its data: weights are turned to have channels innermost;
    then each core takes rows of results."""
    first, w = node.inputs
    views = [lowering.row_major(w)] if bias is None else [lowering.row_major(w), bias]
    reads = [channels_last_view(lowering, first), *views]
    target = lowering.buffer(node.spec, channels_last(4), node)
    text = f"""\
{constants_of(node)}\
{taps_text(node)}\
float *w = a[3], *bias = w + s.rows * s.columns * plane;
#pragma omp parallel
{{
  #pragma omp for schedule(static)
  for (int64_t v = 0; v < plane / GH_LANES; v++)
    gh_depthwise_weights(&s, a[1], {"0" if bias is None else "a[4]"}, w, v, plane);
  #pragma omp for schedule(static)
  for (int64_t r = 0; r < {prod(node.shape[::2])}; r++) {{
{line_text(node)}\
  }}
}}
"""
    return text, reads, target, scratch_of(lowering, node, 1)


def taps_text(node: Node) -> str:
    """C constants for the inputs and weights that a row of results reads."""
    down, along = (steps_of(node, axis) for axis in (0, 1))
    width, (*_, height, columns) = node.inputs[0].shape[3], shapes_of(node)[2]
    ahead = (height - 1) * down.element + 1 if node.op == "conv" else 1
    rows = ", ".join(f"{{{at}, {tap}, {count}}}" for at, tap, count in rows_of(node))
    return f"""\
static const int32_t rows[][3] = {{{rows}}};
const gh_taps t = {{
  .row = {down.element * width} * s.channels, .row_weight = {down.tap * columns} * plane,
  .column_weight = {along.tap} * plane, .weight = plane, .width = {width},
  .ahead = {ahead}, .fresh = {down.apart}}};
"""


def line_text(node: Node) -> str:
    """The results of row `r` of all images."""
    _, _, height, width = node.shape
    rows, columns = node.inputs[0].shape[2:]
    size = node.dtype.itemsize
    calls = "".join(
        f"    gh_depthwise_line(&t, (gh_phase){{{', '.join(map(str, phase[:-1]))}}}, x, own, bias,"
        f" y, row[2], s.channels, s.brief, GH_LANES == 16 ? {phase.vectors} : 1);\n"
        for phase in phases_of(node)
    )
    return f"""\
    const int32_t *row = rows[r % {height}];
    const int64_t at = (r / {height} * {rows} + row[0]) * {columns};
    const char *x = (const char *)a[0] + at * s.channels * {size};
    char *y = (char *)a[2] + r * {width} * s.channels * {size};
    const float *own = w + row[1] * s.columns * plane;
{calls}"""
