"""Steps through oneDNN's C API: matrix products and convolutions.

Numbers here are those of oneDNN's public headers (dnnl_types.h, version 3). Data goes in
channels-last layout; weights are reordered into the layout that the primitive prefers.

Source: oneDNN developer guide, "Memory format propagation" and "Inspecting the JIT code".
"""

import ctypes
import functools
import glob
import os
import sys
import threading
import warnings
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_uint, c_void_p
from math import prod
from typing import NamedTuple
from weakref import WeakValueDictionary

from glasshouse.base import Spec, float32, uint8
from glasshouse.base.flags import flags
from glasshouse.compile.view import View, same_strides, strides_of

DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
FORWARD_TRAINING, CONVOLUTION_DIRECT, FORMAT_ANY, CPU = 64, 1, 1, 1
SRC, DST, WEIGHTS, BIAS, SCRATCHPAD = 1, 17, 33, 41, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_SCRATCHPAD, QUERY_NAME = 131, 132, 136, 8
FEW_POSITIONS, PRODUCT_WEIGHTS = 256, 1 << 14  # of an image; elements at least
CACHED_PRIMITIVES = 64  # that oneDNN keeps when no Program uses them
# What objects are, by a part of the name of what makes them.
DESTROYED = (
    ("primitive_desc_create", "primitive_desc"),
    ("memory_desc_create", "memory_desc"),
    ("primitive_create", "primitive"),
    ("attributes", "primitive_attr"),
)
Dims = c_int64 * 12


class Unavailable(Exception):
    """oneDNN is not installed, or has no fast implementation for a call."""


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class Onednn(ctypes.Structure):
    """`Onednn` of native/runner.c."""

    _fields_ = (("primitive", c_void_p), ("stream", c_void_p), ("args", c_void_p))


class Object:
    """Something of oneDNN: `made_by` is the call that makes it, `pointer` where it is. Equal calls
    give one object, and a stored object is made again by its call. `destroy(pointer)` is called
    when nobody refers to the object any more."""

    __slots__ = ("made_by", "pointer", "destroy", "__weakref__")

    def __init__(self, made_by: tuple, pointer: c_void_p, destroy=None):
        self.made_by, self.pointer, self.destroy = made_by, pointer, destroy

    def __del__(self):
        if self.destroy is not None:
            self.destroy(self.pointer)

    def __reduce__(self):
        return remade, self.made_by


def remade(*made_by) -> Object:
    dnnl = library()
    if dnnl is None:
        raise Unavailable("oneDNN is not installed")
    return dnnl.object(*made_by)


