"""Base of the lowerers that go through oneDNN: how a primitive becomes a step."""

from math import prod
from typing import Any, NamedTuple

from glasshouse.base import Spec, uint8
from glasshouse.compile.lowering.lower import Lowering
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers, Lowerer, StepDescription
from glasshouse.compile.steps.emitted import EmittedStep, MissingKernel
from glasshouse.compile.steps.steps import LoweredStep, PlannedBuffer
from glasshouse.compile.steps.view import View, strides_of
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.library import (
    BIAS,
    DST,
    QUERY_SCRATCHPAD,
    SCRATCHPAD,
    SRC,
    OnednnCall,
    OnednnObject,
    PrimitiveCall,
    Unavailable,
)
from glasshouse.targets.cpu.onednn.tiled_reorders import TiledReorder, Tiles, tiles_between
from glasshouse.targets.cpu.writing.epilogues import with_epilogue


class PlannedPrimitive(NamedTuple):
    """Plan of a step that calls oneDNN: the call, the views of its arguments, and a label."""

    call: OnednnCall
    views: list[View]
    name: str

    def emit(self) -> EmittedStep:
        return EmittedStep([(v.base, v.offset) for v in self.views], PrimitiveCall(self.call))


class OnednnLowerer(Lowerer):
    """A primitive of oneDNN, with a bias where it takes one. A relu is not part of the step: of a
    NaN oneDNN's makes 0."""

    label = "onednn"
    has_scratch = True

    def __init__(self, own_copies: bool = True) -> None:
        # Whether kernels of ours copy operands: such code is for one kind of processor.
        self.own_copies: bool = own_copies

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        specs = [node.spec, *(x.spec for x in node.inputs)]
        if node.host is not None or onednn.library() is None or self.is_unusual(node):
            return None
        if any(s.dtype.name not in onednn.DTYPES or s.size == 0 for s in specs):
            return None
        return with_epilogue(graph, node, takes_relu=False)

    def explain(self, node: Node, dtypes: str) -> MissingKernel:
        if onednn.library() is None:
            fix = "Install it: pip install onednn-cpu-gomp"
            return MissingKernel("oneDNN is not installed", fix)
        if any(x.spec.dtype.name not in onednn.DTYPES for x in (node, *node.inputs)):
            fix = "Use float32 or a narrower float"
            return MissingKernel(f"oneDNN computes no {dtypes}", fix)
        return MissingKernel(f"oneDNN has no fast way for these {dtypes}", "Use other shapes")

    def is_unusual(self, node: Node) -> bool:
        """Whether oneDNN has nothing for a node, whatever its operands."""
        return False

    def plan(self, lowering: Lowering, claim: Claim) -> bool:
        node, (bias, after) = claim.nodes[0], claim.plan
        view = None if bias is None else lowering.row_major(bias)
        if self.has_planned(PrimitivePlanner(self, lowering, claim.nodes, after or []), view):
            return True
        if len(claim.nodes) == 1 or not self.has_planned(
            PrimitivePlanner(self, lowering, [node]), None
        ):
            return False
        for after in claim.nodes[1:]:  # it takes nothing after it in this case
            lowering.plan_without(self, after)
        return True

    def has_planned(self, planner: "PrimitivePlanner", bias: View | None) -> bool:
        """Whether oneDNN has a fast way, whose steps are added then."""
        try:
            self.plan_primitive(planner, planner.node, bias)
        except Unavailable:  # its laid-out operands stay: others read them there too
            return False
        return True

    def plan_primitive(self, planner: "PrimitivePlanner", node: Node, bias: View | None) -> None:
        """Add the steps that compute a node, perhaps with a bias.

        Raises: Unavailable where oneDNN has no fast way.
        """
        raise NotImplementedError

    def emit(self, step: LoweredStep) -> EmittedStep:
        return step.plan.emit()

    def describe(self, step: LoweredStep) -> StepDescription:
        text = f"{self.label} {step.node.op} {step.plan.name}"
        return StepDescription(text, step.computes, "copy" if step.computes else "reorder")

    def identity(self) -> str:
        return f"{self.label} {onednn.identity()}"


