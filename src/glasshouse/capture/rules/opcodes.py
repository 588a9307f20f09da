"""Handlers of bytecode instructions, on a frame of Vars: one function per operation.

CPython 3.11 to 3.14 share most of them. `bytecode/versions.py` has the differences in their
encoding; `version_opcodes.py` handles operations that only some versions have."""

import builtins
import operator
import sys
import types
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from glasshouse.capture.bytecode.instructions import decoded
from glasshouse.capture.bytecode.tracebacks import error_part, set_error_part
from glasshouse.capture.bytecode.versions import bytecode
from glasshouse.capture.frames.frame import END, type_of
from glasshouse.capture.rules.attributes import attribute_now, module_attribute
from glasshouse.capture.rules.builtins.class_checks import on_isinstance
from glasshouse.capture.rules.builtins.container_methods import container_method
from glasshouse.capture.rules.class_attributes import make_super
from glasshouse.capture.rules.class_lookups import derives_from, has_own_text
from glasshouse.capture.rules.containers import is_merged_as_dict, unpack_pairs
from glasshouse.capture.rules.identity import identical
from glasshouse.capture.rules.imports import has_in_its_dict, import_name, loaded_module
from glasshouse.capture.rules.iteration import drained_by, let_go, step
from glasshouse.capture.rules.new_objects import new_dict, new_function, new_set
from glasshouse.capture.rules.numbers import COMPARE
from glasshouse.capture.rules.operators import BINARY, binary, exact_bool, length, unary
from glasshouse.capture.rules.polyfill_calls import is_iterable
from glasshouse.capture.rules.subscripts import get_item, parts_of, put_back, search, set_item
from glasshouse.capture.rules.variables import (
    cell_get,
    cell_set,
    load_global,
    read_cell,
    store_global,
)
from glasshouse.capture.rules.version_opcodes import VERSION_HANDLERS
from glasshouse.capture.values.plain import MISSING, type_name
from glasshouse.capture.values.var import NULL, Break, Recipe, UserError, Var, discarded, pending
from glasshouse.tensor.parts import links_at

if TYPE_CHECKING:
    from glasshouse.capture.bytecode.instructions import Instruction
    from glasshouse.capture.frames.frame import CaptureFrame
    from glasshouse.capture.trace.tracer import CaptureTracer


CONVERT = (None, str, repr, ascii)
ITSELF = object()  # for a pattern of the object instead of an attribute
IS_SEQUENCE, IS_MAPPING, MATCHES_ITSELF = 1 << 5, 1 << 6, 1 << 22  # flags of a type
FUNCTION_PARTS = {16: "annotate", 8: "closure", 4: "annotations", 2: "kwdefaults", 1: "defaults"}
SEES_NAMES = {"locals", "eval", "exec", "builtins"}  # of the frame that runs, or of all
# Functions that use these names, or make functions that do, are left to Python. They would see
# frames of the interpreter, change limits that it runs under, or see other lifetimes of objects.
SEES_FRAMES = set(
    "_getframe currentframe settrace setprofile f_back f_lineno f_locals gi_frame tb_frame".split()
)
SEES_LIMITS = {"getrecursionlimit", "setrecursionlimit"}
SEES_LIFETIMES = set("weakref getrefcount gc_collect __del__ getsizeof check_sizeof".split())
LEFT_TO_PYTHON = SEES_FRAMES | SEES_LIMITS | SEES_LIFETIMES
COLLECTS = "gc.collect"


def formatted(value: Any, conversion: Callable[..., Any] | None, spec: str) -> str:
    return format(conversion(value) if conversion else value, spec)


def draw_all(iterable: Any) -> Any:
    """The items as a tuple, without asking for a length."""
    return tuple(x for x in iterable)


def draw_for(iterable: Any, count: Any) -> Any:
    """The items that `a, b = iterable` draws for `count` names: at most one more than that."""
    items: list[Any] = []
    for x in iterable:
        if len(items) == count:
            raise ValueError(f"too many values to unpack (expected {count})")
        items.append(x)
    if len(items) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(items)})")
    return tuple(items)


def items_of_mapping(mapping: Any) -> Any:
    """The items that `**mapping` unpacks, as a dict."""
    keys = mapping.keys()
    return {key: mapping[key] for key in keys}


def delete_cell(cell: types.CellType, name: str, is_free: bool) -> None:
    """Delete the variable in a cell; an unset one raises."""
    read_cell(cell, name, is_free)
    del cell.cell_contents


def call_with(fn: Callable[..., Any], iterable: Any) -> Any:
    return fn(*iterable)


def is_error(value: Any) -> bool:
    return isinstance(value, BaseException) or (
        isinstance(value, type) and issubclass(value, BaseException)
    )


# -- nothing, stack ------------------------------------------------------------------------