class Library:
    """The loaded library with an engine and a stream; `call` raises where a function fails."""

    def __init__(self):
        self.dll = ctypes.CDLL(find_library())
        for name in ("dnnl_memory_desc_get_size", "dnnl_primitive_desc_query_md"):
            getattr(self.dll, name).restype = c_size_t if "size" in name else c_void_p
        self.engine, self.stream = c_void_p(), c_void_p()
        self.call("dnnl_engine_create", byref(self.engine), c_int(CPU), c_size_t(0))
        self.call("dnnl_stream_create", byref(self.stream), self.engine, c_uint(1))
        # A primitive lives as long as a Program uses it: oneDNN's own cache would keep it longer.
        self.dll.dnnl_set_primitive_cache_capacity(c_int(CACHED_PRIMITIVES))
        self.made: WeakValueDictionary[tuple, Object] = WeakValueDictionary()
        self.attr = self.object("attributes")

    def call(self, name: str, *args) -> None:
        status = getattr(self.dll, name)(*args)
        if status != 0:
            raise Unavailable(f"{name} returned {status}")

    def object(self, *call) -> Object:
        """What a call makes: the name of a create function (without "dnnl_") and its arguments,
        "attributes", or "query" with a primitive's descriptor and what is asked for."""
        found = self.made.get(call)
        if found is None:
            made = Object(call, self.pointer_of(*call), self.destroyer_of(call[0]))
            found = self.made.setdefault(call, made)
        return found

    def destroyer_of(self, name: str):
        """The function that destroys what a call of this name makes, if it is not part of another
        object."""
        for begin, kind in DESTROYED:
            if begin in name:
                return getattr(self.dll, f"dnnl_{kind}_destroy")
        return None

    def pointer_of(self, name: str, *args) -> c_void_p:
        if name == "query":
            md = self.dll.dnnl_primitive_desc_query_md(args[0].pointer, args[1], 0)
            return c_void_p(md)
        made = c_void_p()
        if name == "attributes":
            self.call("dnnl_primitive_attr_create", byref(made))
            self.call("dnnl_primitive_attr_set_scratchpad_mode", made, c_int(1))
        else:
            self.call(f"dnnl_{name}", byref(made), *map(self.converted, args))
        return made

    def converted(self, arg):
        """An argument as C takes it: a tuple is sizes, "engine" the engine, None no object."""
        if isinstance(arg, Object):
            return arg.pointer
        if isinstance(arg, tuple):
            return Dims(*arg)
        if arg is None:
            return c_void_p(None)
        return self.engine if arg == "engine" else c_int(arg)

    def desc(self, shape, dtype, strides=None) -> Object:
        """A memory descriptor; without strides the primitive chooses the layout."""
        how, layout = ("tag", FORMAT_ANY) if strides is None else ("strides", tuple(strides))
        kind = DTYPES[dtype.name]
        return self.object(f"memory_desc_create_with_{how}", len(shape), tuple(shape), kind, layout)

    def query(self, primitive_desc: Object, what: int) -> Object:
        return self.object("query", primitive_desc, what)

    def memory(self, desc: Object) -> Object:
        """A memory object of its own, which the runner gives an address."""
        made = c_void_p()
        self.call("dnnl_memory_create", byref(made), desc.pointer, self.engine, c_void_p(None))
        return Object((), made, self.dll.dnnl_memory_destroy)

    def size(self, desc: Object) -> int:
        return self.dll.dnnl_memory_desc_get_size(desc.pointer)

    def equal(self, a: Object, b: Object) -> bool:
        return bool(self.dll.dnnl_memory_desc_equal(a.pointer, b.pointer))

    def primitive(self, kind: str, *args) -> Object:
        """The descriptor of a primitive, whose scratch memory is ours."""
        return self.object(f"{kind}_primitive_desc_create", "engine", *args, self.attr)

    def implementation(self, desc: Object) -> str:
        """The name of a primitive's implementation, e.g. "brg:avx512_core" or "ref:any"."""
        name, what = c_char_p(), (c_int(QUERY_NAME), c_int(0))
        self.call("dnnl_primitive_desc_query", desc.pointer, *what, byref(name))
        return (name.value or b"").decode()


def find_library() -> str:
    """The path of oneDNN's library: GH_ONEDNN, or the one beside Python.

    Raises: Unavailable.
    """
    if flags.onednn:
        if not os.path.exists(flags.onednn):
            raise Unavailable(f"GH_ONEDNN names {flags.onednn}, which does not exist")
        return flags.onednn
    for root in (sys.prefix, sys.base_prefix, os.path.expanduser("~/.local")):
        found = sorted(glob.glob(os.path.join(root, "lib", "libdnnl.so*")))
        if found:
            return found[-1]
    raise Unavailable("libdnnl.so is not installed; pip install onednn-cpu-gomp")


loading = threading.Lock()  # two libraries would have two engines, whose objects do not mix


def library() -> Library | None:
    with loading:
        return load_library()


@functools.cache
def load_library() -> Library | None:
    try:
        return Library()
    except (OSError, Unavailable, AttributeError) as error:
        slower = "glasshouse: matrix products and convolutions run through NumPy, slower"
        fix = "Install onednn-cpu-gomp, or set GH_ONEDNN to its library."
        warnings.warn(f"{slower}: {error}. {fix}", stacklevel=3)
        return None


class Call(NamedTuple):
    """One primitive, its arguments by number, and its scratch bytes and implementation."""

    desc: Object
    args: list[tuple[int, Object]]
    scratch_bytes: int
    implementation: str


class Plan(NamedTuple):
    """What a step of the schedule holds: its call, the views of its arguments, and a label."""

    call: Call
    views: list[View]
    name: str

    def __repr__(self):
        return f"<oneDNN {self.name}>"


