"""Kernels for the largest elements of windows (pooling), and for their gradient."""

from itertools import product
from math import inf, prod
from typing import Any

from glasshouse.base import DType
from glasshouse.compile.kernels import c_text
from glasshouse.compile.kernels.c_text import literal, loaded, stored
from glasshouse.compile.kernels.kernel_writer import canonical
from glasshouse.compile.kernels.loops import decoded
from glasshouse.compile.lowering.lowerer import Claim, GraphUsers
from glasshouse.compile.steps.emitted import CKernel, EmittedStep
from glasshouse.compile.steps.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.writing.handwritten import HandwrittenKernels, parallel, pointers

MAX_WINDOW = 64  # positions that a window kernel unrolls
WINDOW_CHUNK = 4096  # elements of the vector axis that a scatter of windows takes at a time
LEAST_LANES = 8  # windows in a row that a vector loop is for


class WindowKernels(HandwrittenKernels):
    """The largest element of each window, and its gradient. The result lies in memory in the order
    of the operands. Where keys are a padded value, that is read as it lies, unless the vector loop
    would meet its edge."""

    ops: tuple[str, ...] = ("window_select", "window_scatter")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        if super().claims(graph, node) is None or prod(node.attrs["size"]) > MAX_WINDOW:
            return None
        first, keys = node.inputs
        if not is_bordered(keys, len(node.attrs["size"])):
            return Claim([node])
        whole = keys.inputs[0]
        if node.op == "window_select":
            return Claim([node], (whole,), plan=keys) if first is keys else Claim([node])
        users = graph.users_of(node)
        if len(users) == 1 and not graph.is_output(node) and cuts_border(users[0], keys):
            return Claim([node, users[0]], (first, whole), plan=keys)
        return Claim([node])

    def plan(self, lowering: Any, claim: Claim) -> bool:
        node, pad, computes = claim.nodes[0], claim.plan, claim.nodes
        if pad is not None:
            keys = lowering.operand_view(pad.inputs[0])
            inner = Windows(node, keys).inner
            if inner is not None and inner >= len(node.shape) - len(node.attrs["size"]):
                pad, computes = None, computes[:1]
        if pad is None:
            keys = lowering.operand_view(node.inputs[1])
        same = node.inputs[0] is node.inputs[1]
        first = keys if same else lowering.operand_view(node.inputs[0])
        moving = sorted(range(len(node.shape)), key=lambda i: -abs(keys.strides[i]))
        target = lowering.buffer(computes[-1].spec, moving, computes[-1])
        plan = (first, keys, target.view(), pad)
        lowering.add_step(self, node, [first, keys], [target], plan, computes=computes)
        lowering.hand_out(computes[-1], [target])
        for cut in claim.nodes[len(computes) :]:
            lowering.plan_fused(cut)
        return True

    def emit(self, step: Any) -> EmittedStep:
        write = emit_select if step.node.op == "window_select" else emit_scatter
        return write(step.node, *step.plan)


def is_bordered(keys: Node, d: int) -> bool:
    """Whether a node only puts an edge around the last axes of its operand."""
    if keys.op != "pad" or keys.host is not None:
        return False
    widths = keys.attrs["widths"]
    plain = all(low >= 0 and high >= 0 and not interior for low, high, interior in widths)
    return plain and not any(map(any, widths[:-d])) and keys.inputs[0].spec.size > 0


def is_lowest(keys: Node) -> bool:
    """Whether a node puts an edge around its operand that no element is below."""
    return keys.op == "pad" and keys.attrs["value"] == -inf


def cuts_border(node: Node, pad: Node) -> bool:
    """Whether a node is a slice that removes exactly the padding of `pad`."""
    if node.op != "slice" or node.host is not None:
        return False
    starts = tuple(low for low, _, _ in pad.attrs["widths"])
    inside = node.shape == pad.inputs[0].shape and set(node.attrs["steps"]) <= {1}
    return inside and tuple(node.attrs["starts"]) == starts


