"""oneDNN through its C API: the library, its objects, and calls of its primitives.

Numbers here are those of oneDNN's public headers (dnnl_types.h, version 3).

Source: oneDNN developer guide, "Memory format propagation" and "Inspecting the JIT code".
"""

import ctypes
import functools
import glob
import os
import sys
import threading
import warnings
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from glasshouse.base import DType, by_name, float32
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.steps.emitted import LoadedCall, NativeCall, StaleCode

DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
KINDS = {**DTYPES, "int32": 4, "int8": 5, "uint8": 6}  # integers in products of bytes alone
ELTWISE_LINEAR, ELTWISE_HARDSWISH, BINARY_ADD = 0x26, 0x34, 0x1FFF0  # operations after a primitive
POST_OPERAND = 1 << 15  # the argument of the first of these, for `SRC_1`
FORWARD_TRAINING, CONVOLUTION_DIRECT, FORMAT_ANY, CPU = 64, 1, 1, 1
SRC, SRC_1, DST, WEIGHTS, BIAS, SCRATCHPAD = 1, 2, 17, 33, 41, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_SCRATCHPAD, QUERY_NAME = 131, 132, 136, 8
# Queries of a memory descriptor.
QUERY_STRIDES, QUERY_NDIM, QUERY_SHAPE, QUERY_DTYPE, QUERY_PADDED_SHAPE = 14, 256, 257, 258, 260
QUERY_BLOCKS, QUERY_BLOCK_SIZES, QUERY_BLOCK_AXES = 263, 264, 265
CACHED_PRIMITIVES = 64  # that oneDNN keeps when no Program uses them
# Kinds of objects, by a part of the name of the function that makes them.
DESTROYED = (
    ("primitive_desc_create", "primitive_desc"),
    ("memory_desc_create", "memory_desc"),
    ("primitive_create", "primitive"),
    ("attributes", "primitive_attr"),
)
EDGE, LARGE = 64, 1024  # rows and columns of a small product, and of a large one
PRIMITIVE_BYTES = 1 << 17  # that a primitive keeps, about: measured to take 117 to 159 KB
RUNNER = Path(__file__).parent / "call.c"
Dims: type[ctypes.Array[c_int64]] = c_int64 * 12


class Unavailable(Exception):
    """oneDNN is not installed, or has no fast implementation for a call."""


class ExecArg(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class PrimitiveRun(ctypes.Structure):
    """`PrimitiveRun` of call.c."""

    _fields_ = (
        ("primitive", c_void_p),
        ("stream", c_void_p),
        ("args", c_void_p),
        ("set_handle", c_void_p),
        ("execute", c_void_p),
    )


class OnednnObject:
    """Something of oneDNN: `made_by` is the call that makes it, `address` where it is. Equal calls
    give one object, and a stored object is made again by its call. `destroy(address)` is called
    when nobody refers to the object any more."""

    __slots__ = ("made_by", "address", "destroy", "__weakref__")

    def __init__(self, made_by: tuple[Any, ...], pointer: c_void_p, destroy: Any = None) -> None:
        self.made_by: tuple[Any, ...] = made_by
        self.address: int | None = pointer.value
        self.destroy: Any = destroy

    @property
    def pointer(self) -> c_void_p:
        """The address as C takes it: a number is one object less for the garbage collector."""
        return c_void_p(self.address)

    def __del__(self) -> None:
        if self.destroy is not None:
            self.destroy(self.address)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return remade, self.made_by


def remade(*made_by: Any) -> OnednnObject:
    dnnl = library()
    if dnnl is None:
        raise Unavailable("oneDNN is not installed")
    return dnnl.object(*made_by)


class MemoryLayout(NamedTuple):
    """How elements lie: in `blocks` (axis, size), the last one innermost, `strides` apart; a shape
    is `padded` to whole blocks. `dtype` is one of `KINDS`."""

    dtype: int
    shape: tuple[int, ...]
    padded: tuple[int, ...]
    strides: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]