def op_END_FOR(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    del f.stack[-bytecode.end_for_pops :]


def op_SWAP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    s = f.stack
    s[-1], s[-ins.arg] = s[-ins.arg], s[-1]


# -- names ---------------------------------------------------------------------------------


def op_LOAD_FAST(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    var: Any = f.locals[ins.arg]
    if var is None:
        unset_local(t, f, ins.arg)
    f.stack.append(var)


def unset_local(t: "CaptureTracer", f: "CaptureFrame", number: int) -> None:
    name = f.code.slots[number]
    text = f"cannot access local variable '{name}' where it is not associated with a value"
    t.fail(UnboundLocalError(text, name=name))


op_LOAD_CLOSURE: Callable[..., None]
op_LOAD_FAST_CHECK = op_LOAD_CLOSURE = op_LOAD_FAST


def op_LOAD_FAST_AND_CLEAR(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    var = f.locals[ins.arg]
    f.stack.append(NULL if var is None else var)
    f.locals[ins.arg] = None


def op_LOAD_FAST_LOAD_FAST(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    op_LOAD_FAST(t, f, ins._replace(arg=ins.arg >> 4))
    op_LOAD_FAST(t, f, ins._replace(arg=ins.arg & 15))


def op_STORE_FAST_LOAD_FAST(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    op_STORE_FAST(t, f, ins._replace(arg=ins.arg >> 4))
    op_LOAD_FAST(t, f, ins._replace(arg=ins.arg & 15))


def op_STORE_FAST_STORE_FAST(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    op_STORE_FAST(t, f, ins._replace(arg=ins.arg >> 4))
    op_STORE_FAST(t, f, ins._replace(arg=ins.arg & 15))


def op_STORE_FAST(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    var = f.stack.pop()
    f.locals[ins.arg] = None if var is NULL else var


def op_DELETE_FAST(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    if f.locals[ins.arg] is None:
        unset_local(t, f, ins.arg)
    f.locals[ins.arg] = None


def op_MAKE_CELL(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    f.locals[ins.arg] = t.heap.new_cell(f.locals[ins.arg])


def op_LOAD_GLOBAL(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    var = load_global(t, f, f.root.co_names[ins.arg >> 1])
    null = ins.arg & 1
    if null and not bytecode.null_above:
        f.stack.append(NULL)
    f.stack.append(var)
    if null and bytecode.null_above:
        f.stack.append(NULL)


def op_LOAD_ATTR(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    shift = bytecode.attribute_shift
    name = f.root.co_names[ins.arg >> shift]
    if shift and ins.arg & 1:
        return load_method(t, f, name)
    return t.get_attribute(f.stack.pop(), name)


def load_method(t: "CaptureTracer", f: "CaptureFrame", name: str) -> Any:
    """Push a bound method, with NULL in place of self."""
    obj = f.stack.pop()
    if not bytecode.null_above:
        f.stack.append(NULL)
        return t.get_attribute(obj, name)

    def then(tracer, var):
        f.stack.extend((var, NULL))

    return t.get_attribute(obj, name, then)


def op_LOAD_SUPER_ATTR(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    fn, cls, obj = f.pop_many(3)
    name = f.root.co_names[ins.arg >> 2]

    def then(tracer, sup):
        if not ins.arg & 1:
            return tracer.get_attribute(sup, name)
        f.stack.append(sup)
        return load_method(tracer, f, name)

    if fn.value is super:
        return then(t, make_super(t, cls, obj))
    return t.call(fn, [cls, obj] if ins.arg & 2 else [], {}, then)


def op_STORE_ATTR(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    obj, value = f.stack.pop(), f.stack.pop()
    t.set_attribute(obj, f.root.co_names[ins.arg], value)


def op_IMPORT_NAME(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    fromlist, level = f.stack.pop(), f.stack.pop()
    name = f.root.co_names[ins.arg]
    loaded = loaded_module(f.globals, name, bool(fromlist.value), level.value)
    if loaded is None:
        args = [Var(f.globals), Var(name), fromlist, level]
        raise Break(f"import of {name!r}", Var(import_name), args)
    module, place = sys.modules[loaded], None
    if t.guards.live and not f.trusted:
        table = t.guards.source("const", None, sys.modules, "sys.modules")
        place = t.guards.source("get", table, loaded)
        t.guards.add("is", place, module)
    f.stack.append(t.heap.load(module, place))


def op_IMPORT_FROM(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    name = f.root.co_names[ins.arg]
    module = f.stack[-1].value
    if not has_in_its_dict(module, name):
        raise Break(f"import of {name!r} from a {type(module).__name__}")
    module_attribute(t, f.stack[-1], name, None)


# -- making --------------------------------------------------------------------------------


def op_BUILD_MAP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    pairs = f.pop_many(2 * ins.arg)
    f.stack.append(new_dict(t, zip(pairs[::2], pairs[1::2], strict=True)))


def op_BUILD_CONST_KEY_MAP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    keys = [Var(k) for k in f.stack.pop().value]
    f.stack.append(new_dict(t, zip(keys, f.pop_many(ins.arg), strict=True)))


def op_BUILD_STRING(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    f.stack.append(Var("".join(t.concretize(x) for x in f.pop_many(ins.arg))))


def op_LIST_APPEND(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    x = f.stack.pop()
    container_method(t, f.stack[-ins.arg], "append", [x])


def op_LIST_EXTEND(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    x = f.stack.pop()
    must_iterate(t, x, "Value after * must be an iterable, not {}")
    return t.extend(f.stack[-ins.arg], "extend", x)


def op_SET_ADD(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    x = f.stack.pop()
    container_method(t, f.stack[-ins.arg], "add", [x])


def op_SET_UPDATE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    x = f.stack.pop()
    return t.extend(f.stack[-ins.arg], "update", x)


def op_MAP_ADD(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    value, key = f.stack.pop(), f.stack.pop()
    t.store_item(f.stack[-ins.arg], key, value)


def op_DICT_UPDATE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    x = f.stack.pop()
    if t.guards.live and not is_merged_as_dict(t, x):
        return unpack_mapping(t, f, x)
    target = f.stack[-ins.arg]
    for key, value in unpack_pairs(t, x):
        if ins.op == "DICT_MERGE" and key.value in target.value:
            t.fail(TypeError(f"got multiple values for keyword argument '{key.value}'"))
        t.store_item(target, key, value)
    return None


op_DICT_MERGE = op_DICT_UPDATE


def unpack_mapping(t: "CaptureTracer", f: "CaptureFrame", x: Var) -> Any:
    """Ask a mapping for its items in Python, then run the instruction on a dict of them."""
    if t.look_up(type_of(x.value), "keys") is MISSING:
        raise Break(f"a {type(x.value).__name__} is unpacked as a mapping", None)
    t.typed(x)

    def then(tracer, items):
        f.stack.append(items)
        f.ip = f.at

    return t.call(Var(items_of_mapping), [x], {}, then)


def op_UNPACK_SEQUENCE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    items = t.iterated(f.stack[-1])
    x = f.stack.pop()
    if items is None:
        return unpack_unknown(t, f, x, draw_for, Var(ins.arg))
    if len(items) < ins.arg:
        text = f"not enough values to unpack (expected {ins.arg}, got {len(items)})"
        t.fail(ValueError(text))
    if len(items) > ins.arg:
        counted = bytecode.counts_unpacked and type(x.value) in (list, tuple, dict)
        got = f", got {len(items)}" if counted else ""
        t.fail(ValueError(f"too many values to unpack (expected {ins.arg}{got})"))
    f.stack.extend(reversed(items))
    return None


def unpack_unknown(
    t: "CaptureTracer", f: "CaptureFrame", x: Var, draw: Callable[..., Any], *count: Any
) -> None:
    """Draw the items in Python, then run the instruction on a tuple of them. Its type is
    another one: else Python would come here again after a break."""
    must_iterate(t, x, "cannot unpack non-iterable {} object")
    t.typed(x)
    f.ip = f.at
    t.call(Var(draw), [x, *count], {})


def must_iterate(t: "CaptureTracer", x: Var, message: str) -> None:
    """Raise Python's error of the instruction if a value is no iterable."""
    kind = type_of(x.value)
    if not is_iterable(t, x):
        t.typed(x)
        t.fail(TypeError(message.format(type_name(kind))), kind)


def op_UNPACK_EX(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    before, after = ins.arg & 255, ins.arg >> 8
    items = t.iterated(f.stack[-1])
    if items is None:
        return unpack_unknown(t, f, f.stack.pop(), draw_all)
    f.stack.pop()
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}"
        t.fail(ValueError(f"{text}, got {len(items)})"))
    rest = t.heap.new_list(items[before : len(items) - after])
    f.stack.extend(reversed([*items[:before], rest, *items[len(items) - after :]]))
    return None


def op_MAKE_FUNCTION(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    code = f.stack.pop()
    parts = {name: f.stack.pop() for flag, name in FUNCTION_PARTS.items() if ins.arg & flag}
    f.stack.append(new_function(t, f, code.value, parts))


def op_SET_FUNCTION_ATTRIBUTE(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    fn, value = f.stack.pop(), f.stack.pop()
    parts = {**fn.origin.parts[2], FUNCTION_PARTS[ins.arg]: value}
    f.stack.append(new_function(t, f, fn.value.__code__, parts))


def op_FORMAT_VALUE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    spec = f.stack.pop() if ins.arg & 4 else Var("")
    return format_value(t, f.stack.pop(), CONVERT[ins.arg & 3], spec)


def op_FORMAT_WITH_SPEC(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    spec = f.stack.pop()
    return format_value(t, f.stack.pop(), None, spec)


def format_value(
    t: "CaptureTracer", x: Any, conversion: Callable[..., Any] | None, spec: Var
) -> Any:
    """Push the formatted text."""
    if t.foldable(x) and not has_own_text(t, x):
        value, text = t.concretize(x), t.concretize(spec)
        return t.push(Var(t.do(formatted, value, conversion, text)))
    if conversion is None and not t.is_tensor(x):
        if t.call_own(x, "__format__", [spec], None):
            return None
        if not spec.value and t.look_up(type(x.value), "__format__") is object.__format__:
            return t.call(Var(str), [x], {})
    if conversion in (str, repr) and not spec.value and not t.is_tensor(x):
        return t.call(Var(conversion), [x], {})
    raise Break("formatting of a value", Var(formatted), [x, Var(conversion), spec])


# -- operators -----------------------------------------------------------------------------


def op_BINARY_OP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    rhs, lhs = f.stack.pop(), f.stack.pop()
    if ins.arg == bytecode.subscript:
        return get_item(t, lhs, rhs)
    if parts_of(t) and t.is_tensor(lhs):  # the part may have a name: y = x[0]; y += 1
        put_back(t, lhs, links_at(f.root, ins.offset))
    return binary(t, BINARY[ins.arg], lhs, rhs)


def op_COMPARE_OP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    rhs, lhs = f.stack.pop(), f.stack.pop()
    to_bool = ins.arg & bytecode.truth_flag
    then = (lambda tracer, var: push_truth(tracer, var)) if to_bool else None
    return binary(t, COMPARE[ins.arg >> bytecode.compare_shift], lhs, rhs, then)


def op_IS_OP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    rhs, lhs = f.stack.pop(), f.stack.pop()
    f.stack.append(Var(identical(t, lhs, rhs) != bool(ins.arg)))


def op_CONTAINS_OP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    container, element = f.stack.pop(), f.stack.pop()
    return search(t, container, element, bool(ins.arg))


def decide(
    t: "CaptureTracer",
    x: Any,
    then: Callable[..., Any],
    fn: Callable[..., Any] = exact_bool,
    jump: tuple[Any, ...] | None = None,
) -> Any:
    """bool(x) to `then`. After a break the result of `fn` is pushed, or decides a jump."""
    try:
        return t.truth(x, then)
    except Break as graph_break:
        if graph_break.fn is None or graph_break.then is not then:
            raise
        flag = checked(t, x, jump or ways_after(t, fn is operator.not_))
        if flag is None:
            graph_break.fix_continuation()
            graph_break.fn, graph_break.jump = Var(fn), jump
            raise
    return then(t, flag)


def ways_after(t: "CaptureTracer", inverted: bool) -> tuple[Any, ...] | None:
    """The `jump` for a truth that is pushed, perhaps inverted, if the next instruction jumps by
    it; else None."""
    f = t.frames[-1]
    following = f.code.instructions[f.ip]
    if following.op not in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
        return None
    ways = (following.target, 0), (f.ip + 1, 0)
    return ways if (following.op == "POP_JUMP_IF_TRUE") is not inverted else ways[::-1]


def checked(t: "CaptureTracer", x: Var, ways: tuple[Any, ...] | None) -> bool | None:
    """bool() of a tensor or of a number in one, if the graph can check that it stays the same:
    one of the two ways only raises, or is taken only for values that are not finite. Else
    None."""
    if not t.is_tensor(x) and not t.front.is_hidden(x):
        return None
    frame = t.frames[-1]
    code, at = frame.code, frame.ip
    flag = None
    if ways is not None:
        flag = t.front.checked(t, x, lambda flag: code.only_raises(ways[not flag][0]))
    if flag is not None or t.guards.assumptions.are_doubted(code, at):
        return flag
    usual = t.front.truth_where_finite(t, x)
    if usual is not None:
        flag = t.front.checked(t, x, lambda _: True)
    if flag is not None:
        t.guards.assumptions.note(code, at, flag is usual)
    return flag


def push_truth(t: "CaptureTracer", x: Var, inverted: bool = False) -> Any:
    """Push bool(x), or not x."""

    def then(tracer, flag):
        tracer.push(Var(flag is not inverted))

    return decide(t, x, then, operator.not_ if inverted else exact_bool)


def op_BINARY_SUBSCR(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    key, obj = f.stack.pop(), f.stack.pop()
    return get_item(t, obj, key)


def op_BINARY_SLICE(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    key = t.heap.new_slice(f.pop_many(2))
    return get_item(t, f.stack.pop(), key)


def op_STORE_SUBSCR(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    key, obj, value = f.stack.pop(), f.stack.pop(), f.stack.pop()
    return store_item(t, f, ins, obj, key, value)


def op_STORE_SLICE(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    key = t.heap.new_slice(f.pop_many(2))
    obj, value = f.stack.pop(), f.stack.pop()
    return store_item(t, f, ins, obj, key, value)


def store_item(
    t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction", obj: Var, key: Var, value: Var
) -> Any:
    """obj[key] = value, where obj may be a part of a tensor that has no name."""
    result = set_item(t, obj, key, value)
    if t.is_tensor(obj) and parts_of(t):
        put_back(t, obj, links_at(f.root, ins.offset))
    return result


def op_DELETE_SUBSCR(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    key, obj = f.stack.pop(), f.stack.pop()
    return set_item(t, obj, key, None)


# -- jumps ---------------------------------------------------------------------------------


def op_JUMP(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    f.ip = ins.target


def jump_if(
    t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction", expected: bool, keep: bool = False
) -> Any:
    """Jump if the top of the stack is as wanted, and pop it; with `keep` only if it is not."""

    def then(tracer, flag):
        if flag is expected:
            f.ip = ins.target
        elif keep:
            f.stack.pop()

    ways = ((ins.target, 0), (f.ip, int(keep)))
    x = f.stack[-1] if keep else f.stack.pop()
    return decide(t, x, then, jump=ways if expected else ways[::-1])


def op_POP_JUMP_IF_NONE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    if identical(t, f.stack.pop(), Var(None)):
        f.ip = ins.target


def op_POP_JUMP_IF_NOT_NONE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    if not identical(t, f.stack.pop(), Var(None)):
        f.ip = ins.target


def op_FOR_ITER(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    def then(tracer, x, result=None):
        if x is END:
            f.ip = ins.target
            drained_by(tracer, f, result)
        if x is END and bytecode.pops_ended_iterator:
            f.stack.pop()
        else:
            f.stack.append(x)

    try:
        return step(t, f.stack[-1], then)
    except Break as graph_break:
        if graph_break.fn is not None and graph_break.then is then:
            graph_break.loop = ins.target
            graph_break.fix_continuation()
        raise


# -- calls ---------------------------------------------------------------------------------


def op_KW_NAMES(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    f.kw_names = f.root.co_consts[ins.arg]


def op_CALL(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    names, f.kw_names = f.kw_names, ()
    return call_stack(t, f, ins.arg, names)


def op_CALL_KW(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    names = f.stack.pop().value
    return call_stack(t, f, ins.arg, names)


def call_stack(t: "CaptureTracer", f: "CaptureFrame", count: int, names: tuple[str, ...]) -> Any:
    args = f.pop_many(count)
    second, first = f.stack.pop(), f.stack.pop()
    if bytecode.null_above:
        fn, this = first, second
    elif first is NULL:
        fn, this = second, NULL
    else:
        fn, this = first, second
    if this is not NULL:
        args.insert(0, this)
    kwargs = {}
    if names:
        kwargs = dict(zip(names, args[len(args) - len(names) :], strict=True))
        del args[len(args) - len(names) :]
    return t.call(fn, args, kwargs)


def op_CALL_FUNCTION_EX(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    words = f.stack.pop() if bytecode.keywords_or_null or ins.arg & 1 else None
    has_words, kwargs = words is not None and words is not NULL, {}
    if has_words:
        kwargs = {t.concretize(k): v for k, v in t.entries(words)}
    if not all(isinstance(k, str) for k in kwargs):
        t.fail(TypeError("keywords must be strings"))
    args = t.iterated(f.stack[-1])
    if args is None:
        iterable = f.stack[-1]
        if not any(t.has(iterable, n) for n in ("__iter__", "__getitem__")):
            f.stack.pop()
            fn = f.stack.pop(-2 if bytecode.null_above else -1)
            t.do(call_with, t.concretize(fn), iterable.value)
        keep = [] if words is None else [words]
        if has_words:
            keep = [new_dict(t, [(Var(k), v) for k, v in kwargs.items()])]

        def then(tracer, var):
            f.stack[-1:] = [var, *keep]
            f.ip = f.at

        return t.call(Var(tuple), [iterable], {}, then)
    f.stack.pop()
    fn = f.stack.pop()
    if bytecode.null_above:
        fn = f.stack.pop()
    elif f.stack and f.stack[-1] is NULL:
        f.stack.pop()
    return t.call(fn, list(args), kwargs)


def op_CALL_INTRINSIC_1(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    x = f.stack.pop()
    if ins.arg == 5:
        return unary(t, operator.pos, x)
    if ins.arg == 6:
        return t.push(t.heap.new_tuple(t.sequence(x)))
    if ins.arg == 3:  # StopIteration inside a generator
        return t.push(x)
    raise Break("an operation that is not captured")


def op_SEND(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    sent, receiver = f.stack.pop(), f.stack[-1]

    def then(tracer, x, result=None):
        if x is not END:
            f.stack.append(x)
            return
        result = Var(None) if result is None else result
        if bytecode.pops_ended_iterator:
            f.stack.pop()
        f.stack.append(result)
        f.ip = ins.target

    return step(t, receiver, then, sent)


def op_END_SEND(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    del f.stack[-2]


def op_CLEANUP_THROW(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    error = f.stack[-1]
    if not isinstance(t.typed(error), StopIteration):
        raise UserError(error.value)
    del f.stack[-3:]
    f.stack.extend((Var(None), Var(error.value.value)))


# -- with and exceptions -------------------------------------------------------------------


def op_BEFORE_WITH(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    manager = f.stack.pop()
    for name, missed in (("__enter__", ""), ("__exit__", " (missed __exit__ method)")):
        if not t.has(manager, name):
            kind = type_name(type(manager.value))
            text = f"'{kind}' object does not support the context manager protocol{missed}"
            t.fail(TypeError(text), manager.value)

    def entered(tracer, enter):
        try:
            return tracer.call(enter, [], {})
        except Break as graph_break:
            if graph_break.then is None:
                # The result goes onto the stack, like that of a call.
                graph_break.fix_continuation()
            raise

    def then(tracer, leave):
        f.stack.append(leave)
        return tracer.get_attribute(manager, "__enter__", entered, special=True)

    return t.get_attribute(manager, "__exit__", then, special=True)


def op_WITH_EXCEPT_START(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    error = f.stack[-1]
    args = [
        Var(type(t.typed(error))),
        error,
        Var(error_part(error.value, "__traceback__"), Recipe("traceback", error)),
    ]
    return t.call(f.stack[bytecode.exit_place], args, {})


def handled_before(t: "CaptureTracer") -> Var:
    """The exception that is being handled, or None. Generators and functions that they call
    handle exceptions apart from their callers."""
    for f in reversed(t.frames):
        if f.handled or f.generator is not None:
            return f.handled[-1] if f.handled else Var(None)
    if t.frames.outside is not None:
        return handled_outside(t)
    return Var(None)


def handled_outside(t: "CaptureTracer") -> Var:
    """The exception that is being handled at the call."""
    source = t.guards.source("handled", None, None, "sys.exc_info()[1]")
    return t.heap.load(t.frames.outside, source)


def op_PUSH_EXC_INFO(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    error = f.stack.pop()
    f.stack.append(handled_before(t))
    f.stack.append(error)
    f.handled.append(error)


def op_POP_EXCEPT(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    before = f.stack.pop()
    if f.handled:
        f.handled.pop()
    if not f.handled and before.value is not None:  # handled already before a resume function
        f.handled.append(before)


def op_CHECK_EXC_MATCH(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    kinds = t.concretize(f.stack.pop())  # no metaclass is asked
    classes = kinds if isinstance(kinds, tuple) else (kinds,)
    if not all(isinstance(x, type) and is_error(x) for x in classes):
        text = "catching classes that do not inherit from BaseException is not allowed"
        t.fail(TypeError(text))
    f.stack.append(Var(derives_from(t, f.stack[-1], classes)))


def op_RAISE_VARARGS(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> Any:
    cause = f.stack.pop() if ins.arg == 2 else None
    if not ins.arg:
        if not f.handled and t.guards.live:
            raise Break("a bare raise")
        if not f.handled:
            error = t.frames.handled_now()
            t.fail(error or RuntimeError("No active exception to reraise"))
        t.frames.raised = f.handled[-1]
        raise UserError(t.frames.raised.value)
    error = f.stack.pop()
    if isinstance(t.typed(error), type):

        def then(tracer, instance):
            return throw(tracer, instance, cause)

        return t.call(error, [], {}, then)
    return throw(t, error, cause)


def throw(t: "CaptureTracer", error: Var, cause: Var | None) -> Any:
    """Raise a Var."""
    if not isinstance(error.value, BaseException):
        t.fail(TypeError("exceptions must derive from BaseException"))
    if cause is not None and not is_error(cause.value) and cause.value is not None:
        t.fail(TypeError("exception causes must derive from BaseException"))
    if cause is not None and isinstance(cause.value, type):
        return t.call(cause, [], {}, lambda t, new: throw_from(t, error, cause, new))
    if cause is not None:
        set_error_part(error.value, "__cause__", cause.value)
    t.frames.raised = error
    raise t.raising(error.value)


def throw_from(t: "CaptureTracer", error: Any, cls: Any, cause: Any) -> Any:
    """Raise a Var whose cause is made by a call of its class."""
    if not isinstance(cause.value, BaseException):
        got = type(cause.value)
        text = "should have returned an instance of BaseException"
        t.fail(TypeError(f"calling {cls.value!r} {text}, not {got!r}"), cls.value)
    return throw(t, error, cause)


def op_RERAISE(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> NoReturn:
    error = f.stack.pop()
    t.frames.raised = error
    raise UserError(error.value)


# -- match ---------------------------------------------------------------------------------


def match_kind(t: "CaptureTracer", f: Any, flag: Any) -> None:
    f.stack.append(Var(bool(type(t.typed(f.stack[-1])).__flags__ & flag)))


def op_MATCH_KEYS(t: "CaptureTracer", f: Any, ins: "Instruction") -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    entries = {t.concretize(k): v for k, v in t.entries(subject)}
    names = t.concretize(keys)
    twice = next((k for i, k in enumerate(names) if k in names[:i]), None)
    if twice is not None:
        t.fail(ValueError(f"mapping pattern checks duplicate key ({twice!r})"))
    whole = all(k in entries for k in names)
    f.stack.append(t.heap.new_tuple([entries[k] for k in names]) if whole else Var(None))


def op_DELETE_DEREF(t: "CaptureTracer", f: "CaptureFrame", ins: "Instruction") -> None:
    delete_variable(t, f.locals[ins.arg], f.code.slots[ins.arg])


@pending
def delete_variable(
    t: "CaptureTracer", cell: Var, name: str, then: Callable[..., Any] = discarded
) -> None:
    """Delete a variable in a cell; an unset one raises as for a read."""
    try:
        cell_get(t, cell, name)
    except Break as unset:
        raise Break("an unset cell is deleted", Var(delete_cell), unset.args_) from None
    cell_set(t, cell, None)


def op_MATCH_CLASS(t: "CaptureTracer", f: Any, ins: "Instruction") -> Any:
    names, cls, subject = f.stack.pop(), f.stack.pop(), f.stack.pop()
    if not issubclass(type(t.typed(cls)), type):
        t.fail(TypeError(f"called match pattern must be a {bytecode.class_pattern}"))

    def decided(tracer, answer):
        if not answer.value:
            return tracer.push(Var(None))
        return match_parts(tracer, subject, tracer.concretize(cls), ins.arg, names)

    return on_isinstance(t, Var(isinstance), [subject, cls], {}, decided)


def match_parts(t: "CaptureTracer", subject: Any, kind: Any, count: Any, names: Any) -> Any:
    """Push the attributes for the patterns of a class; None if one is missing."""
    attribute_names: tuple[Any, ...] = (*match_args(t, kind, count), *names.value)
    attributes = []
    name: Any
    for at, name in enumerate(attribute_names):
        if name is not ITSELF and type(name) is not str:
            got = type(name).__name__
            t.fail(TypeError(f"__match_args__ elements must be strings (got {got})"))
        if name in attribute_names[:at]:
            text = f"{kind.__name__}() got multiple sub-patterns for attribute {name!r}"
            t.fail(TypeError(text))
        var = attribute_now(t, subject, name) if type(name) is str else subject
        if var is None:
            return t.push(Var(None))
        attributes.append(var)
    return t.push(t.heap.new_tuple(attributes))


def match_args(t: "CaptureTracer", kind: Any, count: Any) -> Any:
    """The attributes for the first `count` patterns of a class; ITSELF is the object."""
    if not count:
        return ()
    default = (ITSELF,) if kind.__flags__ & MATCHES_ITSELF else ()
    t.look_up(kind, "__match_args__")  # which relies on it
    names = getattr(kind, "__match_args__", default)
    if type(names) is not tuple:
        got = type(names).__name__
        t.fail(TypeError(f"{kind.__name__}.__match_args__ must be a tuple (got {got})"))
    if len(names) < count:
        patterns = "sub-pattern" if len(names) == 1 else "sub-patterns"
        text = f"{kind.__name__}() accepts {len(names)} positional {patterns} ({count} given)"
        t.fail(TypeError(text))
    return names[:count]


HANDLERS = {name[3:]: rule for name, rule in list(globals().items()) if name.startswith("op_")}
HANDLERS |= dict.fromkeys(("NOP", "RESUME", "PRECALL", "COPY_FREE_VARS"), lambda t, f, ins: None)
HANDLERS |= {
    "RETURN_GENERATOR": lambda t, f, ins: f.stack.append(Var(None)),
    "POP_TOP": lambda t, f, ins: let_go(t, f, len(f.stack) - 1),
    "PUSH_NULL": lambda t, f, ins: f.stack.append(NULL),
    "COPY": lambda t, f, ins: f.stack.append(f.stack[-ins.arg]),
    "LOAD_CONST": lambda t, f, ins: f.stack.append(Var(f.root.co_consts[ins.arg])),
    "LOAD_DEREF": lambda t, f, ins: t.push(cell_get(t, f.locals[ins.arg], f.code.slots[ins.arg])),
    "STORE_DEREF": lambda t, f, ins: cell_set(t, f.locals[ins.arg], f.stack.pop()),
    "LOAD_NAME": lambda t, f, ins: f.stack.append(load_global(t, f, f.root.co_names[ins.arg])),
    "STORE_GLOBAL": lambda t, f, ins: store_global(t, f, f.root.co_names[ins.arg], f.stack.pop()),
    "DELETE_GLOBAL": lambda t, f, ins: store_global(t, f, f.root.co_names[ins.arg], None),
    "LOAD_METHOD": lambda t, f, ins: load_method(t, f, f.root.co_names[ins.arg]),
    "DELETE_ATTR": lambda t, f, ins: t.set_attribute(f.stack.pop(), f.root.co_names[ins.arg], None),
    "BUILD_TUPLE": lambda t, f, ins: f.stack.append(t.heap.new_tuple(f.pop_many(ins.arg))),
    "BUILD_LIST": lambda t, f, ins: f.stack.append(t.heap.new_list(f.pop_many(ins.arg))),
    "BUILD_SET": lambda t, f, ins: f.stack.append(new_set(t, f.pop_many(ins.arg))),
    "BUILD_SLICE": lambda t, f, ins: f.stack.append(t.heap.new_slice(f.pop_many(ins.arg))),
    "LIST_TO_TUPLE": lambda t, f, ins: f.stack.append(t.heap.new_tuple(t.sequence(f.stack.pop()))),
    "LOAD_BUILD_CLASS": lambda t, f, ins: f.stack.append(Var(builtins.__build_class__)),
    "LOAD_ASSERTION_ERROR": lambda t, f, ins: f.stack.append(Var(AssertionError)),
    "FORMAT_SIMPLE": lambda t, f, ins: format_value(t, f.stack.pop(), None, Var("")),
    "CONVERT_VALUE": lambda t, f, ins: t.call(Var(CONVERT[ins.arg]), [f.stack.pop()], {}),
    "UNARY_NEGATIVE": lambda t, f, ins: unary(t, operator.neg, f.stack.pop()),
    "UNARY_POSITIVE": lambda t, f, ins: unary(t, operator.pos, f.stack.pop()),
    "UNARY_INVERT": lambda t, f, ins: unary(t, operator.invert, f.stack.pop()),
    "UNARY_NOT": lambda t, f, ins: push_truth(t, f.stack.pop(), True),
    "TO_BOOL": lambda t, f, ins: push_truth(t, f.stack.pop()),
    "POP_JUMP_IF_TRUE": lambda t, f, ins: jump_if(t, f, ins, True),
    "POP_JUMP_IF_FALSE": lambda t, f, ins: jump_if(t, f, ins, False),
    "JUMP_IF_TRUE_OR_POP": lambda t, f, ins: jump_if(t, f, ins, True, keep=True),
    "JUMP_IF_FALSE_OR_POP": lambda t, f, ins: jump_if(t, f, ins, False, keep=True),
    "GET_ITER": lambda t, f, ins: t.get_iter(f.stack.pop()),
    "GET_LEN": lambda t, f, ins: length(t, f.stack[-1], None),
    "RETURN_VALUE": lambda t, f, ins: t.leave(f.stack.pop()),
    "RETURN_CONST": lambda t, f, ins: t.leave(Var(f.root.co_consts[ins.arg])),
    "YIELD_VALUE": lambda t, f, ins: t.yield_value(f, f.stack.pop()),
    "MATCH_MAPPING": lambda t, f, ins: match_kind(t, f, IS_MAPPING),
    "MATCH_SEQUENCE": lambda t, f, ins: match_kind(t, f, IS_SEQUENCE),
}
HANDLERS["LOAD_CLASSDEREF"] = HANDLERS["LOAD_DEREF"]
HANDLERS["GET_YIELD_FROM_ITER"] = HANDLERS["GET_ITER"]
HANDLERS |= VERSION_HANDLERS


def is_handled(ins: "Instruction") -> bool:
    if ins.op == "CALL_INTRINSIC_1":
        return ins.arg in (3, 5, 6)
    return ins.op in HANDLERS


def sees_locals(code: types.CodeType) -> str:
    """`dir` or `vars` if code calls it without arguments, for the names of its frame; else ""."""
    for ins, after in pairwise(decoded(code).instructions):
        called = after.op in ("PRECALL", "CALL") and not after.arg
        if called and ins.op == "LOAD_GLOBAL" and code.co_names[ins.arg >> 1] in ("dir", "vars"):
            return code.co_names[ins.arg >> 1]
    return ""


def unknown_operation(code: types.CodeType) -> str:
    """An operation without a handler, or a name that has code left to Python; "" if none."""
    code_decoded = decoded(code)
    if code_decoded.unknown is None:
        operations = (x.op for x in code_decoded.instructions if not is_handled(x))
        names = (name for name in code.co_names if name in SEES_NAMES)
        inner = next(operations, "") or next(names, "") or name_left_to_python(code)
        code_decoded.unknown = inner or sees_locals(code)
        if {"gc", "collect"} <= set(code.co_names):
            code_decoded.unknown = code_decoded.unknown or COLLECTS
    return code_decoded.unknown


def name_left_to_python(code: types.CodeType) -> str:
    """A name in a function, or in a nested one, that leaves it to Python; else ""."""
    here = next((name for name in code.co_names if name in LEFT_TO_PYTHON), "")
    inner = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return here or next(filter(None, map(name_left_to_python, inner)), "")
