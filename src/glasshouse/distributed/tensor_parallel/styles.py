"""Styles: how the ranks along an axis of a mesh share out a layer. `distribute` applies them by
patterns of module names; the model's code stays as it is."""

import abc
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError
from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.distributed.groups.placement import (
    Placement,
    Replicate,
    Shard,
    check_cut,
    own_part,
    sharding_of,
)
from glasshouse.distributed.groups.randomness import drawn_apart
from glasshouse.distributed.replicas.replicate import check_same, share
from glasshouse.distributed.tensor_parallel.context import (
    PositionEmbedding,
    attend_in_ring,
    check_ring,
)
from glasshouse.distributed.tensor_parallel.layout import (
    Layout,
    check_layout,
    join_parts,
    own_part_of,
    reduced_output,
    whole_input,
)
from glasshouse.distributed.tensor_parallel.patterns import matching
from glasshouse.distributed.tensor_parallel.vocabulary import (
    VocabularyCrossEntropy,
    VocabularyEmbedding,
    check_loss,
)
from glasshouse.nn import CrossEntropyLoss, Dropout, Embedding, Linear, Module, MultiheadAttention
from glasshouse.nn.functional.linear import linear
from glasshouse.ops import collective
from glasshouse.ops.process import ProcessGroup

__all__ = ["Apart", "Column", "ContextParallel", "Heads", "Row", "Sequence", "Style", "Vocabulary",
           "distribute"]  # fmt: skip


class ColumnLinear(Linear):
    """A Linear whose outputs the ranks share out."""

    def forward(self, input: Any) -> Any:
        x = whole_input(input, self.layout)
        y = linear(x, self.weight, self.bias, _where="Linear")
        if isinstance(self.layout.output, Shard):
            return y
        return join_parts(y, -1, self.layout.group)


class RowLinear(Linear):
    """A Linear whose inputs the ranks share out; their products are added up."""

    def forward(self, input: Any) -> Any:
        x = input
        if isinstance(self.layout.input, Replicate):
            x = own_part_of(x, -1, self.layout.group)
        y = reduced_output(linear(x, self.weight, None, _where="Linear"), self.layout)
        return y if self.bias is None else y + self.bias


class ApartDropout(Dropout):
    """Dropout that draws different numbers on each rank."""

    def forward(self, input: Any) -> Any:
        with drawn_apart(self.layout.group):
            return super().forward(input)


class ParallelAttention(MultiheadAttention):
    """MultiheadAttention whose heads the ranks share out (`layout`), or the parts of the sequence
    (`ring`, a group), or both along two axes of a mesh."""

    layout: Layout | None = None
    ring: ProcessGroup | None = None

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        operands = (query, key, value)
        if self.layout is not None:
            inputs = {id(x): whole_input(x, self.layout) for x in operands}
            operands = tuple(inputs[id(x)] for x in operands)
        if self.ring is not None:
            masks = (key_padding_mask, attn_mask)
            check_ring("MultiheadAttention", self, masks, need_weights)
            separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = (self.in_proj_weight, separate, self.in_proj_bias)
            return attend_in_ring(self, self.ring, operands, is_causal, weights)
        if need_weights:
            fix = "Pass need_weights=False."
            raise OptionError("MultiheadAttention", "no weights of all heads", "need_weights", fix)
        options = (key_padding_mask, False, attn_mask, average_attn_weights, is_causal)
        query, key, value = operands
        if self.layout is None or not (self.training and self.dropout):
            return super().forward(query, key, value, *options)
        with drawn_apart(self.layout.group):
            return super().forward(query, key, value, *options)


class Style(abc.ABC):
    """How ranks along `axis` share out one module."""

    def __init__(
        self,
        axis: str = "tensor",
        *,
        input: Placement | None = None,
        output: Placement | None = None,
    ) -> None:
        where = type(self).__name__
        self.axis = axis
        self.input: Placement = check_layout(
            where, self.default_input() if input is None else input
        )
        self.output: Placement = check_layout(
            where, self.default_output() if output is None else output
        )

    def default_input(self) -> Placement:
        return Replicate()

    def default_output(self) -> Placement:
        return Replicate()

    @abc.abstractmethod
    def cuts(self, name: str, module: Module) -> dict[str, Shard]:
        """Cuts of a module's parameters; refuses a module of another kind."""

    @abc.abstractmethod
    def apply(self, module: Module, layout: Layout) -> None:
        """Change how the module computes; its parameters are cut already."""

    def check_type(self, name: str, module: Module, *kinds: type[Any]) -> None:
        if not any(type(module).forward is kind.forward for kind in kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            got = f"{type(module).__name__} at {name!r}"
            fix = "Change the pattern, or the style."
            raise OptionError(f"distribute, {type(self).__name__}", expected, got, fix)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.axis!r}, input={self.input}, output={self.output})"


