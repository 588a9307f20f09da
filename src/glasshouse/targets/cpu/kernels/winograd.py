"""Convolutions of 3 x 3 kernels with stride 1 by Winograd's minimal filtering, as our own kernels.

The functions are in gh_winograd.h of `headers`; this file writes their sizes, and the loops that
share blocks of tiles out to the cores: a block's transformed elements stay in the cache of a core
between its three parts. Data is float32 or bfloat16, intermediate values are float32.
`GH_WINOGRAD=0` turns it off: oneDNN's direct convolution is the twin."""

import os
from math import prod
from typing import Any, NamedTuple

from glasshouse.base import Spec, bfloat16, float32
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.compile.steps.view import View
from glasshouse.compile.steps.work import product_of
from glasshouse.dispatch.call import Call
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.epilogues import with_epilogue
from glasshouse.targets.cpu.writing.handwritten import WrittenKernels, vector_functions
from glasshouse.targets.cpu.writing.layouts import channels_last, channels_last_view

CONVOLUTIONS = ("conv", "conv_data_grad", "conv_weight_grad")
CORES = os.cpu_count() or 1
BRIEF = "amx_bf16" not in toolchain.processor()  # bfloat16 too: units for matrices would be faster
TILE, PLACES = 4, 36  # results of a tile along an axis; products that a tile takes
BLOCK, LARGE_BLOCK = 28, 98  # tiles at a time, for few and for many weights …
LARGE_WEIGHTS = 1 << 17  # … from here on, which would else be fetched too often
GRAD_BLOCK = 56  # tiles at a time for the gradient of the weights
FEW_TILES, FEW_CHANNELS = 16, 32  # at least, to be faster …
BRIEF_TILES = 256  # … with bfloat16, of which a direct convolution does twice as much
CHUNK = 128  # channels at a time where panels of weights are transformed one by one
ROWS = range(8, 15)  # tiles that one product in registers may take
SCRATCH = ("u", "v", "m", "work")  # pointers to float32, whatever the data is
PANEL, SPARE = 32, 16  # channels are rounded up to two vectors; spare floats part rows in the cache


class PlannedConvolution(NamedTuple):
    """The text of a kernel, the views of its pointers, and the FLOPs that it takes and saves."""

    text: str
    views: list[View]
    saved_flops: int


class WinogradConvolutions(WrittenKernels):
    """Convolutions and their gradients, the forward one with bias and relu."""

    ops: tuple[str, ...] = CONVOLUTIONS
    label = "winograd"
    header = vector_functions("gh_threads.h", "gh_winograd.h")
    moves_first = True
    has_scratch = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        if node.host is not None or not is_supported(node):
            return None
        return with_epilogue(graph, node, takes_relu=True)

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, (bias, relu) = claim.nodes[0], claim.plan
        view = None if bias is None else lowering.row_major(bias)
        if node.op == "conv_weight_grad":
            parts = plan_weight_grad(lowering, node)
        else:
            parts = plan_conv(lowering, node, view, relu)
        text, reads, target, scratches = parts
        views = [*reads[:2], target.view(), *(b.view() for b in scratches), *reads[2:]]
        planned = PlannedConvolution(text, views, node.call.cost.flops - flops_of(node))
        more = {"scratch": scratches, "computes": claim.nodes}
        return self.add_kernel(lowering, node, reads, target, planned, **more)

    def describe(self, step: Any) -> StepDescription:
        return super().describe(step)._replace(saved_flops=step.plan.saved_flops)

    def product_name(self, call: Call) -> str:
        return f"{product_of(call)} {self.label} float32"


def is_supported(node: Node) -> bool:
    if node.op not in CONVOLUTIONS or not flags.winograd or node.spec.ndim != 4:
        return False
    attrs, weight = node.attrs, weight_of(node)
    plain = weight[2:] == (3, 3) and attrs["groups"] == 1 and {*attrs["stride"]} == {1}
    specs = [node.spec, *(x.spec for x in node.inputs)]
    fits = all(s.dtype is node.dtype and s.size for s in specs)
    fits = fits and (node.dtype is float32 or node.dtype is bfloat16 and BRIEF)
    return plain and fits and {*attrs["dilation"]} == {1} and is_faster(node)


def weight_of(node: Node) -> tuple[int, ...]:
    return node.shape if node.op == "conv_weight_grad" else node.inputs[1].shape


