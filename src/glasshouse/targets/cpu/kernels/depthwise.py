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
MOST_ROWS = 4096  # of an image, which the kernel has a table of
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


class Convolution(NamedTuple):
    """The convolution of a node, or the one that it is a gradient of: shapes of data, results and
    weights, and options, of images. What is along one axis is an image one element wide."""

    op: str
    data: tuple[int, ...]
    results: tuple[int, ...]
    weights: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    is_brief: bool

    @property
    def read(self) -> tuple[int, ...]:
        """The shape of what is read beside the weights."""
        return self.data if self.op == "conv" else self.results

    @property
    def written(self) -> tuple[int, ...]:
        return self.results if self.op == "conv" else self.data


def convolution_of(node: Node) -> Convolution:
    first, second = (x.shape for x in node.inputs)
    shapes = [first, node.shape, second]
    if node.op == "conv_weight_grad":
        shapes = [first, second, node.shape]
    elif node.op == "conv_data_grad":
        shapes = [node.shape, first, second]
    more = (1,) * (4 - node.spec.ndim)
    stride, dilation = ((*node.attrs[name], *more) for name in ("stride", "dilation"))
    padding = (*node.attrs["padding"], *((0, 0) for _ in more))
    data, results, weights = ((*shape, *more) for shape in shapes)
    brief = node.dtype is bfloat16
    return Convolution(node.op, data, results, weights, stride, dilation, padding, brief)


def is_supported(node: Node) -> bool:
    if node.op not in DepthwiseConvolutions.ops or node.spec.ndim not in (3, 4):
        return False
    conv = convolution_of(node)
    specs = [node.spec, *(operand.spec for operand in node.inputs)]
    alike = all(s.dtype is node.dtype and s.size for s in specs)
    columns = conv.weights[3]
    narrow = columns <= MOST_COLUMNS and (columns - 1) * conv.dilation[1] < SPAN
    fits = alike and node.dtype in (float32, bfloat16) and conv.data[1] >= LANES
    return fits and narrow and conv.data[2] <= MOST_ROWS and is_depthwise(node.call)


def is_faster(node: Node) -> bool:
    """Whether this was measured to be faster than oneDNN's (docs/inside/compiler.md)."""
    conv = convolution_of(node)
    brief, strided = conv.is_brief, {*conv.stride} != {1}
    if brief and onednn.lacks(bfloat16) or node.spec.ndim == 3:
        return True
    large = prod(conv.weights[2:]) > FEW_WEIGHTS
    if node.op == "conv":
        return not brief and (large or strided)
    if node.op == "conv_data_grad":
        return strided if brief else large
    return large or not brief


def constants_of(conv: Convolution) -> str:
    """The sizes as `gh_depthwise` has them, and `plane`: the channels, rounded up to vectors."""
    _, channels, height, width = conv.data
    out, kernel = conv.results[2:], conv.weights[2:]
    sizes = {
        "height": height,
        "width": width,
        "channels": channels,
        "out_height": out[0],
        "out_width": out[1],
        "rows": kernel[0],
        "columns": kernel[1],
        "top": conv.padding[0][0],
        "left": conv.padding[1][0],
        "brief": int(conv.is_brief),
    }
    for name, pair in (("step", conv.stride), ("gap", conv.dilation)):
        sizes |= {f"row_{name}": pair[0], f"column_{name}": pair[1]}
    fields = ", ".join(f".{name} = {size}" for name, size in sizes.items())
    return f"""\
static const gh_depthwise s = {{{fields}}};
const int64_t plane = (s.channels + GH_LANES - 1) / GH_LANES * GH_LANES;
"""


def scratch_of(lowering: Any, conv: Convolution, parts: int) -> Any:
    """Memory for a kernel of float32 in each of several parts, with its channels rounded up, and
    for a bias."""
    channels, _, *kernel = conv.weights
    floats = (parts * prod(kernel) + 1) * (channels + LANES)
    return lowering.buffer(Spec((floats,), float32))