class OnednnLibrary:
    """The loaded library with an engine and a stream; `call` raises where a function fails."""

    def __init__(self) -> None:
        toolchain.openmp_runtime()
        self.dll: ctypes.CDLL = ctypes.CDLL(find_library())
        toolchain.thread_pool.adopt(self.dll)
        for name in ("dnnl_memory_desc_get_size", "dnnl_primitive_desc_query_md"):
            getattr(self.dll, name).restype = c_size_t if "size" in name else c_void_p
        self.engine: c_void_p = c_void_p()
        self.stream: c_void_p = c_void_p()
        self.call("dnnl_engine_create", byref(self.engine), c_int(CPU), c_size_t(0))
        self.call("dnnl_stream_create", byref(self.stream), self.engine, c_uint(1))
        # A primitive lives as long as a Program uses it: oneDNN's own cache would keep it longer.
        self.dll.dnnl_set_primitive_cache_capacity(c_int(CACHED_PRIMITIVES))
        self.objects: WeakValueDictionary[tuple[Any, ...], OnednnObject] = WeakValueDictionary()
        self.attr: OnednnObject = self.object("attributes")

    @property
    def version(self) -> str:
        """The library's version, "3.2.0" for example."""
        self.dll.dnnl_version.restype = ctypes.POINTER(c_int)
        return ".".join(map(str, self.dll.dnnl_version()[:3]))

    def call(self, name: str, *args: Any) -> None:
        status = getattr(self.dll, name)(*args)
        if status != 0:
            raise Unavailable(f"{name} returned {status}")

    def object(self, *call: Any) -> OnednnObject:
        """The cached object of a call: the name of a create function (without "dnnl_") with its
        arguments, "attributes" with the operations after a primitive, or "query" with a
        primitive's descriptor and the query."""
        key = call
        if "primitive" in call[0]:  # shares its work out to so many threads, and keeps to that
            key = (*call, toolchain.count_threads())
        handle = self.objects.get(key)
        if handle is None:
            new = OnednnObject(call, self.pointer_of(*call), self.destroyer_of(call[0]))
            handle = self.objects.setdefault(key, new)
        return handle

    def destroyer_of(self, name: str) -> Any:
        """The function that destroys the result of a call of this name, unless it is part of
        another object."""
        for begin, kind in DESTROYED:
            if begin in name:
                return self.destroyer(kind)
        return None

    def destroyer(self, kind: str) -> Any:
        """The function that destroys objects of a kind, called with their address."""
        function = getattr(self.dll, f"dnnl_{kind}_destroy")
        function.argtypes = [c_void_p]
        return function

    def pointer_of(self, name: str, *args: Any) -> c_void_p:
        if name == "query":
            md = self.dll.dnnl_primitive_desc_query_md(args[0].pointer, args[1], 0)
            return c_void_p(md)
        pointer = c_void_p()
        if name == "attributes":
            self.call("dnnl_primitive_attr_create", byref(pointer))
            self.call("dnnl_primitive_attr_set_scratchpad_mode", pointer, c_int(1))
            if args:
                self.set_post_operations(pointer, args)
        else:
            self.call(f"dnnl_{name}", byref(pointer), *map(self.converted, args))
        return pointer

    def set_post_operations(self, attributes: c_void_p, operations: tuple[Any, ...]) -> None:
        """Set the operations after a primitive: (an elementwise function's number, alpha and beta),
        or (a binary one's number, the other operand's descriptor)."""
        chain = c_void_p()
        self.call("dnnl_post_ops_create", byref(chain))
        for number, *rest in operations:
            if len(rest) == 1:
                how = ("binary", c_int(number), rest[0].pointer)
            else:
                how = ("eltwise", c_int(number), *map(c_float, rest))
            self.call(f"dnnl_post_ops_append_{how[0]}", chain, *how[1:])
        self.call("dnnl_primitive_attr_set_post_ops", attributes, chain)
        self.call("dnnl_post_ops_destroy", chain)

    def converted(self, arg: Any) -> Any:
        """An argument as C takes it: a tuple is sizes, "engine" the engine, None no object."""
        if isinstance(arg, OnednnObject):
            return arg.pointer
        if isinstance(arg, tuple):
            return Dims(*arg)
        if arg is None:
            return c_void_p(None)
        return self.engine if arg == "engine" else c_int(arg)

    def desc(
        self, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...] | None = None
    ) -> OnednnObject:
        """A memory descriptor; without strides the primitive chooses the layout."""
        how, layout = ("tag", FORMAT_ANY) if strides is None else ("strides", tuple(strides))
        kind = KINDS[dtype.name]
        return self.object(f"memory_desc_create_with_{how}", len(shape), tuple(shape), kind, layout)

    def query(self, primitive_desc: OnednnObject, what: int) -> OnednnObject:
        return self.object("query", primitive_desc, what)

    def memory(self, desc: OnednnObject) -> OnednnObject:
        """A new memory object, which the runner gives an address."""
        pointer = c_void_p()
        self.call("dnnl_memory_create", byref(pointer), desc.pointer, self.engine, c_void_p(None))
        return OnednnObject((), pointer, self.destroyer("memory"))

    def size(self, desc: OnednnObject) -> int:
        return self.dll.dnnl_memory_desc_get_size(desc.pointer)

    def layout(self, desc: OnednnObject) -> MemoryLayout:
        """The layout that a memory descriptor describes: shapes, strides and blocks."""

        def number(what: int) -> int:
            answer = c_int()
            self.call("dnnl_memory_desc_query", desc.pointer, c_int(what), byref(answer))
            return answer.value

        def numbers(what: int, count: int) -> tuple[int, ...]:
            answer = c_void_p()
            self.call("dnnl_memory_desc_query", desc.pointer, c_int(what), byref(answer))
            return tuple(Dims.from_address(answer.value or 0)[:count])

        ndim, count = number(QUERY_NDIM), number(QUERY_BLOCKS)
        axes, sizes = numbers(QUERY_BLOCK_AXES, count), numbers(QUERY_BLOCK_SIZES, count)
        whats = (QUERY_SHAPE, QUERY_PADDED_SHAPE, QUERY_STRIDES)
        shape, padded, strides = (numbers(what, ndim) for what in whats)
        blocks = tuple(zip(axes, sizes, strict=True))
        return MemoryLayout(number(QUERY_DTYPE), shape, padded, strides, blocks)

    def chosen_layouts(self, args: list[tuple[int, OnednnObject]]) -> list[MemoryLayout]:
        """The layouts of those arguments of a primitive for which primitives chose them."""
        chosen = (QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS)
        queries = (desc for _, desc in args if desc.made_by[0] == "query")
        return [self.layout(desc) for desc in queries if desc.made_by[2] in chosen]

    def equal(self, a: OnednnObject, b: OnednnObject) -> bool:
        return bool(self.dll.dnnl_memory_desc_equal(a.pointer, b.pointer))

    def primitive(self, kind: str, *args: Any, after: Any = ()) -> OnednnObject:
        """The descriptor of a primitive, whose scratch memory is ours, and of what comes `after`
        it."""
        attr = self.object("attributes", *after) if after else self.attr
        return self.object(f"{kind}_primitive_desc_create", "engine", *args, attr)

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """The names of the dtypes that it computes on this processor with instructions made for
        them: a small product shows it."""
        return frozenset(name for name in DTYPES if self.computes(name))

    def computes(self, name: str) -> bool:
        """Whether there is more than a reference for products of a dtype."""
        square = self.desc((EDGE, EDGE), by_name[name], (EDGE, 1))
        try:
            product = self.primitive("matmul", square, square, None, square)
        except Unavailable:
            return False
        return not self.implementation(product).startswith("ref")

    @functools.cached_property
    def chooses_panels(self) -> bool:
        """Whether large products of float32 want a matrix b in panels. Where vectors are short,
        they take both matrices as they lie, and make panels themselves."""
        plain = self.desc((LARGE, LARGE), float32, (LARGE, 1))
        any_layout = self.desc((LARGE, LARGE), float32)
        product = self.primitive("matmul", plain, any_layout, None, plain)
        return bool(self.layout(self.query(product, QUERY_WEIGHTS)).blocks)

    def implementation(self, desc: OnednnObject) -> str:
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
        paths = sorted(glob.glob(os.path.join(root, "lib", "libdnnl.so*")))
        if paths:
            return paths[-1]
    raise Unavailable("libdnnl.so is not installed; pip install onednn-cpu-gomp")


