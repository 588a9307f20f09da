"""Kernels for the largest elements of windows (pooling), and for their gradient."""

from itertools import product
from math import prod

from glasshouse.compile import c_text
from glasshouse.compile.c_text import loaded, stored
from glasshouse.compile.emitted import CKernel, EmittedStep
from glasshouse.compile.kernel_writer import canonical
from glasshouse.compile.loops import decoded
from glasshouse.compile.lowerer import Claim, GraphUsers
from glasshouse.compile.view import View
from glasshouse.graph.graph import Node
from glasshouse.targets.cpu.handwritten import HandwrittenKernels, parallel, pointers

MAX_WINDOW = 64  # positions that a window kernel unrolls
WINDOW_CHUNK = 4096  # elements of the vector axis that a scatter of windows takes at a time
LEAST_LANES = 8  # windows in a row that a vector loop is for


class WindowKernels(HandwrittenKernels):
    """The largest element of each window, and its gradient. The result lies in memory in the order
    of the operands."""

    ops = ("window_select", "window_scatter")

    def claims(self, graph: GraphUsers, node: Node) -> Claim | None:
        fits = super().claims(graph, node) and prod(node.attrs["size"]) <= MAX_WINDOW
        return Claim([node]) if fits else None

    def plan(self, lowering, claim: Claim) -> bool:
        node = claim.last
        first, keys = (lowering.operand_view(x) for x in node.inputs)
        moving = sorted(range(len(node.shape)), key=lambda i: -abs(keys.strides[i]))
        target = lowering.buffer(node.spec, moving, node)
        lowering.add_step(self, node, [first, keys], [target], (first, keys, target.view()))
        lowering.hand_out(node, [target])
        return True

    def emit(self, step) -> EmittedStep:
        write = emit_select if step.node.op == "window_select" else emit_scatter
        return write(step.node, *step.plan)


class Windows:
    """The geometry of windows over the last axes of a view."""

    def __init__(self, node, keys: View, counts):
        attrs = node.attrs
        self.d = len(attrs["size"])
        self.lead = len(keys.shape) - self.d
        self.counts = counts
        self.offsets = list(product(*(range(n) for n in attrs["size"])))
        self.stride, self.dilation = attrs["stride"], attrs["dilation"]
        extents = [(n - 1) * e + 1 for n, e in zip(attrs["size"], self.dilation, strict=True)]
        self.overlap = any(n > s for n, s in zip(extents, self.stride, strict=True))
        self.size = attrs["size"]

    def tile(self, shape) -> bool:
        """Whether every element of axes of this shape lies in just one window."""
        covered = tuple(n * s for n, s in zip(self.counts, self.stride, strict=True))
        return self.size == self.stride and not self.overlap and covered == tuple(shape)

    def within(self, view: View, at) -> int:
        """Elements from the start of a window to one of its positions."""
        steps = view.strides[self.lead :]
        return sum(a * s * e for a, s, e in zip(at, steps, self.dilation, strict=True))

    def inner_axis(self, view: View) -> int | None:
        """The axis for the vector loop: the leading one that lies densest in memory, or, if it lies
        denser, an axis of the windows."""
        axes = {i: abs(view.strides[i]) for i in range(self.lead) if view.shape[i] > 1}
        for k, n in enumerate(self.counts):
            if n >= LEAST_LANES:
                axes[self.lead + k] = abs(view.strides[self.lead + k]) * self.stride[k]
        return min(axes, key=lambda i: axes[i], default=None)

    def terms(self, view: View, inner, windows: bool) -> str:
        """The element of a view at the current indices: l… of the lead, o… of the windows."""
        parts = []
        for i in range(self.lead):
            name = "i" if i == inner else f"l{i}"
            if view.shape[i] > 1 and view.strides[i]:
                parts.append(f"{name} * {view.strides[i]}LL")
        for k in range(self.d):
            step = view.strides[self.lead + k] * (self.stride[k] if windows else 1)
            if self.counts[k] > 1 and step:
                parts.append(f"{'i' if self.lead + k == inner else f'o{k}'} * {step}LL")
        return " + ".join(parts) or "0"


def choose(windows: Windows, keys: View, dtype, inner) -> list[str]:
    """Statements that find a window's largest key: `best`, and its number `at`."""
    base = windows.terms(keys, inner, True)
    floating = dtype.is_floating
    lines = []
    for number, at in enumerate(windows.offsets):
        key = loaded(f"b1[{base} + {windows.within(keys, at)}]", dtype)
        if number == 0:
            lines += [f"{c_text.compute_type(dtype)} best = {key};", "int32_t at = 0;"]
            continue
        # The first NaN wins. Choices inside choices, since compilers vectorise these.
        place = f"key != key ? (best == best ? {number} : at) : at" if floating else "at"
        value = "key != key ? (best == best ? key : best) : best" if floating else "best"
        lines.append(
            f"{{ const __typeof__(best) key = {key}; "
            f"at = key > best ? {number} : {place}; "
            f"best = key > best ? key : {value}; }}"
        )
    return lines


