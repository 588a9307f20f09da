"""Kinds of steps: their names, and the numbers that predict their time.

The work of a step does not depend on a machine: its parts that take time, and the amount of each. A
kind turns that into time on a machine; so the work can be computed for other sizes, too."""

from math import prod
from typing import Any, NamedTuple

from glasshouse.dispatch.call import MATRIX, Call
from glasshouse.ops.collective_start import sent_bytes_of

FLAT = "matmul flat"  # products of two matrices, not of stacks of them
FEW = 16  # channels below which convolutions have rates of their own
NARROW = 4  # width of results below which they have: little is done with each weight that is read
RESTS = "rests of rows"  # FLOPs of elements that fill no vector of the processor: one by one
DRAWS = "random_bits"  # a machine has a rate for random numbers, as for FLOPs of products
REFERENCE_NS, REFERENCE_NS_PER_BYTE = 3_000.0, 1.0  # of a card's reference on the host, about


class StepWork(NamedTuple):
    """Work of a step that takes time: its kind and products by name; how many bytes it moves, how
    many of them it writes where operands lay, and the FLOPs of all but products and of each
    product. Random numbers count as a product. A kind may have other numbers."""

    what: tuple[Any, ...]
    numbers: list[int]


class StepKind:
    """A kind of step. This one: a kernel that moves and computes at the same time."""

    label = "kernel"  # in tables, traces and `glasshouse show`
    moves_first = False  # whether moving takes time beside computing, as if it came before
    has_scratch = False  # whether its bytes have scratch memory in them, which comes in leaps …
    moves_scratch = True  # … and leaves the caches
    is_host = False  # whether Python runs it
    is_copy_alone = True  # whether a step that computes no primitive takes as long as a copy

    def work_of(self, info: Any) -> StepWork:
        """Return the work of a step of this kind, from its `StepInfo`."""
        numbers, products = [info.bytes, info.overwritten_bytes, 0], []
        for source in info.sources:
            call = source.call
            if call.primitive.name in MATRIX:
                products.append(self.product_name(call))
                numbers.append(call.cost.flops - info.saved_flops)
                if products[-1].startswith(FLAT) or not self.moves_scratch:
                    numbers[:2] = call.cost.bytes, 0
            elif call.primitive.name == DRAWS:
                products.append(f"{DRAWS} {call.out.dtype.name}")
                numbers.append(call.out.size)
            else:
                numbers[2] += call.cost.flops
        if alone := round(numbers[2] * info.rest):
            numbers[2] -= alone
            products.append(f"{RESTS} float32")
            numbers.append(alone)
        kind = COPY if self.is_copy_alone and not info.sources else self
        return StepWork((kind, *products), numbers)

    def product_name(self, call: Call) -> str:
        """Name under which a machine has the rate of such a product."""
        return f"{product_of(call)} {call.specs[0].dtype.name}"

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        """Estimate the ns of such work on a machine (`analyze.MachineProfile`): the longer of
        moving and computing, or both where one follows the other, and the start of a kernel."""
        nbytes, overwritten, flops, *of_products = numbers
        moving = machine.moving_s(nbytes, overwritten)
        computing = machine.computing_s(flops, zip(products, of_products, strict=True))
        in_turn = self.moves_first or any(name.startswith(FLAT) for name in products)
        return machine.kernel_ns(moving + computing if in_turn else max(moving, computing))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"<{self.label}>"


class CopyKind(StepKind):
    """Steps that move and compute nothing: a change of layout, or a copy between memories."""

    label = "copy"

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return machine.kernel_ns(machine.reorder * machine.moving_s(numbers[0]))


class CollectiveKind(StepKind):
    """Steps that several processes do together: the bytes that a rank sends take the time."""

    label = "collective"
    is_copy_alone = False

    def work_of(self, info: Any) -> StepWork:
        sent = sum(sent_bytes_of(source.call) for source in info.sources)
        return StepWork((self,), [sent])

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return machine.sending_ns(numbers[0])


class ReferenceKind(StepKind):
    """Calls of cards' references, one by one, in Python."""

    label = "reference"
    is_copy_alone = False

    def estimate(self, products: Any, numbers: Any, machine: Any) -> float:
        return REFERENCE_NS + REFERENCE_NS_PER_BYTE * numbers[0]


COPY, COLLECTIVE, REFERENCE = CopyKind(), CollectiveKind(), ReferenceKind()


def product_of(call: Call) -> str:
    """Sort of a product: each sort has its own rates."""
    name, shapes = call.primitive.name, [spec.shape for spec in call.specs]
    if name == "matmul":
        return FLAT if len(shapes[0]) == 2 else name
    weight = call.attrs["shape"] if name == "conv_weight_grad" else shapes[1][2:]
    strided = any(s > 1 for s in call.attrs["stride"]) and prod(weight) > 1
    sort = " depthwise" if is_depthwise(call) else " few" if min(channels_of(call)) < FEW else ""
    return name + (sort or " narrow" * is_narrow(call)) + " strided" * strided


def is_depthwise(call: Call) -> bool:
    """Whether each channel of a convolution has a separate kernel."""
    groups = call.attrs["groups"]
    return groups > 1 and (groups, groups) == channels_of(call)


def is_narrow(call: Call) -> bool:
    """Whether the rows of a convolution's results are short."""
    gradients = {"conv_data_grad": 0, "conv_weight_grad": 1}
    place = gradients.get(call.primitive.name)
    results = call.out if place is None else call.specs[place]
    return results.shape[-1] < NARROW


def channels_of(call: Call) -> tuple[int, int]:
    """Channels of a convolution's first operand and of its results, or of their gradients."""
    results = call.specs[1] if call.primitive.name == "conv_weight_grad" else call.out
    return call.specs[0].shape[1], results.shape[1]
