"""Bindings of native/collectives.c and native/started.c: the library and its structures."""

import ctypes
import functools
from typing import Any

from glasshouse.base.dtype import all_dtypes
from glasshouse.compile.building import toolchain
from glasshouse.ops.collective_card import COLLECTIVES
from glasshouse.ops.collective_requests import CollectiveRequest, digest_of
from glasshouse.ops.exchange import EXCHANGES, REDUCTIONS

SOURCES = [toolchain.NATIVE / name for name in ("collectives.c", "started.c")]
DONE, UNDER_WAY, DIFFERENT, FAILED = range(4)  # as in native/collectives.c, like all of these
KINDS = tuple(name for name, way in EXCHANGES.items() if way.is_native and way.method == name)
KIND = {name: number for number, name in enumerate(KINDS)}
DTYPES = {dtype.np: (number, dtype.itemsize) for number, dtype in enumerate(all_dtypes)}
IN_C = tuple(name for name in KINDS if name in COLLECTIVES)  # calls of Programs


class Header(ctypes.Structure):
    """Header of a rank's call."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("number", "kind", "dtype", "argument", "count", "digest")
    ]

    def __str__(self) -> str:
        way = EXCHANGES[KINDS[self.kind]]
        if not way.arrays:
            return f"{way.name}{self.place}"
        words = way.words(REDUCTIONS[self.argument] if way.option == "reduce" else self.argument)
        how = f", {words}" if words else ""
        return f"{way.name}({all_dtypes[self.dtype].name}, {self.count} elements{how}){self.place}"

    @property
    def place(self) -> str:
        """Number of the call among the rank's calls, as text."""
        return f", its call {self.number}" if self.number else ""


class GroupState(ctypes.Structure):
    """A rank's view of its group."""

    _fields_ = [
        ("memory", ctypes.c_void_p),
        ("failed", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("spins", ctypes.c_int64),
        ("small_bytes", ctypes.c_int64),
        ("phase", ctypes.c_uint64),
        ("number", ctypes.c_int64),
        ("sent_bytes", ctypes.c_int64),
    ]


class CollectiveCall(ctypes.Structure):
    """A call or message under way."""

    _fields_ = [
        ("header", Header),
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("item_bytes", "step", "told", "peer", "at")),
    ]


class StartedCall(ctypes.Structure):
    """A call from its start to its end."""

    _fields_ = [
        ("call", CollectiveCall),
        *((name, ctypes.c_void_p) for name in ("queue", "next", "source", "out")),
        *((name, ctypes.c_int64) for name in ("kind", "dtype", "argument", "count", "digest")),
        ("item_bytes", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("begin_ns", "end_ns", "is_done")),
    ]

    @property
    def header(self) -> Header:
        """Header of the call; without its number while it has not begun."""
        draft = Header(0, self.kind, self.dtype, self.argument, self.count, self.digest)
        return self.call.header if self.begin_ns else draft


@functools.cache
def library() -> ctypes.CDLL:
    """Compile and load the sources.

    Raises: CompileError
    """
    names = ", ".join(KINDS).upper(), ", ".join(REDUCTIONS).upper()
    tables = "".join(f"enum {{ {listed} }};\n" for listed in names)
    library = toolchain.compile_one(tables + "".join(path.read_text() for path in SOURCES))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.gh_group_bytes.argtypes, library.gh_group_bytes.restype = [number], number
    library.gh_call.argtypes = [pointer, *[number] * 6, pointer, pointer]
    library.gh_queue.restype = library.gh_first.restype = pointer
    for name in ("gh_queue", "gh_first", "gh_end", "gh_forget", "gh_wait"):
        getattr(library, name).argtypes = [pointer]
    library.gh_end.restype = library.gh_forget.restype = None
    library.gh_send.argtypes = [pointer, pointer]
    library.gh_receive.argtypes = [pointer, pointer, pointer]
    library.gh_look.argtypes = [pointer, pointer, pointer]
    library.gh_look.restype = library.gh_message.restype = None
    library.gh_message.argtypes = [pointer, *[number] * 5, pointer, number]
    return library


@functools.cache
def step_of(part: str) -> int | None:
    """Address of the function that does this part of a call as a step of a Program."""
    function = getattr(library(), f"gh_{part or 'whole'}_step")
    return ctypes.cast(function, ctypes.c_void_p).value


class CallInC:
    """A collective of a Program: C functions start it and wait for it (`functions`, by the part of
    the call that a step is); they take `address`."""

    def __init__(self, transport: Any, call: Any, asked: CollectiveRequest) -> None:
        (spec,), attrs = call.specs, call.attrs
        self.transport = transport
        self.request = asked
        way = COLLECTIVES[call.name]
        argument = way.number(attrs.get(way.option, way.default))
        dtype, item_bytes = DTYPES[spec.dtype.np]
        digest = digest_of(call.name, spec.dtype.np, spec.shape, argument, asked)
        numbers = {"kind": KIND[call.name], "dtype": dtype, "argument": argument, "digest": digest}
        numbers |= {"count": spec.size, "item_bytes": item_bytes, "is_done": 1}
        self.started: StartedCall = StartedCall(queue=transport.queue, **numbers)
        self.address: int = ctypes.addressof(self.started)
        self.functions: dict[str, int | None] = {
            part: step_of(part) for part in ("start", "wait", "")
        }
        transport.started[self.address] = self

    @property
    def begin_ns(self) -> int:
        return self.started.begin_ns

    @property
    def end_ns(self) -> int:
        return self.started.end_ns

    def text(self) -> str:
        """Name of the call for errors."""
        return self.transport.text_of(self.started.header, self.request)

    def finish(self) -> None:
        """Continue with the call to its end.

        Raises: CollectiveError where that does not come
        """
        self.transport.finish(self.started, self.text)