def emit_select(node, x: View, keys: View, out: View) -> EmittedStep:
    """window_select: every window on its own."""
    windows = Windows(node, keys, out.shape[len(out.shape) - len(node.attrs["size"]) :])
    inner = windows.inner_axis(keys)
    outer = [(f"l{i}", n) for i, n in enumerate(out.shape[: windows.lead]) if i != inner]
    outer += [(f"o{k}", n) for k, n in enumerate(windows.counts) if windows.lead + k != inner]
    total = prod(n for _, n in outer)
    lines = pointers(x, keys, out)
    lines += parallel(out.base.spec.size * len(windows.offsets))
    lines.append(f"for (int64_t p = 0; p < {total}; p++) {{")
    lines += decoded("p", outer)
    lines += ["#pragma omp simd", f"for (int64_t i = 0; i < {size_of(out, inner)}; i++) {{"]
    lines += choose(windows, keys, node.inputs[1].dtype, inner)
    target = f"b2[{windows.terms(out, inner, False)}]"
    if node.inputs[0] is node.inputs[1]:
        lines.append(f"{target} = {stored('best', node.dtype)};")
    else:
        base = windows.terms(x, inner, True)
        value = f"b0[{base} + {windows.within(x, windows.offsets[0])}]"
        for number, at in enumerate(windows.offsets[1:], 1):
            value = f"at == {number} ? b0[{base} + {windows.within(x, at)}] : ({value})"
        lines.append(f"{target} = {value};")
    lines += ["}", "}"]
    return kernel_of(lines, (x, keys, out))


def emit_scatter(node, g: View, keys: View, out: View) -> EmittedStep:
    """window_scatter: the windows of one leading index after another, since they may overlap. Of
    each window the place of its largest key first, then its g to that place, 0 to the others."""
    windows = Windows(node, keys, g.shape[len(g.shape) - len(node.attrs["size"]) :])
    inner = windows.inner_axis(keys)
    size = size_of(g, inner)
    lead = [(f"l{i}", n) for i, n in enumerate(out.shape[: windows.lead]) if i != inner]
    lines = pointers(g, keys, out)
    lines += parallel(out.base.spec.size * len(windows.offsets))
    lines.append(f"for (int64_t p = 0; p < {prod(n for _, n in lead)}; p++) {{")
    lines += decoded("p", lead)
    if not windows.tile(out.shape[windows.lead :]):
        clear = Windows(node, out, out.shape[windows.lead :])
        clear.stride = (1,) * clear.d
        lines += nest(clear, inner)
        lines.append(f"for (int64_t i = 0; i < {size_of(out, inner)}; i++)")
        lines.append(f"  b2[{clear.terms(out, inner, True)}] = 0;")
    lines += [*nest(windows, inner), "{"]
    first, last, at = "0", str(size), "i"
    if size > WINDOW_CHUNK:  # the places chosen lie on the stack
        lines += [
            f"for (int64_t lo = 0; lo < {size}; lo += {WINDOW_CHUNK}) {{",
            f"const int64_t hi = lo + {WINDOW_CHUNK} < {size} ? lo + {WINDOW_CHUNK} : {size};",
        ]
        first, last, at = "lo", "hi", "i - lo"
    each = ["#pragma omp simd", f"for (int64_t i = {first}; i < {last}; i++) {{"]
    lines += [f"int32_t chosen[{min(size, WINDOW_CHUNK)}];", *each]
    lines += [*choose(windows, keys, node.inputs[1].dtype, inner), f"chosen[{at}] = at;", "}"]
    dtype, base = node.dtype, windows.terms(out, inner, True)
    kind = loaded("b0[0]", dtype)
    given = loaded(f"b0[{windows.terms(g, inner, False)}]", dtype)
    for number, offset in enumerate(windows.offsets):
        place = f"b2[{base} + {windows.within(out, offset)}]"
        value = f"(chosen[{at}] == {number} ? g : 0)"
        if windows.overlap:
            value = f"{loaded(place, dtype)} + {value}"
        lines += [*each, f"const __typeof__({kind}) g = {given};"]
        lines += [f"{place} = {stored(value, dtype)};", "}"]
    lines += ["}"] * (3 if size > WINDOW_CHUNK else 2)
    return kernel_of(lines, (g, keys, out))


def nest(windows: Windows, inner) -> list[str]:
    return [
        f"for (int64_t o{k} = 0; o{k} < {n}; o{k}++)"
        for k, n in enumerate(windows.counts)
        if windows.lead + k != inner
    ]


def kernel_of(lines: list[str], views) -> EmittedStep:
    text = canonical("\n".join(lines) + "\n")
    return EmittedStep([(v.base, v.offset) for v in views], CKernel(text))


def size_of(view: View, axis) -> int:
    return 1 if axis is None else view.shape[axis]