class Column(Style):
    """A Linear whose outputs the ranks share out. `input=Shard(axis)`: each has a part of the
    sequence; `output=Replicate()`: the outputs are joined."""

    def default_output(self) -> Any:
        return Shard(-1)

    def cuts(self, name: Any, module: Any) -> Any:
        self.check_type(name, module, Linear)
        return {"weight": Shard(0), "bias": Shard(0)}

    def apply(self, module: Any, layout: Any) -> None:
        module.__class__, module.layout = ColumnLinear, layout


class Row(Style):
    """A Linear whose inputs the ranks share out, and whose results are added up.
    `output=Shard(axis)`: each rank gets a part of the sequence."""

    def default_input(self) -> Any:
        return Shard(-1)

    def cuts(self, name: Any, module: Any) -> Any:
        self.check_type(name, module, Linear)
        return {"weight": Shard(1)}

    def apply(self, module: Any, layout: Any) -> None:
        module.__class__, module.layout = RowLinear, layout
        if isinstance(layout.output, Shard):
            sum_gradients([module.bias], layout)


class Heads(Style):
    """A MultiheadAttention whose heads the ranks share out. `input=Shard(1), output=Shard(1)`: each
    has a part of the sequence outside of it."""

    def cuts(self, name: Any, module: Any) -> Any:
        self.check_type(name, module, MultiheadAttention, ParallelAttention)
        packed = dict.fromkeys(("in_proj_weight", "in_proj_bias"), Shard(0, parts=3))
        separate = {f"{kind}_proj_weight": Shard(0) for kind in "qkv"}
        return {**packed, **separate, **dict.fromkeys(("bias_k", "bias_v"), Shard(2))} | {
            "out_proj.weight": Shard(1)
        }

    def apply(self, module: Any, layout: Any) -> None:
        module.__class__, module.layout = ParallelAttention, layout
        module.num_heads //= layout.group.size
        module.out_proj.__class__ = RowLinear
        module.out_proj.layout = Layout(layout.group, Shard(-1), layout.output)
        if isinstance(layout.output, Shard):
            sum_gradients([module.out_proj.bias], layout)


class Vocabulary(Style):
    """An Embedding whose rows the ranks share out, or the CrossEntropyLoss of scores whose classes
    they share out. `output=Shard(1)`: each rank gets a part of the sequence."""

    def cuts(self, name: Any, module: Any) -> Any:
        if isinstance(module, CrossEntropyLoss):
            check_loss("distribute, Vocabulary", module)
            return {}
        self.check_type(name, module, Embedding)
        if module.max_norm is not None or module.scale_grad_by_freq:
            fix = "Leave max_norm and scale_grad_by_freq out."
            raise OptionError("distribute, Vocabulary", "a plain Embedding", repr(module), fix)
        return {"weight": Shard(0)}

    def apply(self, module: Any, layout: Any) -> None:
        is_loss = isinstance(module, CrossEntropyLoss)
        module.__class__ = VocabularyCrossEntropy if is_loss else VocabularyEmbedding
        module.layout = layout


class Sequence(Style):
    """A module that sees a part of the sequence on each rank, as norms and dropout may: gradients
    of its parameters are added up, and dropout draws apart. `input=Replicate()`: the whole sequence
    comes, and is cut along axis 1, or `output=Shard(axis)`."""

    def default_input(self) -> Any:
        return Shard(1)

    def default_output(self) -> Any:
        return Shard(1)

    def cuts(self, name: Any, module: Any) -> Any:
        return {}

    def apply(self, module: Any, layout: Any) -> None:
        if type(module).forward is Dropout.forward:
            module.__class__, module.layout = ApartDropout, layout
        sum_gradients(list(module.parameters()), layout)
        if isinstance(layout.input, Replicate):
            axis = layout.output.axis

            def cut(module, args):
                return own_part_of(args[0], axis, layout.group), *args[1:]

            module.register_forward_pre_hook(cut)


class Apart(Style):
    """Dropout of values split among ranks, such as hidden units: each rank draws other numbers."""

    def cuts(self, name: Any, module: Any) -> Any:
        self.check_type(name, module, Dropout)
        return {}

    def apply(self, module: Any, layout: Any) -> None:
        module.__class__, module.layout = ApartDropout, layout


