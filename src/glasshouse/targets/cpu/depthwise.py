"""Gradients of depthwise convolutions, each channel of which has a kernel of its own, as kernels of
ours: those for which oneDNN's are slow.

The functions are in gh_depthwise.h beside this file; what is written here are their sizes, and the
loops that share rows out to the cores. oneDNN's convolution is the twin."""

from math import prod
from typing import NamedTuple

from glasshouse.base import Spec, bfloat16, float32
from glasshouse.compile.emitted import CKernel, EmittedStep
from glasshouse.compile.lowerer import Claim, GraphUsers
from glasshouse.compile.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.handwritten import FUSED, HandwrittenKernels, vector_functions
from glasshouse.targets.cpu.layouts import channels_last, channels_last_view

HEADER = vector_functions("gh_depthwise.h")
LANES = 16  # of the widest vectors: there are as many channels at least
MOST_COLUMNS = 8  # of a kernel, whose sums are kept in registers
FEW_WEIGHTS = 9  # of a kernel, up to which oneDNN's gradient of the weights is as fast
REGISTERS = 24  # of 32 that sums may take
PARTS = 8  # that the rows of a weight's gradient are summed in, at least


class PlannedGradient(NamedTuple):
    """The text of a kernel, and the views of its pointers."""

    text: str
    views: list[View]


class DepthwiseGradients(HandwrittenKernels):
    """The gradient of the weights of kernels with more than nine, and that of bfloat16 data where
    windows are further apart than an element."""

    ops = ("conv_data_grad", "conv_weight_grad")
    moves_first = True
    has_scratch = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fits = node.host is None and is_depthwise(node) and is_faster(node)
        return Claim([node]) if fits else None

    def plan(self, lowering, claim: Claim) -> bool:
        node = claim.last
        plan = plan_weights if node.op == "conv_weight_grad" else plan_data
        text, reads, target, scratch = plan(lowering, node)
        views = [*reads, target.view(), scratch.view()]
        more = {"scratch": [scratch]}
        lowering.add_step(self, node, reads, [target], PlannedGradient(text, views), **more)
        lowering.hand_out(node, [target])
        return True

    def emit(self, step) -> EmittedStep:
        args = [(view.base, view.offset) for view in step.plan.views]
        return EmittedStep(args, CKernel(step.plan.text, HEADER, FUSED))


def shapes_of(node: Node) -> tuple[tuple[int, ...], ...]:
    """The shapes of data, results and weights of the convolution whose gradient a node is."""
    first, second = (x.shape for x in node.inputs)
    if node.op == "conv_weight_grad":
        return first, second, node.shape
    return node.shape, first, second


def is_depthwise(node: Node) -> bool:
    if node.op not in DepthwiseGradients.ops or node.spec.ndim != 4:
        return False
    x, _, w = shapes_of(node)
    specs = [node.spec, *(operand.spec for operand in node.inputs)]
    alike = all(s.dtype is node.dtype and s.size for s in specs)
    own = node.attrs["groups"] == x[1] == w[0] and w[1] == 1
    return own and alike and node.dtype in (float32, bfloat16) and x[1] >= LANES


def is_faster(node: Node) -> bool:
    """Whether this was measured to be faster than oneDNN's (docs/compiler.md)."""
    if node.op == "conv_data_grad":
        return node.dtype is bfloat16 and {*node.attrs["stride"]} != {1}
    rows, columns = shapes_of(node)[2][2:]
    return columns <= MOST_COLUMNS and rows * columns > FEW_WEIGHTS


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
    for name, given in (("step", node.attrs["stride"]), ("gap", node.attrs["dilation"])):
        sizes |= {f"row_{name}": given[0], f"column_{name}": given[1]}
    fields = ", ".join(f".{name} = {size}" for name, size in sizes.items())
    return f"""\
static const gh_depthwise s = {{{fields}}};
const int64_t plane = (s.channels + GH_LANES - 1) / GH_LANES * GH_LANES;
"""


def scratch_of(lowering, node: Node, parts: int):
    """Memory for a kernel of float32 in each of several parts, with its channels rounded up."""
    _, _, (channels, _, *kernel) = shapes_of(node)
    floats = parts * prod(kernel) * (channels + LANES)
    return lowering.buffer(Spec((floats,), float32))


def plan_weights(lowering, node: Node) -> tuple:
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


def plan_data(lowering, node: Node) -> tuple:
    """Weights are turned to have channels innermost; then each core takes rows of elements."""
    images = node.shape[0]
    g, w = node.inputs
    reads = [channels_last_view(lowering, g), lowering.row_major(w)]
    target = lowering.buffer(node.spec, channels_last(4), node)
    text = f"""\
{constants_of(node)}\
float *w = a[3];
gh_depthwise_weights(&s, a[1], w, plane);
#pragma omp parallel for schedule(static)
for (int64_t r = 0; r < {images} * s.height; r++)
  for (int64_t column = 0; column < s.width; column++)
    gh_depthwise_place(&s, a[0], w, a[2], r / s.height, r % s.height, column, plane);
"""
    return text, reads, target, scratch_of(lowering, node, 1)