class PrimitivePlanner:
    """Adds the steps of one node to a lowering: `nodes` are those that its primitive computes,
    `after` what it does after the first and its bias: (what, the other operand or None)."""

    def __init__(
        self, lowerer: OnednnLowerer, lowering: Lowering, nodes: list[Node], after: Any = ()
    ) -> None:
        self.lowerer = lowerer
        self.lowering = lowering
        self.nodes, self.after = nodes, after
        self.node: Node = nodes[0]
        dnnl = onednn.library()
        assert dnnl is not None
        self.dnnl = dnnl

    def add_step(
        self,
        desc: OnednnObject,
        reads: list[tuple[int, OnednnObject, View]],
        writes: list[tuple[int, OnednnObject, View]],
        label: str,
        computes: list[Any] | None = None,
        worth_keeping: bool = True,
    ) -> None:
        """A step for a primitive descriptor; reads and writes are (argument, descriptor, view)."""
        dnnl, lowering, scratch, args = self.dnnl, self.lowering, [], [*reads, *writes]
        scratch_desc = dnnl.query(desc, QUERY_SCRATCHPAD)
        nbytes = dnnl.size(scratch_desc)
        if nbytes or not self.lowerer.own_copies:  # another processor's may need some
            buffer = lowering.buffer(Spec((max(nbytes, 1),), uint8))
            scratch.append(buffer)
            args.append((SCRATCHPAD, scratch_desc, buffer.view()))
        name = dnnl.implementation(desc)
        if name.startswith("ref") and prod(self.node.spec.shape) > 64:
            raise Unavailable(f"{label}: only {name}")
        call_args = [arg[:2] for arg in args]
        call = OnednnCall(desc, call_args, nbytes, name, dnnl.chosen_layouts(call_args))
        lowering.add_step(
            self.lowerer,
            self.node,
            [view for *_, view in reads],
            [view.base for *_, view in writes],
            PlannedPrimitive(call, [view for *_, view in args], f"{label} {name}"),
            scratch=scratch,
            computes=self.nodes if computes is None else computes,
            worth_keeping=worth_keeping,
        )

    def add_reorder(
        self,
        source: View,
        source_desc: OnednnObject,
        target: View,
        target_desc: OnednnObject,
        worth_keeping: bool = True,
    ) -> None:
        """A step that changes a layout: ours where it turns tiles, else oneDNN's."""
        if (tiles := self.tiles_between(source_desc, target_desc)) is not None:
            planned, results = TiledReorder(tiles, [source, target]), [target.base]
            more = {"computes": [], "worth_keeping": worth_keeping}
            self.lowering.add_step(self.lowerer, self.node, [source], results, planned, **more)
            return
        how = (source_desc, "engine", target_desc, "engine", self.dnnl.attr)
        desc = self.dnnl.object("reorder_primitive_desc_create", *how)
        reads, writes = [(SRC, source_desc, source)], [(DST, target_desc, target)]
        self.add_step(desc, reads, writes, "reorder", [], worth_keeping)

    def tiles_between(self, source_desc: OnednnObject, target_desc: OnednnObject) -> Tiles | None:
        """The tiles of a change of layout; None where that turns none, or oneDNN is to do it."""
        if not self.lowerer.own_copies:
            return None
        return tiles_between(self.dnnl.layout(source_desc), self.dnnl.layout(target_desc))

    def reordered(
        self,
        node: Node,
        source: View,
        source_desc: OnednnObject,
        layout: OnednnObject,
        worth_keeping: bool = True,
    ) -> View:
        """An operand, the value of `node`, in the layout that a primitive chose; where it lies if
        that is the one."""
        if self.lies_so(source_desc, layout):
            return source
        target = self.scratch_view(layout)
        # The step belongs to the operand's node, whose path names it.
        PrimitivePlanner(self.lowerer, self.lowering, [node]).add_reorder(
            source, source_desc, target, layout, worth_keeping
        )
        return target

    def lies_so(self, desc: OnednnObject, layout: OnednnObject) -> bool:
        """Whether a value lies as a primitive wants it, on whatever processor the code runs."""
        return self.lowerer.own_copies and self.dnnl.equal(desc, layout)

    def hand_out(self, target: PlannedBuffer) -> None:
        """From now on users of the last node load this result."""
        self.lowering.hand_out(self.nodes[-1], [target])

    def result(self, order: tuple[int, ...] | None = None) -> tuple[OnednnObject, PlannedBuffer]:
        """(descriptor, buffer) of the result, its axes in an order."""
        node = self.node
        desc = self.dnnl.desc(node.shape, node.dtype, strides_of(node.shape, order))
        return desc, self.lowering.buffer(node.spec, order, node)

    def bias(
        self, view: View | None, shape: tuple[int, ...]
    ) -> tuple[OnednnObject | None, list[Any]]:
        """The descriptor of a bias in this shape, and the primitive's arguments for it."""
        if view is None:
            return None, []
        desc = self.dnnl.desc(shape, view.base.dtype, strides_of(shape))
        return desc, [(BIAS, desc, view)]

    def scratch_view(self, desc: OnednnObject) -> View:
        """Memory for something in a layout of the primitive's own."""
        return self.lowering.buffer(Spec((self.dnnl.size(desc),), uint8)).view()

    def row_major(self, node: Node, groups: int = 1) -> tuple[OnednnObject, View]:
        """(descriptor, view) of an operand, perhaps of weights for groups, in row-major order."""
        view = self.lowering.row_major(node)
        shape = weight_shape(view.shape, groups)
        return self.dnnl.desc(shape, view.base.dtype, strides_of(shape)), view


def weight_shape(shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """(O, C/g, *K) as oneDNN wants it: with the groups as a separate axis."""
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])