class ContextParallel(Style):
    """A MultiheadAttention, or the Embedding of positions, of a model all of which sees a part of
    the sequence on each rank. Average gradients over this axis too: `replicate(model, mesh,
    ("data", "context"))`."""

    def __init__(self, axis: str = "context") -> None:
        super().__init__(axis)

    def cuts(self, name: Any, module: Any) -> Any:
        self.check_type(name, module, MultiheadAttention, ParallelAttention, Embedding)
        return {}

    def apply(self, module: Any, layout: Any) -> None:
        if isinstance(module, Embedding):
            module.__class__, module.layout = PositionEmbedding, layout
        else:
            module.__class__, module.ring = ParallelAttention, layout.group


def sum_gradients(parameters: list[Any], layout: Layout) -> None:
    """Have the gradients of parameters, which ranks use on parts of a sequence, added up."""
    for p in parameters:
        if p is not None and p.requires_grad:
            p.register_hook(
                lambda g: collective.all_reduce(
                    g, group=layout.group, reduce="sum", replicated=True
                )
            )


def distribute(module: Module, mesh: DeviceMesh, plan: dict[str, Style | list[Style]]) -> Module:
    """`module` with its parts shared out as `plan` says: patterns of names ("layers.*.linear1") and
    the styles of the modules that fit. Parameters are those of the first rank along each axis.

    Raises: OptionError for a pattern that fits nothing (with the nearest name), a style that does
        not fit its module, or an unknown axis; ShapeError where ranks do not divide a parameter;
        nothing is changed then
    Source: Shoeybi et al. 2019, arXiv:1909.08053; Korthikanti et al. 2022, arXiv:2205.05198
    Example:
        >>> model = gh.nn.Sequential(gh.nn.Linear(4, 8), gh.nn.ReLU(), gh.nn.Linear(8, 4))
        >>> mesh = gh.distributed.mesh({"tensor": 1})
        >>> plan = {"0": gh.distributed.Column(), "2": gh.distributed.Row()}
        >>> gh.distributed.distribute(model, mesh, plan)(gh.ones((1, 4))).shape
        (1, 4)
    """
    work, cuts = list[Any](), dict[Any, Any]()
    for pattern, styles in plan.items():
        for name, part in matching("distribute", module, pattern).items():
            for style in styles if isinstance(styles, list) else [styles]:
                work.append((part, style))
                for member, cut in style.cuts(name, part).items():
                    note_cut(cuts, (name, part), member, (style.axis, cut), mesh)
                check_heads(name, part, style, mesh)
    for axis in dict.fromkeys(style.axis for _, style in work):
        if mesh.size(axis) > 1:
            check_same(module, mesh.group(axis))
            share(module, mesh.group(axis))
    with no_grad():
        for p, (axis, cut) in cuts.items():
            sharding = sharding_of(p).with_cut(mesh, axis, cut)
            p.rebind(own_part(p, cut, mesh.group(axis)))
            p.sharding = sharding
    for part, style in work:
        style.apply(part, Layout(mesh.group(style.axis), style.input, style.output))
    return module


def note_cut(
    cuts: dict[Any, Any],
    named_module: tuple[Any, ...],
    member: str,
    placed: tuple[Any, ...],
    mesh: Any,
) -> None:
    """Record how a parameter is to be cut; refuse an impossible cut."""
    (name_of_module, part), (axis, cut) = named_module, placed
    where = f"{name_of_module}.{member}"
    path, _, name = member.rpartition(".")
    p = part.get_submodule(path)._parameters.get(name)
    if p is None:
        return
    checked = (axis, check_cut(f"distribute, {where}", p.shape, mesh, axis, cut))
    if cuts.setdefault(p, checked) != checked:
        expected = f"one way to cut it, as {cuts[p][1]} along {cuts[p][0]!r}"
        fix = "Change the style of one of the modules that share it."
        raise OptionError(f"distribute, {where}", expected, f"{checked[1]} along {axis!r}", fix)


def check_heads(name: str, module: Module, style: Style, mesh: DeviceMesh) -> None:
    if isinstance(style, Heads) and module.num_heads % mesh.size(style.axis):
        expected = f"heads that the {mesh.size(style.axis)} ranks along {style.axis!r} divide"
        fix = "Change num_heads, or take another axis."
        raise OptionError(f"distribute, {name}", expected, module.num_heads, fix)