class Windows:
    """The geometry of windows over the last axes of keys, or of their padded form by `pad`. The
    vector loop goes along the `inner` axis: the leading one that lies densest in memory, or, if it
    lies denser, an axis of the windows; its index is i, those of the others are l… and o….

    Along a padded axis k, position a of a window lies at u{k}_{a}, and w{k}_{a} is where it is read
    though it lie at the edge; n… is then a position's number, or -1 at the edge. Where the keys
    have a `padding`, p{k}_{a} says whether a position lies in it along axis k, and r… that it does
    along none: such a position is chosen first."""

    def __init__(self, node: Node, keys: View, pad: Node | None = None) -> None:
        attrs = node.attrs
        self.size: tuple[int, ...] = attrs["size"]
        self.stride: tuple[int, ...] = attrs["stride"]
        self.dilation: tuple[int, ...] = attrs["dilation"]
        self.d: int = len(self.size)
        self.lead: int = len(keys.shape) - self.d
        windows = node if node.op == "window_select" else node.inputs[0]
        self.counts: tuple[int, ...] = windows.shape[self.lead :]
        self.limits: tuple[int, ...] = keys.shape[self.lead :]
        self.offsets: list[tuple[int, ...]] = list(product(*(range(n) for n in self.size)))
        sizes = zip(self.size, self.dilation, strict=True)
        self.extents: list[int] = [(n - 1) * e + 1 for n, e in sizes]
        self.overlap: bool = any(n > s for n, s in zip(self.extents, self.stride, strict=True))
        widths = ((0, 0, 0),) * self.d if pad is None else pad.attrs["widths"][self.lead :]
        self.low: list[int] = [low for low, _, _ in widths]
        self.padded: list[int] = [k for k, pair in enumerate(widths) if any(pair)]
        self.fill: str = "" if pad is None else literal(pad.attrs["value"], pad.dtype)
        self.padding: Any = attrs["padding"]
        self.bordered: list[int] = [k for k, pair in enumerate(self.padding) if any(pair)]
        if node.inputs[0] is node.inputs[1] and is_lowest(node.inputs[1]):
            self.bordered = []  # its value is chosen where nothing is larger: the same either way
        self.sizes: Any = node.inputs[1].shape[self.lead :]
        self.inner: int | None = self.inner_axis(keys)
        self.along: int | None
        self.along = None  # the axis of the windows that the vector loop goes along, if it does
        if self.inner is not None and self.inner >= self.lead:
            self.along = self.inner - self.lead

    def inner_axis(self, view: View) -> int | None:
        axes = {i: abs(view.strides[i]) for i in range(self.lead) if view.shape[i] > 1}
        for k, n in enumerate(self.counts):
            if n >= LEAST_LANES:
                axes[self.lead + k] = abs(view.strides[self.lead + k]) * self.stride[k]
        return min(axes, key=lambda i: axes[i], default=None)

    @property
    def tile(self) -> bool:
        """Whether every element of the last axes lies in just one window."""
        covered = tuple(n * s for n, s in zip(self.counts, self.stride, strict=True))
        plain = self.size == self.stride and not self.overlap and not self.padded
        return plain and covered == self.limits

    def within(self, view: View, at: Any) -> int:
        """Elements from the start of a window to one of its positions, along axes without edge."""
        steps = view.strides[self.lead :]
        axes = (k for k in range(self.d) if k not in self.padded)
        return sum(at[k] * steps[k] * self.dilation[k] for k in axes)

    def lead_terms(self, view: View) -> list[str]:
        names = ["i" if i == self.inner else f"l{i}" for i in range(self.lead)]
        moving = (i for i in range(self.lead) if view.shape[i] > 1 and view.strides[i])
        return [f"{names[i]} * {view.strides[i]}LL" for i in moving]

    def terms(self, view: View, strides: Any) -> str:
        """The element of a view at the current indices, each window `strides` from the next; along
        axes whose stride is None, their first."""
        parts = self.lead_terms(view)
        for k, stride in enumerate(strides):
            step = view.strides[self.lead + k] * (stride or 0)
            if self.counts[k] > 1 and step:
                parts.append(f"{'i' if k == self.along else f'o{k}'} * {step}LL")
        return " + ".join(parts) or "0"

    def result(self, view: View) -> str:
        """The element of a view that has one for each window."""
        return self.terms(view, (1,) * self.d)

    def window(self, view: View) -> str:
        """The element at the start of a window, along axes without edge."""
        return self.terms(
            view, [None if k in self.padded else s for k, s in enumerate(self.stride)]
        )

    def place(self, view: View, at: Any) -> str:
        """The element at a position of a window."""
        moves = [f" + w{k}_{at[k]} * {view.strides[self.lead + k]}LL" for k in self.padded]
        return f"{self.window(view)} + {self.within(view, at)}{''.join(moves)}"

    def number(self, number: int) -> str:
        return f"n{number}" if self.padded else str(number)

    def edges(self) -> list[str]:
        """Statements that tell which positions of a window lie at the edge."""
        lines = []
        for k in self.padded:
            last, step = self.limits[k] - 1, self.stride[k]
            for a in range(self.size[k]):
                u, start = f"u{k}_{a}", a * self.dilation[k] - self.low[k]
                lines.append(f"const int64_t {u} = o{k} * {step} + ({start});")
                within = f"{u} < 0 ? 0 : {u} > {last} ? {last} : {u}"
                lines.append(f"const int64_t w{k}_{a} = {within};")
        for number, at in enumerate(self.offsets if self.padded else ()):
            inside = " && ".join(f"u{k}_{at[k]} == w{k}_{at[k]}" for k in self.padded)
            lines.append(f"const int32_t n{number} = {inside} ? {number} : -1;")
        return lines

    def borders(self, axes: Any) -> list[str]:
        """Statements that tell which positions of a window lie in the padding along these axes."""
        lines = []
        for k in axes:
            low, high = self.padding[k]
            index = "i" if k == self.along else f"o{k}"
            for a in range(self.size[k]):
                place = f"{index} * {self.stride[k]} + {a * self.dilation[k]}"
                beyond = f"{place} < {low} || {place} >= {self.sizes[k] - high}"
                lines.append(f"const int p{k}_{a} = {beyond};")
        return lines

    def outside(self) -> list[str]:
        """`borders` that the vector loop does not change."""
        return self.borders([k for k in self.bordered if k != self.along])

    def real(self) -> list[str]:
        """Statements that tell which positions of a window lie outside the padding."""
        lines = self.borders([k for k in self.bordered if k == self.along])
        for number, at in enumerate(self.offsets if self.bordered else ()):
            border = " | ".join(f"p{k}_{at[k]}" for k in self.bordered)
            lines.append(f"const int r{number} = !({border});")
        return lines