def make_record(call: Call, runner) -> Onednn:
    """The primitive and its arguments as the runner reads them.

    Raises: Unavailable where this library would run the call in another way than the one that the
        code was made for.
    """
    dnnl = library()
    assert dnnl is not None
    scratch = dnnl.size(dnnl.query(call.desc, QUERY_SCRATCHPAD))
    if (scratch, dnnl.implementation(call.desc)) != (call.scratch_bytes, call.implementation):
        raise Unavailable(f"{call.implementation} became {dnnl.implementation(call.desc)}")
    primitive = dnnl.object("primitive_create", call.desc)
    table = (ExecArg * len(call.args))()
    memories = []
    for entry, (number, desc) in zip(table, call.args, strict=True):
        memory = dnnl.memory(desc)
        memories.append(memory)
        entry.arg, entry.memory = number, memory.pointer.value
    record = Onednn(primitive.pointer.value, dnnl.stream.value, ctypes.cast(table, c_void_p))
    record.parts = (table, primitive, memories)  # kept alive with the record
    # The functions of oneDNN that the runner calls.
    functions = (dnnl.dll.dnnl_memory_set_data_handle, dnnl.dll.dnnl_primitive_execute)
    runner.gh_use_onednn(*(ctypes.cast(f, c_void_p) for f in functions))
    return record


# -- plans ------------------------------------------------------------------------------------


def is_supported(node) -> bool:
    if node.op not in ("matmul", "conv", "conv_data_grad", "conv_weight_grad"):
        return False
    specs = [node.spec, *(x.spec for x in node.inputs)]
    if library() is None or any(s.dtype.name not in DTYPES or s.size == 0 for s in specs):
        return False
    return node.op == "matmul" or len(node.spec.shape) <= 5


def plan(lowering, node, bias=None) -> bool:
    """Add the steps that compute a node with oneDNN; False where it has no fast way."""
    maker = {
        "matmul": plan_matmul,
        "conv": plan_conv,
        "conv_data_grad": plan_data_grad,
        "conv_weight_grad": plan_weight_grad,
    }[node.op]
    try:
        maker(lowering, node, library(), bias)
    except Unavailable:  # what was laid out for it stays: others read it there too
        return False
    return True


def add_step(lowering, node, dnnl, desc, reads, writes, label: str) -> None:
    """A step for a primitive descriptor; reads and writes are (argument, descriptor, view)."""
    scratch = []
    args = [*reads, *writes]
    wanted = dnnl.query(desc, QUERY_SCRATCHPAD)
    nbytes = dnnl.size(wanted)
    if nbytes:
        buffer = lowering.buffer(Spec((nbytes,), uint8))
        scratch.append(buffer)
        args.append((SCRATCHPAD, wanted, buffer.view()))
    name = dnnl.implementation(desc)
    if name.startswith("ref") and prod(node.spec.shape) > 64:
        raise Unavailable(f"{label}: only {name}")
    call = Call(desc, [arg[:2] for arg in args], nbytes, name)
    plan = Plan(call, [view for *_, view in args], f"{label} {name}")
    lowering.add_opaque(
        "onednn",
        node,
        [place for *_, place in reads],
        [place.base for *_, place in writes],
        plan,
        scratch,
    )


def add_reorder(lowering, node, dnnl, source, source_desc, target, target_desc) -> None:
    desc = dnnl.object(
        "reorder_primitive_desc_create", source_desc, "engine", target_desc, "engine", dnnl.attr
    )
    add_step(
        lowering,
        node,
        dnnl,
        desc,
        [(SRC, source_desc, source)],
        [(DST, target_desc, target)],
        "reorder",
    )


def packed_scratch(lowering, dnnl, desc) -> View:
    return lowering.buffer(Spec((dnnl.size(desc),), uint8)).view()


def matrix_strides(view: View) -> tuple[int, ...] | None:
    """The strides of a stack of matrices if oneDNN takes them: one of the last axes is packed."""
    rows, columns = view.shape[-2:]
    over, along = view.strides[-2:]
    if columns == 1:
        along = 1 if rows == 1 or over >= 1 else 0
    if rows == 1:
        over = max(over, columns * max(along, 1)) if along == 1 else 1
    plain = along == 1 and over >= columns
    flipped = over == 1 and along >= rows
    if not (plain or flipped) or any(s < 0 for s in view.strides):
        return None
    return (*view.strides[:-2], over, along)


def matrix_desc(lowering, dnnl, node):
    """(descriptor, view) of an operand of a product, copied first where its layout is odd."""
    view = lowering.operand_view(node)
    strides = matrix_strides(view)
    repeated = [s == 0 and n > 1 for s, n in zip(view.strides, view.shape, strict=True)]
    if strides is None or any(repeated[-2:]):
        return row_major_desc(lowering, dnnl, node)
    shape = tuple(1 if r else n for r, n in zip(repeated, view.shape, strict=True))
    strides = tuple(prod(shape) if r else s for r, s in zip(repeated, strides, strict=True))
    return dnnl.desc(shape, view.base.dtype, strides), view