def plan_weights(lowering: Any, node: Node) -> tuple[Any, ...]:
    """Each part sums some rows of an image; then the parts are added in order."""
    conv = convolution_of(node)
    images, _, out_height, _ = conv.results
    columns = conv.weights[3]
    pieces = min(out_height, -(-PARTS // images))
    vectors = max(1, min(4, REGISTERS // columns))
    reads = [channels_last_view(lowering, x) for x in node.inputs]
    target = lowering.buffer(node.spec, node=node)
    text = f"""\
{constants_of(conv)}\
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
    return text, reads, target, scratch_of(lowering, conv, images * pieces)


class AxisSteps(NamedTuple):
    """Along an axis: results `spacing` apart use the same taps of a kernel, and read elements
    `apart` from one another; from a tap that a result uses to the next are `tap` taps of the kernel
    and `element` elements."""

    spacing: int
    apart: int
    tap: int
    element: int


def steps_of(conv: Convolution, axis: int) -> AxisSteps:
    step, gap = conv.stride[axis], conv.dilation[axis]
    if conv.op == "conv":
        return AxisSteps(1, step, 1, gap)
    taps = step // gcd(step, gap)
    return AxisSteps(step, 1, taps, -(taps * gap // step))


def taps_of(conv: Convolution, axis: int, place: int) -> list[tuple[int, int]]:
    """(element, tap) that a result reads along an axis, those outside of the data too."""
    taps, low = range(conv.weights[2 + axis]), conv.padding[axis][0]
    step, gap = conv.stride[axis], conv.dilation[axis]
    if conv.op == "conv":
        return [(place * step - low + t * gap, t) for t in taps]
    reads = [(place + low - t * gap, t) for t in taps]
    return [(at // step, t) for at, t in reads if at % step == 0]


def rows_of(conv: Convolution) -> list[tuple[int, int, int]]:
    """For each row of results the first row of data and of the kernel, and how many there are."""
    rows, height = [], conv.read[2]
    for place in range(conv.written[2]):
        inside = [read for read in taps_of(conv, 0, place) if 0 <= read[0] < height]
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


def phases_of(conv: Convolution) -> list[Phase]:
    """The results along a row by the columns of the kernel that they use."""
    along, width, phases = steps_of(conv, 1), conv.written[3], []
    for first in range(min(along.spacing, width)):
        places = len(range(first, width, along.spacing))
        taps = taps_of(conv, 1, first)
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
    conv, (first, w) = convolution_of(node), node.inputs
    views = [lowering.row_major(w)] if bias is None else [lowering.row_major(w), bias]
    reads = [channels_last_view(lowering, first), *views]
    target = lowering.buffer(node.spec, channels_last(node.spec.ndim), node)
    text = f"""\
{constants_of(conv)}\
{taps_text(conv)}\
float *w = a[3], *bias = w + s.rows * s.columns * plane;
#pragma omp parallel
{{
  #pragma omp for schedule(static)
  for (int64_t v = 0; v < plane / GH_LANES; v++)
    gh_depthwise_weights(&s, a[1], {"0" if bias is None else "a[4]"}, w, v, plane);
  #pragma omp for schedule(static)
  for (int64_t r = 0; r < {prod(conv.written[::2])}; r++) {{
{line_text(conv)}\
  }}
}}
"""
    return text, reads, target, scratch_of(lowering, conv, 1)


def taps_text(conv: Convolution) -> str:
    """C constants for the inputs and weights that a row of results reads."""
    down, along = (steps_of(conv, axis) for axis in (0, 1))
    width, (*_, height, columns) = conv.read[3], conv.weights
    ahead = (height - 1) * down.element + 1 if conv.op == "conv" else 1
    rows = ", ".join(f"{{{at}, {tap}, {count}}}" for at, tap, count in rows_of(conv))
    return f"""\
static const int32_t rows[][3] = {{{rows}}};
const gh_taps t = {{
  .row = {down.element * width} * s.channels, .row_weight = {down.tap * columns} * plane,
  .column_weight = {along.tap} * plane, .weight = plane, .width = {width},
  .ahead = {ahead}, .fresh = {down.apart}}};
"""


def line_text(conv: Convolution) -> str:
    """The results of row `r` of all images."""
    _, _, height, width = conv.written
    rows, columns = conv.read[2:]
    size = 2 if conv.is_brief else 4
    calls = "".join(
        f"    gh_depthwise_line(&t, (gh_phase){{{', '.join(map(str, phase[:-1]))}}}, x, own, bias,"
        f" y, row[2], s.channels, s.brief, GH_LANES == 16 ? {phase.vectors} : 1);\n"
        for phase in phases_of(conv)
    )
    return f"""\
    const int32_t *row = rows[r % {height}];
    const int64_t at = (r / {height} * {rows} + row[0]) * {columns};
    const char *x = (const char *)a[0] + at * s.channels * {size};
    char *y = (char *)a[2] + r * {width} * s.channels * {size};
    const float *own = w + row[1] * s.columns * plane;
{calls}"""
