"""The gradients of convolutions' weights as products of panels, summed in registers.

The functions are in gh_weight_gradient.h of `headers`; this file writes their sizes.
oneDNN's gradient is the twin (docs/inside/compiler.md has both)."""

import os
from math import prod
from typing import Any, NamedTuple

from glasshouse.base import Spec, float32
from glasshouse.compile.building import toolchain
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import (
    PlannedKernel,
    WrittenKernels,
    vector_functions,
)
from glasshouse.targets.cpu.writing.layouts import channels_last_view

CORES = os.cpu_count() or 1
BLOCK = 96  # positions at a time, whose panels stay in a core's own cache
FEW_CHANNELS = 16  # at least, to be faster; and positions …
FEW_POSITIONS, FEW_PRODUCTS = 256, 1024  # … for kernels, and for those of one weight


class Registers(NamedTuple):
    """Vector sizes: the floats of one, and the most rows of a panel whose sums, in two vectors
    each, stay in registers."""

    lanes: int
    most_rows: int


def registers_of(features: str) -> Registers:
    """Those of a processor that can do so much, as gh_vectors.h has them."""
    if "avx512f" in features:
        return Registers(16, 14)
    return Registers(8, 6) if "avx" in features else Registers(4, 4)


LANES, MOST_ROWS = registers_of(toolchain.processor())
COLUMNS = 2 * LANES  # channels taken of a panel


class WeightGradients(WrittenKernels):
    """The gradients of the weights of convolutions of two axes that all channels share."""

    ops: tuple[str, ...] = ("conv_weight_grad",)
    label = "panels"
    header = vector_functions("gh_threads.h", "gh_weight_gradient.h")
    moves_first = True
    has_scratch = True

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fits = node.host is None and is_supported(node) and is_faster(node)
        return Claim([node]) if fits else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        reads = [channels_last_view(lowering, x) for x in node.inputs]
        target = lowering.buffer(node.spec, node=node)
        sums = 0 if prod(node.shape[2:]) == 1 else node.spec.size  # one weight: in place
        floats = sums + threads_of(node) * floats_of_panels(node)
        scratch = lowering.buffer(Spec((floats,), float32))
        views = [*reads, target.view(), scratch.view()]
        planned = PlannedKernel(kernel_text(node, sums), views)
        return self.add_kernel(lowering, node, reads, target, planned, scratch=[scratch])


def is_supported(node: Node) -> bool:
    specs = [node.spec, *(x.spec for x in node.inputs)]
    plain = all(s.dtype is float32 and s.size and s.ndim == 4 for s in specs)
    return plain and node.attrs["groups"] == 1


def is_faster(node: Node) -> bool:
    """Whether this was measured to be faster than oneDNN's (docs/inside/compiler.md)."""
    images, _, *out = node.inputs[1].shape
    positions = images * prod(out)
    few = FEW_PRODUCTS if prod(node.shape[2:]) == 1 else FEW_POSITIONS
    return LANES > 4 and min(node.shape[:2]) >= FEW_CHANNELS and positions >= few


def rows_of(channels: int) -> int:
    """Channels made of a panel: as even as may be."""
    panels = -(-channels // MOST_ROWS)
    return -(-channels // panels)


def row_panels_of(node: Node) -> int:
    return -(-node.shape[0] // rows_of(node.shape[0]))


def threads_of(node: Node) -> int:
    """At most one for each panel, of channels made or taken, whichever are more."""
    _, channels, *kernel = node.shape
    return min(CORES, max(row_panels_of(node), prod(kernel) * -(-channels // COLUMNS)))


def floats_of_panels(node: Node) -> int:
    """Scratch floats of a core: the panels of a block's gradient, and one panel of its data."""
    return BLOCK * (LANES * row_panels_of(node) + COLUMNS)


def constants_of(node: Node) -> str:
    """The sizes as `gh_gradient` has them."""
    (images, channels, height, width), (_, _, *out) = (x.shape for x in node.inputs)
    sizes = {
        "images": images,
        "height": height,
        "width": width,
        "channels": channels,
        "out_height": out[0],
        "out_width": out[1],
        "out_channels": node.shape[0],
        "rows": node.shape[2],
        "columns": node.shape[3],
        "top": node.attrs["padding"][0][0],
        "left": node.attrs["padding"][1][0],
    }
    for name, pair in (("step", node.attrs["stride"]), ("gap", node.attrs["dilation"])):
        sizes |= {f"row_{name}": pair[0], f"column_{name}": pair[1]}
    fields = ", ".join(f".{name} = {size}" for name, size in sizes.items())
    return f"static const gh_gradient s = {{{fields}}};\n"


def kernel_text(node: Node, sums: int) -> str:
    """Cores share the panels of channels made or taken, whichever are more: so the order of a sum
    does not depend on how many cores there are."""
    rows = rows_of(node.shape[0])
    scratch = f"work + omp_get_thread_num() * {floats_of_panels(node)}LL"
    return f"""\
{constants_of(node)}\
float *dw = a[2], *work = (float *)a[3] + {sums}, *sums = {"a[3]" if sums else "dw"};
#pragma omp parallel num_threads(gh_threads({threads_of(node)}))
gh_gradient_sums(&s, a[0], a[1], sums, {scratch}, {BLOCK}, {rows}, {node.shape[0] % rows});
{order_text() if sums else ""}"""


def order_text() -> str:
    """Sums lie by weights of a kernel, then channels; results have the weights of a kernel last."""
    return """\
#pragma omp parallel for schedule(static)
for (int64_t k = 0; k < s.out_channels; k++) gh_gradient_results(&s, sums, dw, k);
"""