def plan_matmul(lowering, node, dnnl, bias) -> None:
    """a (…, M, K) @ b (…, K, N), perhaps + bias (N,)."""
    (da, a), (db, b) = (matrix_desc(lowering, dnnl, x) for x in node.inputs)
    try:
        add_matmul(lowering, node, dnnl, (da, a), (db, b), bias)
    except Unavailable:
        first, second = (row_major_desc(lowering, dnnl, x) for x in node.inputs)
        add_matmul(lowering, node, dnnl, first, second, bias)


def add_matmul(lowering, node, dnnl, a, b, bias) -> None:
    target = lowering.buffer(node.spec, node=node)
    out = target.view()
    dc = dnnl.desc(out.shape, node.dtype, strides_of(out.shape))
    reads = [(SRC, *a), (WEIGHTS, *b)]
    bias_desc = None
    if bias is not None:
        shape = (1,) * (len(out.shape) - 1) + out.shape[-1:]
        bias_desc = dnnl.desc(shape, bias.base.dtype, strides_of(shape))
        reads.append((BIAS, bias_desc, bias))
    desc = dnnl.primitive("matmul", a[0], b[0], bias_desc, dc)
    add_step(lowering, node, dnnl, desc, reads, [(DST, dc, out)], "matmul")
    lowering.hand_out(node, [target])


def channels_last(ndim: int) -> tuple[int, ...]:
    """The order of axes of (N, C, *S) in memory with C innermost."""
    return (0, *range(2, ndim), 1)


def channels_last_view(lowering, node) -> View:
    view = lowering.operand_view(node)
    order = channels_last(len(view.shape))
    if not same_strides(view, strides_of(view.shape, order)):
        lowering.materialise(node, order=order)
        view = lowering.operand_view(node)
    return view


def data_desc(lowering, dnnl, node):
    """(descriptor, view) of (N, C, *S) data in channels-last layout."""
    view = channels_last_view(lowering, node)
    strides = strides_of(view.shape, channels_last(len(view.shape)))
    return dnnl.desc(view.shape, view.base.dtype, strides), view


def conv_options(attrs):
    padding = attrs["padding"]
    return (
        tuple(attrs["stride"]),
        tuple(d - 1 for d in attrs["dilation"]),
        tuple(low for low, _ in padding),
        tuple(high for _, high in padding),
    )


def weight_shape(shape, groups: int):
    """(O, C/g, *K) as oneDNN wants it: with the groups as an axis of their own."""
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def row_major_desc(lowering, dnnl, node, groups: int = 1):
    """(descriptor, view) of an operand, perhaps of weights for groups, in row-major order."""
    view = lowering.row_major(node)
    shape = weight_shape(view.shape, groups)
    return dnnl.desc(shape, view.base.dtype, strides_of(shape)), view


def packed_weights(lowering, dnnl, node, groups, desc):
    """The weights in the layout that the primitive chose, reordered if need be."""
    plain, view = row_major_desc(lowering, dnnl, node, groups)
    wanted = dnnl.query(desc, QUERY_WEIGHTS)
    if dnnl.equal(plain, wanted):
        return wanted, view
    packed = packed_scratch(lowering, dnnl, wanted)
    add_reorder(lowering, node, dnnl, view, plain, packed, wanted)
    return wanted, packed


def forward_desc(dnnl, dx, weight, groups, dy, attrs, dtype, bias=None):
    """The primitive descriptor of a forward convolution, also the hint of the backward ones."""
    dw = dnnl.desc(weight_shape(weight, groups), dtype)
    how = (FORWARD_TRAINING, CONVOLUTION_DIRECT)
    return dnnl.primitive("convolution_forward", *how, dx, dw, bias, dy, *conv_options(attrs))


def data_result(lowering, dnnl, node):
    """(descriptor, buffer) of a result (N, C, *S), in channels-last layout."""
    order = channels_last(len(node.shape))
    desc = dnnl.desc(node.shape, node.dtype, strides_of(node.shape, order))
    return desc, lowering.buffer(node.spec, order, node)


