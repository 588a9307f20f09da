"""Discrete Fourier transforms as kernels of ours."""

from math import prod
from typing import Any

from glasshouse.base.dtype import real_dtype
from glasshouse.compile.kernels.c_text import C_TYPES, guarded
from glasshouse.compile.kernels.loops import PARALLEL_WORK
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import HEADERS, HandwrittenKernels, PlannedKernel

RADICES = (2, 3, 5)
MOST = 1 << 16  # elements of a transform; larger ones NumPy's reference takes apart for the cache
CYCLES = 8  # or so for an element of a transform


class FourierKernels(HandwrittenKernels):
    """Transforms of sizes that are products of `RADICES`."""

    ops: tuple[str, ...] = ("fft", "rfft", "irfft")
    label = "stockham"

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fits = node.host is None and node.spec.size > 0
        return Claim([node]) if fits and all(is_taken(n) for n, _ in transforms(node)) else None

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node = claim.last
        x, target = lowering.row_major(node.inputs[0]), lowering.buffer(node.spec, node=node)
        real, shape, lines, source = real_of(node), node.inputs[0].shape, [], "b0"
        kind = {"rfft": "GH_SIGNAL", "irfft": "GH_BACK"}.get(node.op, "GH_FORWARD")
        suffix = "f64" if real == "double" else "f32"
        shared = int(CYCLES * max(node.spec.size, prod(shape)) > PARALLEL_WORK)
        for n, axis in transforms(node):
            sizes = f"{prod(shape[:axis])}, {n}, {prod(shape[axis + 1 :])}"
            inverse = "GH_INVERSE" if node.attrs.get("inverse") else kind
            lines += [
                f"static {real} roots{axis}[{2 * n}];",
                f"static int ready{axis};",
                f"gh_fourier_{suffix}({inverse}, {sizes}, {source}, b1, roots{axis}, &ready{axis}, "
                f"{shared});",
            ]
            source = "b1"  # a transform may stand in the place of its operand
        pointers = [f"{real} *b{k} = a[{k}];" for k in range(2)]
        text = "\n".join([*pointers, *lines]) + "\n"
        planned = PlannedKernel(text, [x, target.view()])
        return self.add_kernel(lowering, node, [x], target, planned)

    def emit(self, step: Any) -> EmittedStep:
        args = [(view.base, view.offset) for view in step.plan.views]
        text = (HEADERS / "gh_fourier.h").read_text()
        if real_of(step.node) == "double":
            text = text.replace("float", "double").replace("f32", "f64")
        return EmittedStep(args, CKernel(step.plan.text, guarded(text)))


def real_of(node: Node) -> str:
    """The C type of the parts of a transform's numbers."""
    return C_TYPES[real_dtype(node.dtype).name]


def transforms(node: Node) -> list[tuple[int, int]]:
    """(elements, axis) of each transform that a call makes, one after the other."""
    if node.op == "irfft":
        return [(node.attrs["size"], node.attrs["axis"])]
    axes = node.attrs["axes"] if node.op == "fft" else [node.attrs["axis"]]
    return [(node.inputs[0].shape[axis], axis) for axis in axes]


def is_taken(size: int) -> bool:
    """Whether a size is a product of `RADICES`, and not too large."""
    rest = size
    for radix in RADICES:
        while rest % radix == 0:
            rest //= radix
    return rest == 1 and size <= MOST