def choose(windows: Windows, keys: View, dtype: DType) -> list[str]:
    """Statements that find a window's largest key: `best`, and its number `at`, -1 at the edge."""
    floating, c = dtype.is_floating, c_text.compute_type(dtype)
    lines = windows.real()
    for number, offset in enumerate(windows.offsets):
        key, n = loaded(f"b1[{windows.place(keys, offset)}]", dtype), windows.number(number)
        if windows.padded:  # loaded in any case: loads under a condition keep a loop scalar
            lines.append(f"const {c} read{number} = {key};")
            key = f"{n} < 0 ? {windows.fill} : read{number}"
        if number == 0:
            lines += [f"{c} best = {key};", f"int32_t at = {n};"]
            if windows.bordered:
                lines.append("int found = r0;")
            continue
        if windows.bordered:
            nan = " | ((key != key) & (best == best))" if floating else ""
            lines.append(
                f"{{ const {c} key = {key}; "
                f"const int better = r{number} & (!found | (key > best){nan}); "
                f"at = better ? {n} : at; best = better ? key : best; found |= r{number}; }}"
            )
            continue
        # The first NaN wins. Choices inside choices, since compilers vectorise these.
        place = f"key != key ? (best == best ? {n} : at) : at" if floating else "at"
        value = "key != key ? (best == best ? key : best) : best" if floating else "best"
        lines.append(
            f"{{ const {c} key = {key}; "
            f"at = key > best ? {n} : {place}; "
            f"best = key > best ? key : {value}; }}"
        )
    return lines


def emit_select(node: Any, x: View, keys: View, out: View, pad: Any) -> EmittedStep:
    """window_select: every window on its own."""
    windows = Windows(node, keys, pad)
    inner = windows.inner
    outer = [(f"l{i}", n) for i, n in enumerate(out.shape[: windows.lead]) if i != inner]
    outer += [(f"o{k}", n) for k, n in enumerate(windows.counts) if k != windows.along]
    lines = pointers(x, keys, out)
    lines += parallel(out.base.spec.size * len(windows.offsets))
    lines.append(f"for (int64_t p = 0; p < {prod(n for _, n in outer)}; p++) {{")
    lines += [*decoded("p", outer), *windows.edges(), *windows.outside()]
    lines += ["#pragma omp simd", f"for (int64_t i = 0; i < {size_of(out, inner)}; i++) {{"]
    lines += choose(windows, keys, node.inputs[1].dtype)
    value = stored("best", node.dtype)
    if node.inputs[0] is not node.inputs[1]:
        value = "value"
        for number, at in enumerate(windows.offsets):
            lines.append(f"const __typeof__(*b0) x{number} = b0[{windows.place(x, at)}];")
        lines.append("__typeof__(*b0) value = x0;")
        for number in range(1, len(windows.offsets)):
            lines.append(f"value = at == {number} ? x{number} : value;")
    lines += [f"b2[{windows.result(out)}] = {value};", "}", "}"]
    return kernel_of(lines, (x, keys, out))