def plan_conv(lowering, node, dnnl, bias) -> None:
    x, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    dx, view = data_desc(lowering, dnnl, x)
    dy, target = data_result(lowering, dnnl, node)
    bias_desc = bias and dnnl.desc((node.shape[1],), bias.base.dtype, (1,))
    desc = forward_desc(dnnl, dx, w.shape, groups, dy, attrs, w.dtype, bias_desc)
    dw, packed = packed_weights(lowering, dnnl, w, groups, desc)
    reads = [(SRC, dx, view), (WEIGHTS, dw, packed)]
    if bias is not None:
        reads.append((BIAS, bias_desc, bias))
    add_step(lowering, node, dnnl, desc, reads, [(DST, dy, target.view())], "conv")
    lowering.hand_out(node, [target])


def plan_data_grad(lowering, node, dnnl, _bias) -> None:
    g, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    dg, view = data_desc(lowering, dnnl, g)
    dx, target = data_result(lowering, dnnl, node)
    hint = forward_desc(dnnl, dx, w.shape, groups, dg, attrs, w.dtype)
    dw = dnnl.desc(weight_shape(w.shape, groups), w.dtype)
    descs = (CONVOLUTION_DIRECT, dx, dw, dg)
    desc = dnnl.primitive("convolution_backward_data", *descs, *conv_options(attrs), hint)
    dw, packed = packed_weights(lowering, dnnl, w, groups, desc)
    reads = [(DIFF_DST, dg, view), (WEIGHTS, dw, packed)]
    add_step(lowering, node, dnnl, desc, reads, [(DIFF_SRC, dx, target.view())], "conv data")
    lowering.hand_out(node, [target])


def plan_weight_grad(lowering, node, dnnl, _bias) -> None:
    x, g = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    (dx, x_view), (dg, g_view) = (data_desc(lowering, dnnl, n) for n in (x, g))
    target = lowering.buffer(node.spec, node=node)
    if is_product(attrs, node, x):
        plan_weight_product(lowering, node, dnnl, x_view, g_view, target)
        return
    hint = forward_desc(dnnl, dx, node.shape, groups, dg, attrs, node.dtype)
    shape = weight_shape(node.shape, groups)
    plain = dnnl.desc(shape, node.dtype, strides_of(shape))
    descs = (CONVOLUTION_DIRECT, dx, dnnl.desc(shape, node.dtype), None, dg)
    desc = dnnl.primitive("convolution_backward_weights", *descs, *conv_options(attrs), hint)
    made = dnnl.query(desc, QUERY_DIFF_WEIGHTS)
    reads = [(SRC, dx, x_view), (DIFF_DST, dg, g_view)]
    direct = dnnl.equal(plain, made)
    out = target.view() if direct else packed_scratch(lowering, dnnl, made)
    add_step(lowering, node, dnnl, desc, reads, [(DIFF_WEIGHTS, made, out)], "conv weights")
    if not direct:
        add_reorder(lowering, node, dnnl, out, made, target.view(), plain)
    lowering.hand_out(node, [target])


def is_product(attrs, node, x) -> bool:
    """Whether the gradient of a weight is computed as a product of matrices: that of a 1 x 1 kernel
    which looks at each position once is one. oneDNN's product is the faster one for large weights
    and few positions, or float32 and more channels made (measured for the layers of ResNet-50)."""
    made, taken, *kernel = node.shape
    plain = (
        prod(kernel) == 1
        and attrs["groups"] == 1
        and set(attrs["stride"]) == {1}
        and not any(map(sum, attrs["padding"]))
    )
    few = prod(x.shape[2:]) <= FEW_POSITIONS
    large = made * taken >= PRODUCT_WEIGHTS
    return plain and large and (few or (node.dtype is float32 and made > taken))


def plan_weight_product(lowering, node, dnnl, x: View, g: View, target) -> None:
    made, taken = node.shape[:2]
    rows = prod(x.shape) // taken
    flipped = dnnl.desc((made, rows), node.dtype, (1, made))
    plain = dnnl.desc((rows, taken), node.dtype, (taken, 1))
    result = dnnl.desc((made, taken), node.dtype, (taken, 1))
    desc = dnnl.primitive("matmul", flipped, plain, None, result)
    reads = [(SRC, flipped, g), (WEIGHTS, plain, x)]
    add_step(lowering, node, dnnl, desc, reads, [(DST, result, target.view())], "conv weights")
    lowering.hand_out(node, [target])
