"""Products of few rows by weights of few bits, which are read as they lie, as kernels of ours.

A graph has the composition that unpacks the weights (ops/packed) before a product; where a kernel
knows the format, it reads the bytes in its place, once for a few rows. A product of many rows
unpacks them by a kernel, and goes to oneDNN. The composition is the twin: `GH_FEW_BITS=0`."""

import functools
from math import prod
from typing import Any, NamedTuple

from glasshouse.base import DType, Spec, bfloat16, float32, uint8
from glasshouse.base.flags import flags
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, StepDescription
from glasshouse.graph.composition import node_of
from glasshouse.graph.graph import Graph, Node
from glasshouse.graph.simplify import make
from glasshouse.ops.packed import FORMATS, BlockFormat, composition, find_format
from glasshouse.ops.packed.formats import int4_groups, int8_rows
from glasshouse.targets.cpu.writing.handwritten import (
    HandwrittenKernels,
    PlannedKernel,
    parallel,
    vector_functions,
)

MOST_ROWS = 16  # of the other operand: with more, unpacking the weights first is faster
PACK = 16  # numbers that are made at once
DEEP = 16  # calls between the bytes and the product, at most
BETWEEN = ("permute", "cast", "reshape", "add", "mul", "sub", "bitwise_and", "bitwise_or",
           "shift_right", "expand", "bitcast", "slice")  # fmt: skip


class PackedMatrix(NamedTuple):
    """The bytes of a matrix (rows, depth), and their format."""

    node: Node
    form: BlockFormat


class PackedProducts(HandwrittenKernels):
    """x (M, K) @ wᵀ, with w (N, K) in blocks of few bits, for small M; and the numbers of w."""

    ops: tuple[str, ...] = ("matmul", "reshape")
    label = "few_bits"
    header = vector_functions("gh_packed.h")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        if (
            not flags.few_bits
            or node.host is not None
            or len(node.shape) != 2
            or node.dtype not in (float32, bfloat16)
        ):
            return None
        if node.op == "reshape":
            packed = packed_matrix(node, node.shape, node.dtype, False)
            return None if packed is None else Claim([node], (packed.node,), plan=packed.form)
        x, w = node.inputs
        is_large = x.shape[0] > MOST_ROWS and not flags.deterministic
        if is_large or x.dtype is not node.dtype or w.dtype is not node.dtype:
            return None
        packed = packed_matrix(w, w.shape[::-1], w.dtype, True)
        return None if packed is None else Claim([node], (x, packed.node), plan=packed.form)

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, form = claim.last, claim.plan
        reads = [lowering.row_major(x) for x in claim.reads or ()]
        target = lowering.buffer(node.spec, node=node)
        views, scratch, brief = [*reads, target.view()], [], node.dtype is bfloat16
        if node.op == "reshape":
            text = unpack_text(form, *node.shape)
        else:
            if brief:  # x in float32
                scratch = [lowering.buffer(Spec(node.inputs[0].shape, float32))]
                views.append(scratch[0].view())
            (rows, depth), columns = node.inputs[0].shape, node.shape[1]
            text = product_text(form, rows, depth, columns, brief)
        planned = PlannedKernel(text, views, form.name.partition(":")[0])
        return self.add_kernel(lowering, node, reads, target, planned, scratch=scratch)

    def describe(self, step: Any) -> StepDescription:
        return StepDescription(f"{self.label} {step.node.op} {step.plan.name}", step.computes)

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return max(super().estimate(products, numbers, machine),
                   machine.kernel_ns(machine.moving_s(numbers[0])))  # fmt: skip


# -- the pattern -------------------------------------------------------------------------------


def packed_matrix(node: Node, shape: Any, dtype: DType, is_turned: bool) -> PackedMatrix | None:
    """The bytes and the format of a matrix of that shape, perhaps turned, if `node` unpacks one."""
    source = node
    for _ in range(DEEP):
        is_source = source.dtype is uint8 and len(source.shape) == 3
        form = format_of(source.spec, shape) if is_source else None
        if form is not None:
            pattern = template(form.name, source.spec, dtype, is_turned)
            return PackedMatrix(source, form) if is_like(pattern, node, source) else None
        if source.op not in BETWEEN or source.host is not None:
            return None
        source = source.inputs[0]
    return None


@functools.cache
def format_of(blocks: Spec, shape: Any) -> BlockFormat | None:
    """The format of bytes (rows, blocks, bytes of a block) for a matrix of this shape, where
    kernels know it."""
    count, nbytes = blocks.shape[1:]
    if blocks.shape[0] != shape[0] or not count or shape[1] % count:
        return None
    numbers = shape[1] // count
    forms = [*FORMATS.values(), int8_rows(numbers), int4_groups(numbers)]
    for form in forms:
        whole = numbers % (PACK if form.bits == 8 else 2 * PACK) == 0
        if (form.numbers, form.nbytes) == (numbers, nbytes) and whole:
            return form
    return None


@functools.lru_cache(maxsize=512)
def template(name: str, blocks: Spec, dtype: DType, is_turned: bool) -> Node:
    """The node of the numbers in a graph that unpacks blocks of a format."""
    graph = Graph()
    source = graph.emit("input", (), {"number": 0}, blocks)
    form = find_format(name)
    node = node_of(lambda x: composition(x, form), graph, [source], make)
    if dtype is not float32:
        node = make(graph, "cast", node, dtype=dtype)
    return make(graph, "permute", node, axes=(1, 0)) if is_turned else node


def is_like(pattern: Node, node: Node, source: Node) -> bool:
    """Whether a node applies the pattern's calls to `source`."""
    pairs, checked = [(pattern, node)], set()
    while pairs:
        pattern, node = pairs.pop()
        if (key := (pattern.number, node.number)) in checked:
            continue
        checked.add(key)
        if pattern.op == "input":
            if node is not source:
                return False
        elif pattern.call is not node.call:
            return False
        else:
            pairs += zip(pattern.inputs, node.inputs, strict=True)
    return True


# -- the kernels -------------------------------------------------------------------------------


def blocks_text(form: BlockFormat) -> str:
    group, shifted = form.group or 0, int(form.is_shifted)
    values = (form.bits, form.header, form.numbers, form.zero, shifted, group, form.nbytes)
    return f"const gh_blocks f = {{{', '.join(map(str, values))}}};"


def product_text(form: BlockFormat, rows: int, depth: int, columns: int, brief: bool) -> str:
    """Cores share the rows of weights."""
    work = prod((rows, depth, columns)) // PACK
    x = "(const float *)a[0]"
    lines = [blocks_text(form)]
    if brief:
        x = "x"
        lines += [
            "float *x = a[3];",
            f"for (int64_t i = 0; i < {rows * depth}; i++) x[i] = gh_load_one(a[0], i, 1);",
        ]
    lines += parallel(work)
    return (
        "\n".join(lines)
        + f"""
for (int64_t j = 0; j < {columns}; j += GH_OUT)
  gh_packed_rows(a[1], f, {x}, {rows}, {depth}, {columns}, j, a[2], {int(brief)});
"""
    )


def unpack_text(form: BlockFormat, rows: int, depth: int) -> str:
    """Cores share the rows of weights."""
    row = depth // form.numbers * form.nbytes
    lines = [blocks_text(form), *parallel(rows * depth // PACK)]
    return (
        "\n".join(lines)
        + f"""
for (int64_t j = 0; j < {rows}; j++)
  gh_unpack_row((const uint8_t *)a[0] + j * {row}, f, {depth}, (float *)a[1] + j * {depth});
"""
    )