def lacks(dtype: DType) -> bool:
    """Whether oneDNN is here and has no instructions for a dtype on this processor."""
    dnnl = library()
    return dnnl is not None and dtype.name not in dnnl.dtypes


# Two libraries would have two engines, whose objects do not mix.
loading: threading.Lock = threading.Lock()


def library() -> OnednnLibrary | None:
    with loading:
        return load_library()


@functools.cache
def load_library() -> OnednnLibrary | None:
    try:
        return OnednnLibrary()
    except (OSError, Unavailable, AttributeError) as error:
        slower = "glasshouse: matrix products and convolutions run through NumPy, slower"
        fix = "Install onednn-cpu-gomp, or set GH_ONEDNN to its library."
        warnings.warn(f"{slower}: {error}. {fix}", stacklevel=3)
        return None


class OnednnCall(NamedTuple):
    """A primitive's descriptor, its arguments by number, its scratch bytes and implementation, and
    the layouts of the arguments for which it chose them."""

    desc: OnednnObject
    args: list[tuple[int, OnednnObject]]
    scratch_bytes: int
    implementation: str
    layouts: list[MemoryLayout]


@functools.cache
def runner_library() -> ctypes.CDLL:
    """The library that runs primitives: call.c, compiled when first needed."""
    return toolchain.compile_one(RUNNER.read_text())