def is_faster(node: Node) -> bool:
    """Whether this was measured to be faster than a direct convolution: whole panels of channels,
    tiles that are not mostly empty, and enough of them for the weights that are transformed."""
    out_channels, channels = weight_of(node)[:2]
    images, _, *size = (node.inputs[1] if node.op == "conv_weight_grad" else node).shape
    tiles = tiles_of(images, *size)
    filled = 2 * images * prod(size) >= tiles * TILE**2
    few = BRIEF_TILES if node.dtype is bfloat16 else FEW_TILES
    return min(out_channels, channels) >= FEW_CHANNELS and tiles >= few and filled


def tiles_of(images: int, height: int, width: int) -> int:
    return images * -(-height // TILE) * -(-width // TILE)


def sizes_of(
    x: Any, y: Any, padding: Any, block: int, brief: bool, spare: int = 0
) -> dict[str, int]:
    """The sizes from shape x to y as `gh_winograd` has them; blocks have `spare` tiles more."""
    (_, channels, height, width), (_, out_channels, out_height, out_width) = x, y
    in_row, out_row = (-(-n // PANEL) * PANEL + SPARE for n in (channels, out_channels))
    return {
        "height": height,
        "width": width,
        "channels": channels,
        "out_height": out_height,
        "out_width": out_width,
        "out_channels": out_channels,
        "top": padding[0],
        "left": padding[1],
        "in_row": in_row,
        "in_plane": (block + spare) * in_row + SPARE,
        "out_row": out_row,
        "out_plane": (block + spare) * out_row + SPARE,
        "brief": int(brief),
    }


def plan_conv(lowering: Any, node: Node, bias: View | None, relu: bool) -> tuple[Any, ...]:
    """A convolution, or the gradient of its data, by blocks of tiles or by panels of weights."""
    x, w = node.inputs
    tiles = tiles_of(node.shape[0], *node.shape[2:])
    few = 4 * tiles <= node.shape[1]  # transformed elements are small beside transformed weights
    block = tiles if few else block_of(tiles, prod(w.shape[:2]))
    sizes = conv_sizes(node, block)
    if few:
        sizes |= {"out_row": PANEL, "out_plane": (block + ROWS[-1]) * PANEL + SPARE}
    views = [channels_last_view(lowering, x), lowering.row_major(w), *([bias] if bias else [])]
    target = lowering.buffer(node.spec, channels_last(4), node)
    panels = -(-sizes["out_channels"] // PANEL)
    v, u, m = (
        PLACES * n
        for n in (sizes["in_plane"], PANEL * panels * sizes["channels"], sizes["out_plane"])
    )
    shared, part = (v, m + PLACES * PANEL * CHUNK) if few else (u, v + m)
    threads = min(CORES, panels if few else -(-tiles // block))
    text = (panels_text if few else blocks_text)(
        sizes, tiles, block, part, threads, bias=bias is not None, relu=relu
    )
    return text, views, target, scratch_buffers(lowering, shared, threads * part)


def conv_sizes(node: Node, block: int) -> dict[str, int]:
    """The sizes of a convolution, or of its data's gradient: one with turned weights."""
    x, w = node.inputs
    low = [pair[0] for pair in node.attrs["padding"]]
    steps, backward = [9 * w.shape[1], 9], node.op == "conv_data_grad"
    if backward:
        low = [2 - n for n in low]
        steps.reverse()
    rows = min(ROWS, key=lambda rows: (-(-block // rows) * rows, -rows))
    return sizes_of(x.shape, node.shape, low, block, node.dtype is bfloat16, ROWS[-1]) | {
        "rows": rows,
        "out_channel_step": steps[0],
        "channel_step": steps[1],
        "flip": int(backward),
    }


def block_of(tiles: int, weights: int) -> int:
    """Tiles of a block: as many blocks for each core."""
    most = LARGE_BLOCK if weights >= LARGE_WEIGHTS else BLOCK
    rounds = -(-tiles // (most * CORES))
    return -(-tiles // (rounds * CORES))


def scratch_buffers(lowering: Any, *sizes: int) -> list[Any]:
    return [lowering.buffer(Spec((size,), float32)) for size in sizes]


def flops_of(node: Node) -> int:
    """FLOPs of the Winograd products, fewer than the convolution's by its definition."""
    images, _, *size = (node.inputs[1] if node.op == "conv_weight_grad" else node).shape
    return 2 * PLACES * tiles_of(images, *size) * prod(weight_of(node)[:2])


# -- text -------------------------------------------------------------------------------------


def head(sizes: dict[str, int], names: list[str]) -> str:
    """The sizes and pointers of a kernel; `zero` stands for the channels of a position outside."""
    fields = ", ".join(f".{name} = {size}" for name, size in sizes.items())
    most = max(sizes["channels"], sizes["out_channels"])
    constants = f"static const gh_winograd s = {{{fields}}};\nstatic const float zero[{most}];\n"
    kinds = [(i, name, "float" if name in SCRATCH else "void") for i, name in enumerate(names)]
    return constants + "".join(f"{kind} *{name} = a[{i}];\n" for i, name, kind in kinds)


def blocks_text(
    sizes: Any, tiles: int, block: int, part: int, threads: int, *, bias: bool, relu: bool
) -> str:
    """Weights are transformed first; each core then takes blocks of tiles through all parts."""
    return f"""\
{head(sizes, ["x", "w", "y", "u", "work"])}\
float *bias = {"a[5]" if bias else "0"};
const int64_t panels = (s.out_channels + GH_PANEL - 1) / GH_PANEL;
const int64_t step = panels * s.channels * GH_PANEL;
#pragma omp parallel num_threads(gh_threads({threads}))
{{
  #pragma omp for collapse(2) schedule(static)
  for (int64_t p = 0; p < panels; p++)
    for (int64_t c = 0; c < s.channels; c++)
      gh_weights(&s, w, u + (p * s.channels + c) * GH_PANEL, c, p, step);
  float *v = work + omp_get_thread_num() * {part}LL, *m = v + {PLACES} * s.in_plane;
  #pragma omp for schedule(static)
  for (int64_t first = 0; first < {tiles}; first += {block}) {{
    const int64_t count = first + {block} < {tiles} ? {block} : {tiles} - first;
    for (int64_t t = 0; t < count; t++) gh_tile_in(&s, x, zero, v + t * s.in_row, first + t);
    for (int64_t place = 0; place < {PLACES}; place++)
      for (int64_t p = 0; p < panels; p++)
        gh_multiply(&s, v + place * s.in_plane, u + place * step + p * s.channels * GH_PANEL,
                    m + place * s.out_plane + p * GH_PANEL, count, s.channels, 0);
    for (int64_t t = 0; t < count; t++)
      gh_tile_out(&s, m + t * s.out_row, bias, y, first + t, {int(relu)}, -1);
  }}
}}
"""


def panels_text(
    sizes: Any, tiles: int, _block: int, part: int, threads: int, *, bias: bool, relu: bool
) -> str:
    """Elements are transformed first; cores then take panels of weights, channels in parts."""
    return f"""\
{head(sizes, ["x", "w", "y", "v", "work"])}\
float *bias = {"a[5]" if bias else "0"};
const int64_t panels = (s.out_channels + GH_PANEL - 1) / GH_PANEL, step = {CHUNK} * GH_PANEL;
#pragma omp parallel num_threads(gh_threads({threads}))
{{
  #pragma omp for schedule(static)
  for (int64_t t = 0; t < {tiles}; t++) gh_tile_in(&s, x, zero, v + t * s.in_row, t);
  float *u = work + omp_get_thread_num() * {part}LL, *m = u + {PLACES} * step;
  #pragma omp for schedule(static)
  for (int64_t p = 0; p < panels; p++) {{
    for (int64_t first = 0; first < s.channels; first += {CHUNK}) {{
      const int64_t depth = first + {CHUNK} < s.channels ? {CHUNK} : s.channels - first;
      for (int64_t c = 0; c < depth; c++) gh_weights(&s, w, u + c * GH_PANEL, first + c, p, step);
      for (int64_t place = 0; place < {PLACES}; place++)
        gh_multiply(&s, v + place * s.in_plane + first, u + place * step, m + place * s.out_plane,
                    {tiles}, depth, first > 0);
    }}
    for (int64_t t = 0; t < {tiles}; t++)
      gh_tile_out(&s, m + t * s.out_row, bias, y, t, {int(relu)}, p);
  }}
}}
"""


def plan_weight_grad(lowering: Any, node: Node) -> tuple[Any, ...]:
    """The gradient of the weights: products over all tiles, by blocks of them or by panels."""
    x, g = node.inputs
    low = [pair[0] for pair in node.attrs["padding"]]
    tiles = tiles_of(g.shape[0], *g.shape[2:])
    few = 8 * tiles <= min(x.shape[1], g.shape[1])
    sizes = sizes_of(x.shape, g.shape, low, tiles if few else GRAD_BLOCK, g.dtype is bfloat16)
    threads = min(CORES, -(-sizes["out_channels"] // CHUNK) * -(-sizes["channels"] // PANEL))
    views = [channels_last_view(lowering, n) for n in (x, g)]
    m = threads * CHUNK * PANEL if few else sizes["in_row"] * sizes["out_row"]
    scratches = PLACES * m, PLACES * (sizes["in_plane"] + sizes["out_plane"])
    text = weight_panels_text(sizes, tiles, threads) if few else weight_blocks_text(sizes, tiles)
    target = lowering.buffer(node.spec, node=node)
    return text, views, target, scratch_buffers(lowering, *scratches)


WEIGHT_GRAD = ["x", "g", "dw", "m", "work"]  # the pointers of its kernels


def weight_blocks_text(sizes: Any, tiles: int) -> str:
    """Cores share a block's tiles, then its products: their order does not depend on the number."""
    return f"""\
{head(sizes, WEIGHT_GRAD)}\
float *v = work, *q = work + {PLACES} * s.in_plane;
const int64_t plane = s.out_row * s.in_row;
#pragma omp parallel
for (int64_t first = 0; first < {tiles}; first += {GRAD_BLOCK}) {{
  const int64_t count = first + {GRAD_BLOCK} < {tiles} ? {GRAD_BLOCK} : {tiles} - first;
  #pragma omp for schedule(static)
  for (int64_t t = 0; t < count; t++) {{
    gh_tile_in(&s, x, zero, v + t * s.in_row, first + t);
    gh_tile_grad(&s, g, zero, q + t * s.out_row, first + t);
  }}
  #pragma omp for collapse(2) schedule(static)
  for (int64_t place = 0; place < {PLACES}; place++)
    for (int64_t c = 0; c < s.channels; c += GH_PANEL)
      gh_multiply_grad(&s, q + place * s.out_plane, v + place * s.in_plane + c,
                       m + place * plane + c, s.in_row, s.out_channels, count, first > 0);
}}
#pragma omp parallel for schedule(static)
for (int64_t k = 0; k < s.out_channels; k++)
  gh_weight_grad(&s, m + k * s.in_row, plane, dw, k * s.channels, s.channels);
"""


def weight_panels_text(sizes: Any, tiles: int, threads: int) -> str:
    """All tiles are transformed first; each core then takes panels of weights through all parts."""
    return f"""\
{head(sizes, WEIGHT_GRAD)}\
float *v = work, *q = work + {PLACES} * s.in_plane;
#pragma omp parallel num_threads(gh_threads({threads}))
{{
  #pragma omp for schedule(static)
  for (int64_t t = 0; t < {tiles}; t++) {{
    gh_tile_in(&s, x, zero, v + t * s.in_row, t);
    gh_tile_grad(&s, g, zero, q + t * s.out_row, t);
  }}
  float *own = m + omp_get_thread_num() * {PLACES * CHUNK * PANEL}LL;
  #pragma omp for collapse(2) schedule(static)
  for (int64_t first = 0; first < s.out_channels; first += {CHUNK})
    for (int64_t c = 0; c < s.channels; c += GH_PANEL) {{
      const int64_t count = first + {CHUNK} < s.out_channels ? {CHUNK} : s.out_channels - first;
      const int64_t size = c + GH_PANEL < s.channels ? GH_PANEL : s.channels - c;
      for (int64_t place = 0; place < {PLACES}; place++)
        gh_multiply_grad(&s, q + place * s.out_plane + first, v + place * s.in_plane + c,
                         own + place * {CHUNK * PANEL}, GH_PANEL, count, {tiles}, 0);
      for (int64_t k = 0; k < count; k++)
        gh_weight_grad(&s, own + k * GH_PANEL, {CHUNK * PANEL}, dw,
                       (first + k) * s.channels + c, size);
    }}
}}
"""