def emit_scatter(node: Any, g: View, keys: View, out: View, pad: Any) -> EmittedStep:
    """window_scatter: the windows of one leading index after another, since they may overlap. Of
    each window the place of its largest key first, then its g to that place."""
    windows = Windows(node, keys, pad)
    size = size_of(g, windows.inner)
    lead = [(f"l{i}", n) for i, n in enumerate(out.shape[: windows.lead]) if i != windows.inner]
    lines = pointers(g, keys, out)
    lines += parallel(out.base.spec.size * len(windows.offsets))
    lines.append(f"for (int64_t p = 0; p < {prod(n for _, n in lead)}; p++) {{")
    lines += decoded("p", lead)
    lines += [*nest(windows, out), *windows.edges(), *windows.outside()]
    first, last, at = "0", str(size), "i"
    if size > WINDOW_CHUNK:  # the places chosen lie on the stack
        lines += [
            f"for (int64_t lo = 0; lo < {size}; lo += {WINDOW_CHUNK}) {{",
            f"const int64_t hi = lo + {WINDOW_CHUNK} < {size} ? lo + {WINDOW_CHUNK} : {size};",
        ]
        first, last, at = "lo", "hi", "i - lo"
    each = ["#pragma omp simd", f"for (int64_t i = {first}; i < {last}; i++) {{"]
    lines += [f"int32_t chosen[{min(size, WINDOW_CHUNK)}];", *each]
    lines += [*choose(windows, keys, node.inputs[1].dtype), f"chosen[{at}] = at;", "}"]
    if windows.overlap and windows.along is not None:
        lines += give_in_turn(windows, g, out, (first, last, at))
    else:
        lines += give_by_place(windows, g, out, each, at)
    text = "".join(lines)
    lines += ["}"] * (text.count("{") - text.count("}"))
    return kernel_of(lines, (g, keys, out))


def give_by_place(windows: Windows, g: View, out: View, each: Any, at: str) -> list[str]:
    """Each position of the windows after another: their g if it was chosen, or else 0."""
    dtype, lines = out.base.dtype, []
    kind = loaded("b0[0]", dtype)
    gradient = loaded(f"b0[{windows.result(g)}]", dtype)
    for number, offset in enumerate(windows.offsets):
        place = f"b2[{windows.place(out, offset)}]"
        is_chosen, present = f"chosen[{at}] == {number}", loaded(place, dtype)
        value = f"{is_chosen} ? g : {present if windows.padded else 0}"
        if windows.overlap:
            value = f"{present} + ({is_chosen} ? g : 0)"
        lines += [*each, f"const __typeof__({kind}) g = {gradient};"]
        lines += [f"{place} = {stored(value, dtype)};", "}"]
    return lines


def give_in_turn(windows: Windows, g: View, out: View, bounds: Any) -> list[str]:
    """Each window's g to the place that it chose: the last window first, so that a place meets its
    windows in the order of its number in them, as in `give_by_place`."""
    dtype, (first, last, at) = out.base.dtype, bounds
    places = ", ".join(f"{windows.within(out, offset)}LL" for offset in windows.offsets)
    place = f"b2[{windows.window(out)} + places[chosen[{at}]]]"
    value = f"{loaded(place, dtype)} + {loaded(f'b0[{windows.result(g)}]', dtype)}"
    return [
        f"static const int64_t places[] = {{{places}}};",
        f"for (int64_t i = {last} - 1; i >= {first}; i--)",
        f"  {place} = {stored(value, dtype)};",
    ]


def nest(windows: Windows, out: View) -> list[str]:
    """The loops over windows beside the vector loop, with zeros first, unless each element gets its
    value from its window: along the outermost axis just as far as the windows reach by then."""
    loops = [
        f"for (int64_t o{k} = 0; o{k} < {n}; o{k}++) {{"
        for k, n in enumerate(windows.counts)
        if k != windows.along
    ]
    if windows.tile:
        return loops
    axes = [k for k in range(windows.d) if k != windows.along]
    zeros = [f"for (int64_t c{k} = 0; c{k} < {windows.limits[k]}; c{k}++)" for k in axes]
    zeros.append(f"for (int64_t i = 0; i < {size_of(out, windows.inner)}; i++)")
    steps = [
        f"{'i' if k == windows.along else f'c{k}'} * {out.strides[windows.lead + k]}LL"
        for k in range(windows.d)
    ]
    zeros.append(f"  b2[{' + '.join([*windows.lead_terms(out), *steps])}] = 0;")
    if windows.along == 0:
        return zeros + loops
    reach = f"o0 * {windows.stride[0]} + {windows.extents[0] - windows.low[0]}"
    whole = f"o0 == {windows.counts[0] - 1} || {reach} > {windows.limits[0]}"
    zeros[0] = "for (; c0 < reach; c0++)"
    reach = f"const int64_t reach = {whole} ? {windows.limits[0]} : {reach};"
    return ["int64_t c0 = 0;", loops[0], reach, *zeros, *loops[1:]]


def kernel_of(lines: list[str], views: Any) -> EmittedStep:
    text = canonical("\n".join(lines) + "\n")
    return EmittedStep([(v.base, v.offset) for v in views], CKernel(text))


def size_of(view: View, axis: Any) -> int:
    return 1 if axis is None else view.shape[axis]
