"""CPython's bytecode: decoding, live locals, and code that resumes in the middle of a function.

Every jump is relative in 3.11 and later, so code that continues at an offset, with a given stack
and given locals, is a short prefix in front of the unchanged bytecode."""

import builtins
import dis
import types
import weakref
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

from glasshouse.capture.bytecode.versions import bytecode

NAMES = dis.opname
OP = dis.opmap
HAS_LOCAL = {"LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR",
             "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF",
             "MAKE_CELL", "LOAD_FROM_DICT_OR_DEREF"}  # fmt: skip
PAIRS = {"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
BACKWARD = {"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
TARGETS = {"JUMP_FORWARD", "FOR_ITER", "SEND", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP"}
ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP"}
RAISING = {"RAISE_VARARGS", "RERAISE"}
LEAVING = {"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"}
IMPLICIT = {"CALL_INTRINSIC_1", "CLEANUP_THROW"}  # starts of handlers without a `try`
HANDLING = {"PUSH_EXC_INFO", "BUILD_TUPLE", "CHECK_EXC_MATCH", "COPY", "POP_EXCEPT"}
NO_EXIT = {  # names of errors that do not match GeneratorExit
    name
    for name, x in vars(builtins).items()
    if isinstance(x, type) and issubclass(x, BaseException) and not issubclass(GeneratorExit, x)
}
GENERATORS = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


class Instruction(NamedTuple):
    """One operation: `target` is the number of the instruction that a jump leads to, or -1."""

    op: str
    arg: int
    target: int
    offset: int
    line: int


class ExceptionHandler(NamedTuple):
    """The handler of exceptions at instructions begin <= i < end; it keeps `depth` items."""

    begin: int
    end: int
    target: int
    depth: int
    lasti: bool


class DecodedCode:
    """A decoded code object: instructions, names of slots, handlers, live locals, calls that are
    left to Python (by instruction), and an operation that is not captured."""

    instructions: list[Instruction]
    at: dict[int, int]

    def __init__(self, code: types.CodeType) -> None:
        self.size: int = len(code.co_code)
        self.keeps_closure: bool = keeps_closure(code)
        self.opaque: set[int] = set()
        self.unknown: str | None = None
        self.callers: dict[int, types.CodeType] = {}  # by line, of calls that Python does
        self.slots: list[str] = slot_names(code)
        self.names: tuple[str, ...] = code.co_names
        self.instructions, self.at = decode(code)
        self.handlers: list[ExceptionHandler] = [
            ExceptionHandler(self.index(b), self.index(e), self.index(t), depth, lasti)
            for b, e, t, depth, lasti in exception_table(code)
        ]
        self.live: list[frozenset[int]] | None = None
        self.depths: list[int] | None = None

    def index(self, offset: int) -> int:
        """The number of the instruction at an offset, or of the next one."""
        while offset not in self.at and offset < self.size:
            offset += 2
        return self.at.get(offset, len(self.instructions))

    def handler_at(self, i: int) -> ExceptionHandler | None:
        for handler in self.handlers:
            if handler.begin <= i < handler.end:
                return handler
        return None

    def catches_at(self, i: int) -> bool:
        """Whether instruction `i` is in a `try`: its handler is not one of `with` or the like."""
        handler = self.handler_at(i)
        if handler is None:
            return False
        first, second = (x.op for x in self.instructions[handler.target : handler.target + 2])
        return first == "PUSH_EXC_INFO" and second != "WITH_EXCEPT_START"

    def acts_at_exit(self, i: int) -> bool:
        """Whether closing a generator at instruction `i` runs more of its code: a handler of the
        user's, or of `with`, takes GeneratorExit."""
        handler = self.handler_at(i)
        while handler is not None:
            raised_again = self.passes_exit_on(handler.target)
            if raised_again is None:
                return True
            handler = self.handler_at(raised_again)  # the table has only the innermost
        return False

    def passes_exit_on(self, i: int) -> int | None:
        """The instruction where a handler that begins at `i` only raises GeneratorExit again, as
        `except IndexError` does; None if it does more."""
        while self.instructions[i].op not in ("RERAISE", *IMPLICIT):
            ins = self.instructions[i]
            names_other = ins.op == "LOAD_GLOBAL" and self.names[ins.arg >> 1] in NO_EXIT
            if ins.op.startswith("POP_JUMP") and self.instructions[i - 1].op == "CHECK_EXC_MATCH":
                i = ins.target
            elif names_other or ins.op in HANDLING:
                i += 1
            else:
                return None
        return i

    @property
    def ends_with_effects(self) -> bool:
        """Whether a generator has a `yield` where closing it runs more of its code."""
        yields = (i for i, x in enumerate(self.instructions) if x.op == "YIELD_VALUE")
        return any(map(self.acts_at_exit, yields))

    def only_raises(self, i: int) -> bool:
        """Whether all paths from instruction `i` end in a raise that this code does not catch."""
        waiting, reached = [i], set()
        while waiting:
            i = waiting.pop()
            if i in reached:
                continue
            reached.add(i)
            ins = self.instructions[i]
            if ins.op in LEAVING or ins.op in RAISING and self.catches_at(i):
                return False
            if ins.target >= 0:
                waiting.append(ins.target)
            if ins.op not in ENDS:
                waiting.append(i + 1)
        return True

    def depth_at(self, i: int) -> int:
        """The number of items on the stack before instruction `i`; -1 if it is not reached."""
        if self.depths is None:
            self.depths = stack_depths(self)
        return self.depths[i]

    def live_at(self, i: int) -> frozenset[int]:
        """The slots that may be read from instruction `i` on."""
        if self.live is None:
            self.live = liveness(self)
        slots = self.live[i] if i < len(self.live) else frozenset()
        return slots | {0} if self.keeps_closure else slots  # super() reads the first


decoded_codes: dict[int, tuple[weakref.ref[Any], DecodedCode]] = {}
originals: dict[int, tuple[weakref.ref[Any], types.CodeType, int]] = {}  # of resume functions


def decoded(code: types.CodeType) -> DecodedCode:
    """The decoded form, made once and kept as long as the code. Code objects compare by value, so
    the table is by identity."""
    entry = decoded_codes.get(id(code))
    if entry is None:
        # In C: see base/interrupts.py.
        dying = weakref.ref(code, partial(decoded_codes.pop, id(code)))
        entry = decoded_codes[id(code)] = dying, DecodedCode(code)
    return entry[1]


def slot_names(code: types.CodeType) -> list[str]:
    """The names of a frame's slots: locals, cells other than arguments, free variables."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*code.co_varnames, *cells, *code.co_freevars]


def decode(code: types.CodeType) -> tuple[list[Instruction], dict[int, int]]:
    """The instructions without caches and prefixes, and {offset: number}."""
    raw = code.co_code
    lines = line_numbers(code, len(raw))
    rows, at, first, extended = list[Any](), dict[int, int](), -1, 0
    for offset in range(0, len(raw), 2):
        name, arg = NAMES[raw[offset]], raw[offset + 1] | extended
        if name == "CACHE":
            continue
        if first < 0:
            first = offset
        if name == "EXTENDED_ARG":
            extended = arg << 8
            continue
        at[first] = at[offset] = len(rows)
        rows.append([plain_name(name), arg, -1, first, lines[offset]])
        if name.startswith("POP_JUMP") or name in TARGETS or name in BACKWARD:
            after = offset + 2
            while after < len(raw) and NAMES[raw[after]] == "CACHE":
                after += 2
            sign = -1 if "BACKWARD" in name else 1
            rows[-1][2] = after + sign * 2 * arg
        extended, first = 0, -1
    return [
        Instruction(op, arg, at[target] if target >= 0 else -1, offset, line)
        for op, arg, target, offset, line in rows
    ], at


def plain_name(name: str) -> str:
    """The name of an operation in this package: for jumps without a direction."""
    if name in BACKWARD or name == "JUMP_FORWARD":
        return "JUMP"
    if name.startswith("POP_JUMP"):
        return name.replace("_FORWARD", "").replace("_BACKWARD", "")
    return bytecode.aliases.get(name, name)


def line_numbers(code: types.CodeType, size: int) -> list[int]:
    """The source line of each offset; 0 for none."""
    lines = [0] * (size + 2)
    for begin, end, line in code.co_lines():
        lines[begin:end] = [line or 0] * (end - begin)
    return lines


def varint(data: bytes, i: int) -> tuple[int, int]:
    byte = data[i]
    value = byte & 63
    while byte & 64:
        i += 1
        byte = data[i]
        value = value << 6 | byte & 63
    return value, i + 1


def exception_table(code: types.CodeType) -> list[tuple[int, int, int, int, bool]]:
    """(begin, end, target, depth, lasti) in offsets."""
    data, i, handlers = code.co_exceptiontable, 0, []
    while i < len(data):
        begin, i = varint(data, i)
        length, i = varint(data, i)
        target, i = varint(data, i)
        depth, i = varint(data, i)
        handlers.append((2 * begin, 2 * (begin + length), 2 * target, depth >> 1, bool(depth & 1)))
    return handlers


def slot_accesses(ins: Instruction) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(slots read, slots written) by an instruction."""
    op, arg = ins.op, ins.arg
    if op in PAIRS:
        a, b = arg >> 4, arg & 15
        if op == "LOAD_FAST_LOAD_FAST":
            return (a, b), ()
        return ((b,), (a,)) if op == "STORE_FAST_LOAD_FAST" else ((), (a, b))
    if op not in HAS_LOCAL:
        return (), ()
    if op == "STORE_FAST":
        return (), (arg,)
    return (arg,), ()  # a cell is needed to be written


def liveness(decoded: DecodedCode) -> list[frozenset[int]]:
    """For each instruction the slots that may be read later, exceptions included."""
    ins = decoded.instructions
    live: list[frozenset[int]] = [frozenset()] * (len(ins) + 1)
    handlers = [decoded.handler_at(i) for i in range(len(ins))]
    uses = [slot_accesses(x) for x in ins]
    changed = True
    while changed:
        changed = False
        for i in range(len(ins) - 1, -1, -1):
            after = frozenset() if ins[i].op in ENDS else live[i + 1]
            if ins[i].target >= 0:
                after |= live[ins[i].target]
            reads, writes = uses[i]
            now = (after - frozenset(writes)) | frozenset(reads)
            handler = handlers[i]
            if handler is not None:
                now |= live[handler.target]
            if now != live[i]:
                live[i], changed = now, True
    return live


def stack_depths(decoded: DecodedCode) -> list[int]:
    """The number of items on the stack before each instruction; -1 if it is not reached."""
    depths = [-1] * len(decoded.instructions)
    waiting = [(0, 0)]
    while waiting:
        i, depth = waiting.pop()
        while i < len(depths) and depths[i] < 0:
            depths[i] = depth
            handler = decoded.handler_at(i)
            if handler is not None:
                waiting.append((handler.target, handler.depth + handler.lasti + 1))
            ins = decoded.instructions[i]
            if ins.target >= 0:
                waiting.append((ins.target, depth + stack_effect(ins, True)))
            if ins.op in ENDS:
                break
            depth += stack_effect(ins, False)
            i += 1
    return depths


def stack_effect(ins: Instruction, jumps: bool) -> int:
    """The number of items that an instruction adds to the stack."""
    if ins.op in ("JUMP", "PRECALL"):
        return 0
    if ins.op == "CALL" and not bytecode.call_pops_arguments:
        return -ins.arg - 1  # dis counts the arguments at PRECALL, which leaves them
    if ins.op.startswith("POP_JUMP_IF"):
        return -1
    code = OP[ins.op]
    return dis.stack_effect(code, ins.arg if code >= dis.HAVE_ARGUMENT else None, jump=jumps)


class WrongStack(Exception):
    """A resume function whose stack does not match the code that it resumes."""


def verify_resume(resume: types.CodeType, code: types.CodeType, offset: int) -> None:
    """Check that a resume function enters `code` with as many items on the stack as `code` itself
    has there, and that there is room for them.

    Raises: WrongStack
    """
    units = (len(resume.co_code) - len(code.co_code)) // 2
    depth = most = 0
    for ins in decode_range(resume.co_code, 2 * units):
        depth += stack_effect(ins, True)
        most = max(most, depth)
    resumed = decoded(code)
    expected = resumed.depth_at(resumed.at[offset])
    if depth != expected or most > resume.co_stacksize:
        where = f"{code.co_qualname}, offset {offset}"
        raise WrongStack(f"{where}: expected {expected} items on the stack; got {depth}")


# -- resuming in the middle --------------------------------------------------------------------


def decode_range(raw: bytes, size: int) -> list[Instruction]:
    """The instructions at the start of some bytecode."""
    instructions, extended, skip = [], 0, 0
    for offset in range(0, size, 2):
        name, arg = NAMES[raw[offset]], raw[offset + 1] | extended
        extended = arg << 8 if name == "EXTENDED_ARG" else 0
        if skip or name in ("CACHE", "EXTENDED_ARG"):
            skip = max(0, skip - 1)
            continue
        skip = 1 if name == "UNPACK_SEQUENCE" else 0
        instructions.append(Instruction(plain_name(name), arg, -1, offset, 0))
    return instructions


def encode(name: str, arg: int = 0) -> bytes:
    """The bytes of one instruction, with prefixes and caches."""
    out = bytearray()
    for shift in (24, 16, 8):
        if arg >> shift:
            out += bytes((OP["EXTENDED_ARG"], arg >> shift & 255))
    caches = 1 if name == "UNPACK_SEQUENCE" else 0
    return bytes(out) + bytes((OP[name], arg & 255)) + bytes(2 * caches)


def encode_number(value: int, first: bool = False) -> bytes:
    """A number of the exception table."""
    parts = [value & 63]
    while value := value >> 6:
        parts.append(value & 63)
    parts.reverse()
    data = [part | 64 for part in parts[:-1]] + [parts[-1]]
    if first:
        data[0] |= 128
    return bytes(data)


def shifted_table(code: types.CodeType, units: int) -> bytes:
    """The exception table of code that is moved by `units`."""
    out = b""
    for begin, end, target, depth, lasti in exception_table(code):
        out += encode_number(begin // 2 + units, True) + encode_number((end - begin) // 2)
        out += encode_number(target // 2 + units) + encode_number(depth << 1 | lasti)
    return out


def keeps_closure(code: types.CodeType) -> bool:
    """Whether a zero-argument super() looks for a real free variable."""
    return "__class__" in code.co_freevars


def is_super_of_nothing(code: types.CodeType) -> bool:
    """Whether a zero-argument super() fails since the function has no positional arguments."""
    return keeps_closure(code) and not code.co_argcount


def resume_slots(code: types.CodeType) -> list[str]:
    """The parameters of a resume function: slots in order, cells among them."""
    names = slot_names(code)
    return names[: len(names) - len(code.co_freevars)] if keeps_closure(code) else names


def unpack_arguments(bound: frozenset[int], slots: int, items: int) -> bytes:
    """The instructions that unpack the arguments of a captured resume function into slots."""
    prefix = b"".join(encode("DELETE_FAST", i) for i in range(1, slots) if i not in bound)
    prefix += encode("LOAD_FAST", 0) + encode("UNPACK_SEQUENCE", items + 1)
    return prefix + encode("STORE_FAST", 0) + (b"" if 0 in bound else encode("DELETE_FAST", 0))


def unpack_list(bound: frozenset[int], items: int, everything: int) -> bytes:
    """The instructions that unpack and empty the list argument of a plain resume function, so that
    nobody else holds its items. `everything` is the number of the constant slice(None)."""
    prefix = encode("LOAD_FAST", 0) + encode("UNPACK_SEQUENCE", len(bound) + items)
    prefix += encode("LOAD_FAST", 0) + encode("LOAD_CONST", everything)
    prefix += encode("DELETE_SUBSCR") + encode("DELETE_FAST", 0)
    return prefix + b"".join(encode("STORE_FAST", i) for i in sorted(bound))


def make_resume(
    code: types.CodeType,
    offset: int,
    nulls: tuple[bool, ...],
    bound: frozenset[int],
    captured: bool,
) -> CodeType | None:
    """Make code that resumes at `offset`; `bound` are the slots that have a value.

    Captured, it takes one argument for each slot (cells as cells). The first is a tuple: the slot's
    own value and the items of the stack from the top, without those that `nulls` says are NULL.
    Else its argument is a list of the values in the bound slots and of those items. It empties the
    list, so that only the resumed frame refers to them, as in Python."""
    names = resume_slots(code) or ["_stack"]
    free = code.co_freevars if keeps_closure(code) else ()
    prefix = (encode("COPY_FREE_VARS", len(free)) if free else b"") + encode("RESUME", 0)
    count, constants = nulls.count(False), code.co_consts
    starred = not captured and is_super_of_nothing(code)
    if captured:
        prefix += unpack_arguments(bound, len(names), count)
    else:
        if starred:
            prefix += encode("LOAD_FAST", 0) + encode("UNPACK_SEQUENCE", 1)
            prefix += encode("STORE_FAST", 0)
        prefix += unpack_list(bound, count, len(constants))
        constants = (*constants, slice(None))
    for i, null in enumerate(nulls):
        if null:
            prefix += encode("PUSH_NULL")
            above = nulls[i + 1 :].count(False)
            prefix += b"".join(encode("SWAP", depth) for depth in range(above + 1, 1, -1))
    prefix += encode("JUMP_FORWARD", offset // 2)
    units = len(prefix) // 2
    lines = b"".join(bytes((0x80 | 15 << 3 | min(8, units - i) - 1,)) for i in range(0, units, 8))
    name = f"__resume_at_{offset}"
    resume = code.replace(
        co_code=prefix + code.co_code,
        co_varnames=tuple(names),
        co_cellvars=(),
        co_freevars=free,
        co_consts=constants,
        co_argcount=len(names) if captured else 1 - starred,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(names),
        co_flags=code.co_flags & ~(0x04 | 0x08 | GENERATORS) | 0x04 * starred,
        co_qualname=f"{code.co_qualname}.{name}",
        co_linetable=lines + code.co_linetable,
        co_stacksize=max(code.co_stacksize, len(nulls) + len(names) + 2) + 2,
        co_exceptiontable=shifted_table(code, units),
    )
    verify_resume(resume, code, offset)
    dying = weakref.ref(resume, partial(originals.pop, id(resume)))
    originals[id(resume)] = dying, code, units
    return resume


def original_of(code: types.CodeType) -> tuple[types.CodeType, int]:
    """(the user's code, how many units it lies after the start) for code that may belong
    to a resume function, which contains the user's code."""
    original = originals.get(id(code))
    return (code, 0) if original is None else original[1:]


def print_bytecode(fn: Any, run: Any) -> None:
    """Print the original and the modified bytecode."""
    for title, code in (("original", fn.__code__), ("modified", run.__code__)):
        print(f"[capture] {title} bytecode of {fn.__qualname__}")
        dis.dis(code)