@dataclass(frozen=True)
class PrimitiveCall(NativeCall):
    """A step that executes a primitive."""

    call: OnednnCall
    nbytes = PRIMITIVE_BYTES

    @property
    def shares(self) -> int:
        return id(self.call.desc)

    def load(self) -> LoadedCall:
        """The primitive and its arguments as call.c reads them.

        Raises: StaleCode where this library would run the call in another way than the one that
            the code was made for.
        """
        dnnl, call = library(), self.call
        assert dnnl is not None
        scratch = dnnl.size(dnnl.query(call.desc, QUERY_SCRATCHPAD))
        if (scratch, dnnl.implementation(call.desc)) != (call.scratch_bytes, call.implementation):
            raise StaleCode(f"{call.implementation} became {dnnl.implementation(call.desc)}")
        if dnnl.chosen_layouts(call.args) != call.layouts:
            raise StaleCode(f"{call.implementation} chooses other layouts")
        primitive = dnnl.object("primitive_create", call.desc)
        table, memories = (ExecArg * len(call.args))(), []
        for entry, (number, desc) in zip(table, call.args, strict=True):
            memories.append(dnnl.memory(desc))
            entry.arg, entry.memory = number, memories[-1].address
        run = PrimitiveRun(
            primitive.address,
            dnnl.stream.value,
            ctypes.addressof(table),
            ctypes.cast(dnnl.dll.dnnl_memory_set_data_handle, c_void_p),
            ctypes.cast(dnnl.dll.dnnl_primitive_execute, c_void_p),
        )
        function = ctypes.cast(runner_library().gh_run_primitive, c_void_p).value or 0
        return LoadedCall(function, ctypes.addressof(run), (run, table, primitive, memories))


def identity() -> str:
    """The oneDNN library in use. Its choices for another number of threads show when its
    primitives are made again."""
    if library() is None:
        return "no oneDNN"
    status = os.stat(path := find_library())
    return f"{path} {status.st_size} {status.st_mtime_ns}"
