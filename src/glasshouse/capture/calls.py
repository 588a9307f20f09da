"""How calls are understood: inlined, folded, put into the graph, or left to Python by a break."""

import builtins
import functools
import itertools
import math
import operator
import types
from collections import OrderedDict, defaultdict, deque

from glasshouse.capture.bytecode import GENERATORS
from glasshouse.capture.frame import END, Enumerate, Frame, Generator, Iterator, Over, Reversed, Zip
from glasshouse.capture.objects import pending
from glasshouse.capture.opcodes import (
    contains,
    delete,
    exact_bool,
    not_contains,
    store,
    unknown_operation,
)
from glasshouse.capture.polyfills import (
    POLYFILLS,
    add_all,
    call_named,
    call_until,
    contains_in,
    enumerate_of,
    extend_of,
    get_attributes,
    get_items,
    iterate,
    join_of,
    list_of,
    reversed_of,
    update_of,
    zip_of,
)
from glasshouse.capture.values import (
    FUNCTIONS,
    MISSING,
    SCALARS,
    Break,
    Made,
    Number,
    Source,
    UserError,
    Var,
    constant,
    static_lookup,
)
from glasshouse.graph.ir import Node

# Functions of constants alone, whose result is the same each time.
PURE = {
    abs, ascii, bin, bool, bytes, callable, chr, complex, divmod, float, format, hash, hex, int,
    len,
    oct, ord, pow, range, repr, round, str, frozenset, slice, issubclass, tuple, list, set, dict,
    min, max,
    sum, sorted, any, all, *(f for f in vars(math).values() if callable(f)),
    *(f for n, f in vars(operator).items() if callable(f) and not isinstance(f, type)),
}  # fmt: skip
ARITHMETIC = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.neg, operator.pos, operator.iadd, operator.isub, operator.imul,
    operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, float, int, abs, round,
    math.sqrt, math.exp, math.log, math.cos, math.sin, math.pow, math.floor, math.ceil, math.tanh,
}  # fmt: skip
SURE = {operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.iadd,
        operator.isub, operator.imul, abs, float}  # fmt: skip
STATELESS = (str, int, float, bool, complex, bytes, tuple, range, frozenset, type(None), slice)
REVERSED = {
    operator.add: "__radd__", operator.sub: "__rsub__", operator.mul: "__rmul__",
    operator.mod: "__rmod__",
    operator.truediv: "__rtruediv__", operator.floordiv: "__rfloordiv__", operator.pow: "__rpow__",
    operator.matmul: "__rmatmul__", operator.and_: "__rand__", operator.or_: "__ror__",
    operator.xor: "__rxor__", operator.lshift: "__rlshift__", operator.rshift: "__rrshift__",
    operator.lt: "__gt__", operator.gt: "__lt__", operator.le: "__ge__", operator.ge: "__le__",
    operator.eq: "__eq__", operator.ne: "__ne__",
}  # fmt: skip
IN_PLACE = {getattr(operator, f"i{name}"): getattr(operator, plain) for name, plain in (
    ("add", "add"), ("and", "and_"), ("floordiv", "floordiv"), ("lshift", "lshift"), ("matmul",
    "matmul"),
    ("mul", "mul"), ("mod", "mod"), ("or", "or_"), ("pow", "pow"), ("rshift", "rshift"), ("sub",
    "sub"),
    ("truediv", "truediv"), ("xor", "xor"))}  # fmt: skip
SKIPPED = {
    "logging", "warnings", "importlib", "threading", "inspect", "traceback", "re", "unittest",
    "pdb", "bdb",
    "numpy", "random", "copy", "pickle", "os", "subprocess", "socket", "tempfile", "time",
    "asyncio",
    "_pytest", "pytest", "hypothesis", "ast", "dis", "tokenize", "weakref", "selectors",
    "concurrent",
    "multiprocessing", "collections", "typing", "abc", "types", "string",
    "statistics", "fractions", "decimal", "datetime", "textwrap", "shutil", "struct", "heapq",
    "bisect", "json", "pathlib", "io", "queue", "gc", "sysconfig", "ctypes",
}  # fmt: skip
LIMIT_DEPTH = 120
MAX_REPEAT = 100_000


def method_name(fn) -> str:
    return f"__{fn.__name__.strip('_')}__"


class Calls:
    """The part of the tracer that calls."""

    @pending
    def call(self, fn: Var, args: list[Var], kwargs: dict[str, Var], then=None):
        """Call; the result goes to `then`, or onto the stack of the frame that runs now."""
        f = fn.value
        if not self.live:
            return self.deliver(then, self.real_call(fn, args, kwargs))
        frame = self.frames[-1]
        if frame.at in frame.code.opaque:
            raise Break("a call that could not be captured before", fn, args, kwargs)
        if self.front.call(self, fn, args, kwargs, then):
            return None
        named = isinstance(fn.origin, Made) and fn.origin.kind == "method"
        if isinstance(f, types.MethodType) and not (named and isinstance(fn.origin.parts[1], str)):
            return self.call_method_object(fn, args, kwargs, then)
        if isinstance(f, types.FunctionType):
            return self.call_function(fn, args, kwargs, then)
        if isinstance(f, type):
            return self.call_class(fn, args, kwargs, then)
        if named:
            return self.call_builtin_method(fn, args, kwargs, then)
        if isinstance(f, functools.partial):
            inner, more = self.partial_parts(fn)
            return self.call(inner[0], [*inner[1:], *args], {**more, **kwargs}, then)
        if isinstance(f, BUILTIN_KINDS):
            return self.call_builtin(fn, args, kwargs, then)
        if isinstance(f, self.dispatcher_type):
            return self.call(Var(f.fn), args, kwargs, then)
        if isinstance(f, CACHED):
            if all(self.foldable(x) for x in (*args, *kwargs.values())):
                self.known(fn)
                return self.fold(fn, f, args, kwargs, then)
            return self.call(Var(f.__wrapped__), args, kwargs, then)
        if isinstance(f, GETTERS) and len(args) == 1 and not kwargs:
            return self.call_getter(fn, args[0], then)
        method = static_lookup(type(f), "__call__")[0]
        if isinstance(method, types.FunctionType):
            self.typed(fn)
            self.rely_on_class(fn, type(f), "__call__", method)
            return self.call(Var(method), [fn, *args], kwargs, then)
        raise Break(f"call of a {type(f).__name__}", fn, args, kwargs)

    def fold(self, fn: Var, f, args, kwargs, then):
        """The result of a function of constants, which is one itself."""
        values = [self.known(x) for x in args]
        words = {k: self.known(v) for k, v in kwargs.items()}
        result = self.do(f, *values, **words)
        if not self.is_plain(result):
            raise Break(
                f"{getattr(f, '__name__', f)} gives a {type(result).__name__}", fn, args, kwargs
            )
        return self.deliver(then, constant(result))

    def is_plain(self, value) -> bool:
        """Whether a value may be kept from one call to the next."""
        if isinstance(value, (list, tuple, set, frozenset)):
            return all(map(self.is_plain, value))
        if type(value) in (dict, OrderedDict):
            return all(self.is_plain(x) for pair in value.items() for x in pair)
        plain = (*SCALARS, *FUNCTIONS, range, slice, types.MethodType, *GETTERS)
        return isinstance(value, plain) or self.front.is_constant(value)

    def real_call(self, fn: Var, args, kwargs) -> Var:
        """The result of Python's call."""
        values = {k: v.value for k, v in kwargs.items()}
        return Var(self.do(fn.value, *(x.value for x in args), **values))

    def call_method_object(self, fn: Var, args, kwargs, then):
        """A bound method."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "method":
            this, inner = fn.origin.parts
            return self.call(inner, [this, *args], kwargs, then)
        if fn.origin is None:
            return self.call(Var(fn.value.__func__), [Var(fn.value.__self__), *args], kwargs, then)
        self.typed(fn)
        this = self.load(fn.value.__self__, self.sub(fn, "attr", "__self__", ".__self__"))
        inner = self.load(fn.value.__func__, self.sub(fn, "attr", "__func__", ".__func__"))
        return self.call(inner, [this, *args], kwargs, then)

    def call_getter(self, fn: Var, obj: Var, then):
        """operator.itemgetter, attrgetter, methodcaller."""
        if fn.origin is not None and not fn.is_new:
            self.guards.add("is", fn.origin, fn.value)
        made, parts = fn.value.__reduce__()[:2]
        names = self.new_tuple([constant(x) for x in parts])
        if isinstance(fn.value, operator.itemgetter):
            return self.call_function(Var(get_items), [obj, names], {}, then)
        if isinstance(fn.value, operator.attrgetter):
            return self.call_function(Var(get_attributes), [obj, names], {}, then)
        words = constant(dict(made.keywords) if isinstance(made, functools.partial) else {})
        if isinstance(made, functools.partial):
            parts = (*made.args, *parts)
        rest = self.new_tuple([constant(x) for x in parts[1:]])
        return self.call_function(Var(call_named), [obj, Var(parts[0]), rest, words], {}, then)

    def partial_parts(self, fn: Var):
        """(function and arguments, keywords) of a functools.partial."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "call":
            _, args, kwargs = (*fn.origin.parts, {})[:3]
            return list(args), dict(kwargs)
        p = fn.value
        self.typed(fn)
        parts = []
        for name in ("func", "args", "keywords"):
            parts.append(self.load(getattr(p, name), self.sub(fn, "attr", name, f".{name}")))
        keywords = {k.value: v for k, v in self.entries(parts[2])}
        return [parts[0], *self.sequence(parts[1])], keywords

    # -- Python functions ----------------------------------------------------------------------

    def call_function(self, fn: Var, args, kwargs, then):
        """Inline a Python function, or break."""
        f = fn.value
        replaced = POLYFILLS.get(f)
        if replaced is not None:
            return self.call_function(Var(replaced), args, kwargs, then)
        if f in self.config.constant_results:
            values = {k: self.known(v) for k, v in kwargs.items()}
            return self.deliver(
                then, constant(self.do(f, *(self.known(x) for x in args), **values))
            )
        reason = self.why_opaque(f)
        if reason is None and len(self.frames) > LIMIT_DEPTH:
            reason = "deep recursion"
        if reason:
            self.known(fn)
            raise Break(reason, fn, args, kwargs)
        self.known(fn)
        return self.inline(fn, args, kwargs, then)

    def why_opaque(self, f) -> str | None:
        """Why a function is not captured; None if it is."""
        code = f.__code__
        if (
            id(code) in self.config.disabled
            or id(f) in self.config.disallowed
            or getattr(f, "__gh_disabled__", False)
        ):
            return f"{f.__qualname__} is not to be captured"
        if code.co_flags & (0x80 | 0x200):
            return f"{f.__qualname__} is a coroutine"
        module = str(f.__globals__.get("__name__", ""))  # wraps() copies the name of another
        if module.partition(".")[0] in SKIPPED:
            return f"{module}.{f.__qualname__} is not captured"
        if module.startswith(self.front.left_to_python):
            return f"{f.__qualname__} runs as it is"
        missing = unknown_operation(code)
        return f"{f.__qualname__} has {missing}" if missing else None

    def inline(self, fn: Var, args, kwargs, then, init=None):
        """Interpret a call in a frame of its own."""
        f = fn.value
        code = f.__code__
        frame = Frame(code, f.__globals__, len(slot_list(code)))
        self.bind_arguments(fn, frame, args, kwargs)
        closure = self.closure_of(fn)
        count = len(frame.locals) - len(code.co_freevars)
        frame.locals[count:] = closure
        if code.co_flags & GENERATORS:
            frame.ip = (
                next(i for i, x in enumerate(frame.code.instructions) if x.op == "RETURN_GENERATOR")
                + 1
            )
            for ins in frame.code.instructions[: frame.ip]:
                if ins.op == "MAKE_CELL":
                    self.op_MAKE_CELL(frame, ins)
            site = self.site()
            make = functools.partial(called_natively, NATIVES.get(f, f), args, kwargs)
            made = Generator(frame, site, type(self).untraced, make)
            frame.generator = made
            return self.deliver(then, self.track(Var(made, Made("generator", site))))
        frame.then, frame.init = then, init
        self.frames.append(frame)
        return None

    def closure_of(self, fn: Var) -> list[Var]:
        """The cells of a function."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "function":
            closure = fn.origin.parts[2].get("closure")
            return [] if closure is None else list(closure.items)
        cells = fn.value.__closure__ or ()
        if not isinstance(fn.origin, Source):
            return [self.load(c, self.guards.source("const", None, c,
            f"cell{i}") if self.live else None)
                    for i, c in enumerate(cells)]  # fmt: skip
        closure = self.sub(fn, "attr", "__closure__", ".__closure__")
        return [
            self.load(
                cell,
                self.guards.source("item", closure, i, f"{closure.text}[{i}]") if closure else None,
            )
            for i, cell in enumerate(cells)
        ]

    def default_of(self, fn: Var, kind: str, key) -> Var:
        """A default argument."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "function":
            parts = fn.origin.parts[2][kind.strip("_")]
            return parts.items[key] if isinstance(key, int) and parts.items else (
                parts.items[key][1] if parts.items else constant(parts.value[key]))  # fmt: skip
        value = getattr(fn.value, kind)[key]
        base = self.sub(fn, "attr", kind, f".{kind}")
        if base is None or fn.value.__module__.startswith("glasshouse."):
            return constant(value) if type(value) in SCALARS or isinstance(value,
            FUNCTIONS) else self.load(
                value, self.guards.source("const", None, value, "default"))  # fmt: skip
        step = "item" if isinstance(key, int) else "get"
        return self.load(value, self.guards.source(step, base, key, f"{base.text}[{key!r}]"))

    def bind_arguments(self, fn: Var, frame: Frame, args, kwargs) -> None:
        """Put arguments into a frame's slots as Python does."""
        f = fn.value
        code = f.__code__
        count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        slots, names = frame.locals, code.co_varnames
        has_star, has_stars = bool(code.co_flags & 4), bool(code.co_flags & 8)
        ok = len(args) <= count or has_star
        slots[: min(count, len(args))] = args[:count]
        if has_star:
            slots[named] = self.new_tuple(args[count:])
        extra = {}
        for name, var in kwargs.items():
            if name in names[code.co_posonlyargcount : named]:
                at = names.index(name)
                ok = ok and slots[at] is None
                slots[at] = var
            else:
                ok = ok and has_stars
                extra[name] = var
        if has_stars:
            slots[named + has_star] = self.new_dict((Var(k), v) for k, v in extra.items())
        first = count - len(f.__defaults__ or ())
        for i in range(named):
            if slots[i] is None:
                if first <= i < count:
                    slots[i] = self.default_of(fn, "__defaults__", i - first)
                elif i >= count and names[i] in (f.__kwdefaults__ or {}):
                    slots[i] = self.default_of(fn, "__kwdefaults__", names[i])
                else:
                    ok = False
        if not ok:
            stub = self.argument_error(f, args, kwargs)
            self.fail(stub)

    def argument_error(self, f, args, kwargs) -> TypeError:
        """What Python says of arguments that do not fit; its body does not run."""
        probe = types.FunctionType(EMPTY.__code__, {})
        code = f.__code__
        probe.__code__ = EMPTY.__code__.replace(
            co_argcount=code.co_argcount, co_posonlyargcount=code.co_posonlyargcount,
            co_kwonlyargcount=code.co_kwonlyargcount, co_nlocals=code.co_nlocals,
            co_varnames=code.co_varnames,
            co_flags=EMPTY.__code__.co_flags & ~0xC | code.co_flags & 0xC, co_name=code.co_name,
            co_qualname=f.__qualname__)  # fmt: skip
        probe.__defaults__, probe.__kwdefaults__, probe.__qualname__ = (
            f.__defaults__,
            f.__kwdefaults__,
            f.__qualname__,
        )
        try:
            probe(*(x.value for x in args), **{k: v.value for k, v in kwargs.items()})
        except TypeError as error:
            return error
        return TypeError(
            f"{f.__qualname__}: expected other arguments; got {len(args)}. Check the call."
        )

    # -- classes -------------------------------------------------------------------------------

    def call_class(self, fn: Var, args, kwargs, then):
        """Make an instance."""
        cls = self.known(fn)
        special = CLASSES.get(cls)
        if special is not None:
            return special(self, fn, args, kwargs, then)
        if cls in POLYFILLS:
            return self.call_function(Var(POLYFILLS[cls]), args, kwargs, then)
        if cls in GETTERS and all(self.foldable(x) for x in (*args, *kwargs.values())):
            values = {k: self.known(v) for k, v in kwargs.items()}
            return self.deliver(then, Var(self.do(cls, *(self.known(x) for x in args), **values)))
        if cls is functools.partial:
            self.known(args[0]) if not isinstance(args[0].origin, Made) else None
            made = functools.partial(
                *(x.value for x in args), **{k: v.value for k, v in kwargs.items()}
            )
            return self.deliver(then, self.track(Var(made, Made("call", fn, args, kwargs), {})))
        if (
            type(cls) is not type
            and static_lookup(type(cls), "__call__")[0] is not static_lookup(type, "__call__")[0]
        ):
            meta = static_lookup(type(cls), "__call__")[0]
            if all(self.foldable(x) for x in (*args, *kwargs.values())):
                values = {k: self.known(v) for k, v in kwargs.items()}
                return self.deliver(
                    then, Var(self.do(cls, *(self.known(x) for x in args), **values))
                )
            if isinstance(meta, types.FunctionType):
                return self.call(Var(meta), [fn, *args], kwargs, then)
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        return self.instantiate(fn, cls, args, kwargs, then)

    def instantiate(self, fn: Var, cls: type, args, kwargs, then):
        """An object of a user's class: __new__, then __init__, inlined."""
        new, init = static_lookup(cls, "__new__")[0], static_lookup(cls, "__init__")[0]
        new = new.__func__ if isinstance(new, staticmethod) else new
        if (
            issubclass(cls, tuple)
            and isinstance(new, types.FunctionType)
            and hasattr(cls, "_fields")
        ):
            made = self.named_tuple(cls, new, args, kwargs)
            return self.deliver(then, made)
        if issubclass(cls, BaseException):
            return self.make_exception(fn, cls, init, args, kwargs, then)
        if isinstance(new, types.FunctionType):

            def initialise(tracer, made):
                if isinstance(made.value, cls) and isinstance(init, types.FunctionType):
                    return tracer.inline(Var(init), [made, *args], kwargs, then, made)
                return tracer.deliver(then, made)

            return self.call(Var(new), [fn, *args], kwargs, initialise)
        if new is not object.__new__:
            return self.make_builtin(fn, cls, init, args, kwargs, then)
        made = self.track(Var(self.do(object.__new__, cls), Made("object", cls), {}))
        if isinstance(init, types.FunctionType):
            if self.why_opaque(init):
                raise Break(f"making a {cls.__name__}", fn, args, kwargs)
            return self.inline(Var(init), [made, *args], kwargs, then, made)
        if init is object.__init__:
            if args or kwargs:
                self.fail(TypeError(f"{cls.__name__}() takes no arguments"))
            return self.deliver(then, made)
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)

    def says_the_same(self, error: Var, how) -> bool:
        """Whether str or repr of an exception is the same in each call."""
        value, origin = error.value, error.origin
        own = static_lookup(type(value), f"__{how.__name__}__")[0]
        if isinstance(own, types.FunctionType) or not isinstance(origin, Made):
            return False
        if origin.kind == "exception_value":
            return self.is_plain(value.args)
        parts = origin.parts[1] if origin.kind in ("call", "exception") else [error]
        if not all(map(self.foldable, parts)):
            return False
        for part in parts:
            self.known(part)
        return True

    def named_tuple(self, cls, new, args, kwargs) -> Var:
        """A namedtuple's instance."""
        fields = cls._fields
        values = dict(zip(fields, args)) | kwargs
        for name, default in cls._field_defaults.items():
            values.setdefault(name, constant(default))
        if set(values) != set(fields) or len(args) > len(fields):
            self.do(cls, *(x.value for x in args), **{k: v.value for k, v in kwargs.items()})
        return self.new_tuple([values[name] for name in fields], cls)

    def make_exception(self, fn, cls, init, args, kwargs, then):
        """An exception, made by a call of its class where that runs no user's code."""
        if isinstance(init, types.FunctionType):
            base = Var(
                self.do(cls.__new__, cls, *(x.value for x in args)),
                Made("exception", cls, args),
                {},
            )
            return self.inline(Var(init), [self.track(base), *args], kwargs, then, base)
        value = self.do(cls, *(x.value for x in args), **{k: v.value for k, v in kwargs.items()})
        return self.deliver(then, self.track(Var(value, Made("call", fn, args, kwargs), {})))

    def make_builtin(self, fn, cls, init, args, kwargs, then):
        """An instance of a subclass of a builtin container."""
        for base in (OrderedDict, defaultdict, dict, list, set):
            if (
                issubclass(cls, base)
                and cls.__new__ is base.__new__
                and base in (dict, list, OrderedDict)
            ):
                kind = "list" if base is list else "dict"
                made = self.track(
                    Var(cls.__new__(cls), Made(f"sub{kind}", cls), [] if kind == "list" else {})
                )
                if isinstance(init, types.FunctionType):
                    return self.inline(Var(init), [made, *args], kwargs, then, made)

                def filled(tracer, var, made=made):
                    return tracer.deliver(then, made)

                if args or kwargs:
                    return self.extend(
                        made, "extend" if kind == "list" else "update", *args, then=filled, **kwargs
                    )
                return self.deliver(then, made)
        if (
            all(self.foldable(x) for x in (*args, *kwargs.values()))
            and cls.__module__ != "builtins"
        ):
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)

    # -- builtins ------------------------------------------------------------------------------

    def call_builtin(self, fn: Var, args, kwargs, then):
        """A builtin function: known, pure, or a break."""
        f = fn.value
        if isinstance(fn.origin, Source) and isinstance(
            getattr(f, "__self__", builtins), types.ModuleType
        ):
            self.guards.add("is", fn.origin, f)
        handler = BUILTINS.get(f) if hashable(f) else None
        if handler is None and hashable(f) and f in POLYFILLS:
            return self.call_function(Var(POLYFILLS[f]), args, kwargs, then)
        if handler is not None:
            return handler(self, fn, args, kwargs, then)
        if isinstance(f, types.BuiltinFunctionType) and f.__self__ is not None and not isinstance(
                f.__self__, types.ModuleType):  # fmt: skip
            this = self.tracked.get(id(f.__self__)) or constant(f.__self__)
            if isinstance(fn.origin, Source):
                self.known(fn) if isinstance(f.__self__, type) else None
                this = self.load(f.__self__, self.sub(fn, "attr", "__self__", ".__self__"))
            return self.builtin_method(fn, this, f.__name__, args, kwargs, then)
        if isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            return self.builtin_method(fn, args[0], f.__name__, args[1:], kwargs, then)
        if isinstance(f, types.MethodWrapperType):
            this = self.tracked.get(id(f.__self__)) or constant(f.__self__)
            return self.builtin_method(fn, this, f.__name__, args, kwargs, then)
        if hashable(f) and self.may_vary(f) and self.is_number_call(args) and not kwargs:
            return self.deliver(then, self.number(f, args))
        vary = (*args, *kwargs.values())
        if hashable(f) and f in PURE and all(self.foldable(x) for x in vary):
            values = {k: self.known(v) for k, v in kwargs.items()}
            return self.deliver(
                then, constant(self.do(f, *(self.known(x) for x in args), **values))
            )
        if hashable(f) and f in POLYFILLS:
            return self.call_function(Var(POLYFILLS[f]), args, kwargs, then)
        if f in (abs, pow) and not kwargs and self.is_tensor(args[0]):
            return self.deliver(then, self.front.operate(self, f, args))
        if f in OPERATORS and len(args) == 2 and not kwargs:
            return self.binary(f, args[0], args[1], then)
        if f in UNARY and len(args) == 1 and not kwargs:
            return self.unary(f, args[0], then)
        raise Break(f"call of {getattr(f, '__qualname__', f)}", fn, args, kwargs)

    def may_vary(self, fn) -> bool:
        """Whether arithmetic may be left to each call: it cannot raise, or is the library's own."""
        return fn in SURE or fn in ARITHMETIC and self.frames[-1].trusted

    def is_number_call(self, args) -> bool:
        return bool(args) and any(self.varies(x) for x in args) and all(
            type(x.value) in (int, float) and (x.origin is None or isinstance(x.origin, (Source,
            Number)))
            for x in args)  # fmt: skip

    def is_size_call(self, args) -> bool:
        """Whether arithmetic is on sizes that the graph computes."""
        return any(isinstance(x.origin, Node) for x in args) and all(
            type(x.value) in (int, float) for x in args
        )

    def number(self, fn, args) -> Var:
        """Arithmetic that later calls do again."""
        for x in args:
            self.typed(x)
        return Var(self.do(fn, *(x.value for x in args)), Number(fn, tuple(args)))

    def call_builtin_method(self, fn: Var, args, kwargs, then):
        """A method of a builtin type, bound to a Var."""
        this, inner = fn.origin.parts
        if isinstance(inner, Var):  # super().method, where the method is builtin
            return self.builtin_method(fn, this, inner.value.__name__, args, kwargs, then)
        return self.builtin_method(fn, this, inner, args, kwargs, then)

    def builtin_method(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """this.name(*args) of a builtin type."""
        value = this.value
        if isinstance(fn.value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            fn = Var(fn.value.__get__(value), Made("method", this, Var(fn.value)))
        if isinstance(value, Generator):
            return self.generator_method(this, name, args, then)
        if name in ("__init__", "__init_subclass__") and not isinstance(value, (list, dict, set)):
            if isinstance(value, BaseException) and this.is_new:
                self.do(getattr(BaseException, name), value, *(x.value for x in args))
                this.origin = Made("exception", type(value), args)
            return self.deliver(then, Var(None))
        if name == "__setattr__" and len(args) == 2:
            self.set_plain(this, self.known(args[0]), args[1])
            return self.deliver(then, Var(None))
        if name == "__delattr__":
            self.set_plain(this, self.known(args[0]), None)
            return self.deliver(then, Var(None))
        if name in ("__getattribute__",) and len(args) == 1:
            return self.plain_attribute(this, self.known(args[0]), then)
        if name == "__new__":
            return self.object_new(fn, this, args, kwargs, then)
        if name == "__eq__" and type(value).__eq__ is object.__eq__ and args:
            same = self.identical(this, args[0])
            return self.deliver(then, Var(True if same else NotImplemented))
        if name in (
            "__str__",
            "__repr__",
            "__hash__",
            "__format__",
            "__reduce__",
        ) and not self.foldable(this):
            raise Break(f"{name} of a {type(value).__name__}", fn, args, kwargs)
        if isinstance(value, (list, dict, set)) and not self.is_tensor(this):
            return self.container_call(fn, this, name, args, kwargs, then)
        if isinstance(this.origin, Made) and this.origin.kind == "view" and name == "__iter__":
            return self.get_iter(this, then)
        if isinstance(value, tuple) and name in (
            "index",
            "count",
            "__len__",
            "__getitem__",
            "__iter__",
            "__contains__",
        ):
            return self.tuple_method(fn, this, name, args, then)
        if isinstance(value, str) and name == "join" and len(args) == 1:
            return self.join(fn, this, args[0], then)
        if (
            isinstance(value, str)
            and name == "format"
            and not all(map(self.foldable, (*args, *kwargs.values())))
        ):
            raise Break("formatting of a value", fn, args, kwargs)
        vary = (this, *args, *kwargs.values())
        stateless = isinstance(value, (*STATELESS, type)) or self.front.is_constant(value)
        if stateless and all(self.foldable(x) for x in vary):
            method = getattr(self.known(this), name) if not isinstance(fn.value, type) else fn.value
            return self.fold(fn, method, args, kwargs, then)
        if name == "__iter__":
            return self.get_iter(this, then)
        if name == "__next__":
            return self.next_of(this, None, then)
        raise Break(f"method {name} of a {type(value).__name__}", fn, args, kwargs)

    def join(self, fn: Var, this: Var, parts: Var, then):
        """str.join."""
        items = self.sequence(parts)
        if items is None:
            return self.call_function(Var(join_of), [this, parts], {}, then)
        if not all(self.foldable(x) for x in items):
            raise Break("joining of values", fn, [self.new_list(items)])
        values = [self.known(x) for x in items]
        return self.deliver(then, Var(self.do(self.known(this).join, values)))

    def plain_attribute(self, this: Var, name: str, then):
        """object.__getattribute__(this, name)."""
        cls = type(this.value)
        found, _ = static_lookup(cls, name)
        if isinstance(this.items, dict) and name in this.items and this.items[name] is not None:
            return self.deliver(then, this.items[name])
        if found is not MISSING and hasattr(type(found), "__set__"):
            return self.descriptor(this, name, found, then)
        own = getattr(this.value, "__dict__", {})
        if name in own:
            return self.deliver(
                then, self.load(own[name], self.entry_source(self.dict_of(this), name))
            )
        if found is MISSING:
            self.fail(AttributeError(f"{cls.__name__!r} object has no attribute {name!r}"))
        return self.bind_class_attribute(this, name, found, then)

    def object_new(self, fn: Var, this: Var, args, kwargs, then):
        """object.__new__(cls)."""
        cls = self.known(args[0]) if args else None
        if fn.value is object.__new__ or (isinstance(cls,
        type) and cls.__new__ is object.__new__) or (
                this.value is object):  # fmt: skip
            return self.deliver(
                then, self.track(Var(self.do(object.__new__, cls), Made("object", cls), {}))
            )
        raise Break("a call of __new__", fn, args, kwargs)

    def tuple_method(self, fn, this, name, args, then):
        items = self.sequence(this)
        if name == "__len__":
            return self.deliver(then, Var(len(items)))
        if name == "__iter__":
            return self.get_iter(this, then)
        if name == "__getitem__":
            return self.get_item(this, args[0], then)
        if all(self.foldable(x) for x in (*items, *args)):
            return self.deliver(
                then, Var(self.do(getattr(self.known(this), name), *(self.known(x) for x in args)))
            )
        raise Break(f"method {name} of a tuple", fn, [*args])

    # -- containers ----------------------------------------------------------------------------

    def container_call(self, fn: Var, this: Var, name: str, args, kwargs, then):
        """A method of a list, dict or set."""
        value = this.value
        self.typed(this)
        if name in ("extend", "update", "__ior__", "__iadd__",
        "__init__") and name != "__init__" or (
                name == "__init__" and (args or kwargs)):  # fmt: skip
            how = "extend" if isinstance(value, list) else "update"
            if not args and not kwargs:
                return self.deliver(then, Var(None))
            return self.extend(
                this, how, *args, then=lambda t, v: t.deliver(then, Var(None)), **kwargs
            )
        if name == "__init__":
            return self.deliver(then, Var(None))
        if name == "sort" and isinstance(value, list):
            return self.sort(this, kwargs, then)
        if name in ("__getitem__", "__contains__", "__len__", "__iter__"):
            simple = {"__getitem__": lambda: self.get_item(this, args[0], then),
                      "__contains__": lambda: self.contains(this, args[0], False, then),
                      "__iter__": lambda: self.get_iter(this, then),
                      "__len__": lambda: self.length(this, then)}  # fmt: skip
            return simple[name]()
        if name == "__setitem__":
            self.store_item(this, args[0], args[1])
            return self.deliver(then, Var(None))
        if name == "__delitem__":
            self.store_item(this, args[0], None)
            return self.deliver(then, Var(None))
        if isinstance(value, dict) and name in ("get", "setdefault", "pop") and args:
            found = self.dict_get(this, name, args)
            if found is not None:
                return self.deliver(then, found)
        return self.deliver(then, self.container_method(this, name, args, kwargs, fn))

    def dict_get(self, this: Var, name: str, args) -> Var | None:
        """get, setdefault and pop of a dict; None where there is no such key and no default."""
        key = args[0]
        default = args[1] if len(args) > 1 else (None if name == "pop" else Var(None))
        found = self.entry(this, self.known_key(key))
        if found is not None:
            if name == "pop":
                self.store_item(this, key, None)
            return found
        if default is None:
            self.fail(KeyError(key.value))
        if name == "setdefault":
            self.store_item(this, key, default)
        return default

    def container_method(self, this: Var, name: str, args, kwargs=None, fn=None) -> Var:
        """What is left of the methods of containers: done to the value and to its Vars."""
        value, kwargs = this.value, kwargs or {}
        if isinstance(value, list):
            result = self.list_method(this, name, args)
        elif isinstance(value, dict):
            result = self.dict_method(this, name, args)
        else:
            result = self.set_method(this, name, args)
        if result is None:
            raise Break(
                f"method {name} of a {type(value).__name__}",
                fn or Var(getattr(value, name)),
                args,
                kwargs,
            )
        return result

    def list_method(self, this: Var, name: str, args) -> Var | None:
        items, value = self.sequence(this), this.value
        if name in ("append", "insert", "pop", "clear", "reverse"):
            raw = [args[0].value] if name == "append" else [
                x.value if name == "insert" and i else self.known(x) for i,
                x in enumerate(args)]  # fmt: skip
            self.do(getattr(value, name), *raw)
            own = [args[0]] if name == "append" else [raw[0], args[1]] if name == "insert" else raw
            result = getattr(items, name)(*own)
            self.note_method(this, name, args)
            return result if name == "pop" else Var(None)
        if name == "copy":
            return self.new_list(items)
        if name in ("index", "count", "remove"):
            if not all(self.foldable(x) for x in (*items, args[0])):
                spots = [i for i, x in enumerate(items) if x is args[0] or x.value is args[0].value]
                if not spots or self.is_tensor(args[0]):
                    return None
            for x in (*items, *args):
                self.known(x) if self.foldable(x) else None
            result = self.do(getattr(value, name), *(x.value for x in args))
            if name == "remove":
                at = next(
                    i
                    for i, x in enumerate(items)
                    if x.value is args[0].value or x.value == args[0].value
                )
                del items[at]
                self.note_method(this, name, args)
            return Var(result)
        return None

    def dict_method(self, this: Var, name: str, args) -> Var | None:
        value = this.value
        if name in ("keys", "values", "items"):
            return Var(getattr(value, name)(), Made("view", this, name))
        if name == "copy":
            return self.new_dict(
                self.entries(this), type(value) if type(value) in (dict, OrderedDict) else dict
            )
        if name in ("clear", "popitem", "move_to_end"):
            self.whole_dict(this)
            if name == "popitem" and value:
                key = next(reversed(value))
                pair = this.items[key]
                self.store_item(this, pair[0], None)
                return self.new_tuple([pair[0], pair[1]])
            if name == "move_to_end":
                self.do(value.move_to_end, *(self.known(x) for x in args))
                self.note_method(this, name, args)
                return Var(None)
            if name == "clear":
                self.deleted.setdefault(id(this), set()).update(value)
                if not this.is_new:
                    self.original_keys.setdefault(id(this), tuple(value))
                value.clear()
                this.items.clear()
                self.note_method(this, name, [])
                return Var(None)
        return None

    def set_method(self, this: Var, name: str, args) -> Var | None:
        self.whole_set(this)
        items, value = this.items, this.value
        if name in ("add", "discard", "remove"):
            key = self.known_key(args[0])
            self.do(getattr(value, name), key)
            items.pop(key, None) if name != "add" else items.setdefault(key, (args[0],))
        elif name == "clear":
            value.clear()
            items.clear()
        elif name == "copy":
            return self.new_set([x[0] for x in items.values()])
        elif name == "pop" and value:
            return items.pop(self.popped(this))[0]
        elif name.endswith("_update") and name[:-7] in SET_ALGEBRA:
            made = self.set_method(this, name[:-7], args)
            if made is not None:
                self.replace_all(this, "add", self.sequence(made))
                return Var(None)
            return None
        elif name in SET_ALGEBRA:
            others = [self.sequence(x) for x in args]
            if None in others:
                return None
            raw = [{self.known_key(y) for y in other} for other in others]
            result = self.do(getattr(value, name), *raw)
            if not isinstance(result, (set, frozenset)):
                return Var(result)
            known = {y.value: y for other in (*others, self.sequence(this)) for y in other}
            return self.new_set([known[x] for x in result])
        else:
            return None
        self.note_method(this, name, args)
        return Var(None)

    def popped(self, this: Var):
        """An element taken out of a set."""
        element = this.value.pop()
        if not this.is_new:
            self.write(this, ("method", "discard", [Var(element)]))
        return element

    def note_method(self, this: Var, name: str, args) -> None:
        if not this.is_new:
            self.write(this, ("method", name, list(args)))

    def extend(self, this: Var, how: str, *args, then=None, **kwargs):
        """list.extend, set.update, dict.update."""
        done = then or (lambda t, v: None)
        if isinstance(this.value, dict):
            other = args[0] if args else None
            if other is not None and self.is_dict(other):
                for key, value in self.entries(other):
                    self.store_item(this, key, value)
                other = None
            if other is not None:
                return self.call_function(Var(update_of), [this, other], kwargs, done)
            for key, value in kwargs.items():
                self.store_item(this, Var(key), value)
            return done(self, Var(None))
        if len(args) > 1:
            rest = args[1:]
            return self.extend(
                this, how, args[0], then=lambda t, v: t.extend(this, how, *rest, then=then)
            )
        items = self.sequence(args[0])
        if items is None:
            fn = extend_of if isinstance(this.value, list) else add_all
            return self.call_function(Var(fn), [this, args[0]], {}, done)
        name = "append" if isinstance(this.value, list) else "add"
        for x in list(items):
            self.container_method(this, name, [x])
        return done(self, Var(None))

    def sort(self, this: Var, kwargs, then):
        """list.sort, by way of sorted."""

        def place(tracer, made):
            whole = Var(slice(None))
            tracer.store_item(this, whole, made)
            return tracer.deliver(then, Var(None))

        return self.call(Var(sorted), [this], kwargs, place)

    # -- generators and iterators --------------------------------------------------------------

    def generator_method(self, this: Var, name: str, args, then):
        """A method of a generator that the interpreter runs."""
        if name in ("__next__", "send"):
            return self.next_of(this, None, then, args[0] if args else Var(None))
        if name == "__iter__":
            return self.deliver(then, this)
        if name == "throw":
            error = args[0] if len(args) == 1 or args[1].value is None else args[1]
            if isinstance(error.value, type):
                error = Var(error.value())
            made: Generator = this.value

            def after(tracer, x, result=None):
                if x is END:
                    tracer.fail(StopIteration())
                return tracer.deliver(then, x)

            self.enter_generator(made, after)
            self.raised = error
            raise UserError(error.value)
        if name == "close":
            return self.close_generator(this.value, then)
        raise Break(f"method {name} of a generator", None)

    def close_generator(self, made: Generator, then):
        """Raise GeneratorExit where a generator stands."""
        if made.finished or not made.started:
            made.finished = True
            return self.deliver(then, Var(None))
        made.closing = True
        self.enter_generator(made, lambda t, x: t.deliver(then, Var(None)))
        raise UserError(GeneratorExit())

    def enter_generator(self, made: Generator, after) -> None:
        """Run a generator's frame until it yields or ends."""
        if made.running:
            self.fail(ValueError("generator already executing"))
        made.running = made.started = True
        made.then = after
        self.frames.append(made.frame)

    @pending
    def get_iter(self, x: Var, then=None):
        """iter(x)."""
        value = x.value
        if isinstance(value, (Over, Zip, Enumerate, Generator)):
            return self.deliver(then, x)
        if not self.live:
            return self.deliver(then, Var(self.do(iter, value)))
        if self.is_tensor(x):
            return self.deliver(
                then, self.track(Var(Over(x, self.front.unbind(self, x)), Made("iterator")))
            )
        kind = type(value)
        if isinstance(value, (list, tuple, range, str, bytes)) and self.sequence_kind(kind):
            self.typed(x)
            return self.deliver(then, self.track(Var(Over(x), Made("iterator"))))
        method, _ = static_lookup(kind, "__iter__")
        if isinstance(method, types.FunctionType):
            self.typed(x)
            return self.call(Var(method), [x], {}, then)
        items = self.sequence(x)
        if items is not None:
            return self.deliver(then, self.track(Var(Over(x, list(items)), Made("iterator"))))
        if method is MISSING and isinstance(
            static_lookup(kind, "__getitem__")[0], types.FunctionType
        ):
            return self.call_function(Var(iterate), [x], {}, then)
        raise Break(f"iteration over a {kind.__name__}", Var(iter), [x])

    def sequence_kind(self, kind) -> bool:
        return kind.__iter__ in (
            list.__iter__,
            tuple.__iter__,
            range.__iter__,
            str.__iter__,
            bytes.__iter__,
        )

    @pending
    def step(self, iterator: Var, then, sent: Var | None = None):
        """The next item to `then`, or END."""
        value = iterator.value
        if isinstance(value, Generator):
            if value.finished:
                return then(self, END)
            self.enter_generator(value, then)
            value.frame.stack.append(sent or Var(None))
            return None
        if isinstance(value, (Over, Zip, Enumerate)):
            return then(self, value.step(self))
        if not self.live:
            plain = sent is None or sent.value is None
            try:
                item = self.do(next, value) if plain else self.do(value.send, sent.value)
            except UserError as found:
                if not isinstance(found.error, StopIteration):
                    raise
                result = [Var(found.error.value)] if takes_result(then) else []
                return then(self, END, *result)
            return then(self, Var(item))
        method, _ = static_lookup(type(value), "__next__")
        if isinstance(method, types.FunctionType):
            frame = self.frames[-1]
            self.typed(iterator)
            self.call(Var(method), [iterator], {}, lambda t, v: then(t, v))
            if self.frames[-1] is not frame:
                self.frames[-1].then = NextThen(then)
            return None
        raise Break(f"iteration over a {type(value).__name__}", Var(next), [iterator])

    @pending
    def next_of(self, iterator: Var, default: Var | None, then, sent=None):
        """next(iterator[, default])."""

        def after(tracer, x, result=None):
            if x is not END:
                return tracer.deliver(then, x)
            if default is not None:
                return tracer.deliver(then, default)
            return tracer.fail(StopIteration() if result is None else StopIteration(result.value))

        return self.step(iterator, after, sent)

    # -- operators -----------------------------------------------------------------------------

    @pending
    def unary(self, fn, x: Var, then=None):
        """-x, +x, ~x."""
        if not self.live:
            return self.deliver(then, Var(self.do(fn, x.value)))
        if self.is_tensor(x):
            return self.deliver(then, self.front.operate(self, fn, [x]))
        if self.may_vary(fn) and self.is_number_call([x]):
            return self.deliver(then, self.number(fn, [x]))
        if self.foldable(x):
            return self.deliver(then, constant(self.do(fn, self.known(x))))
        method = static_lookup(type(self.typed(x)), method_name(fn))[0]
        if isinstance(method, types.FunctionType):
            return self.call(Var(method), [x], {}, then)
        raise Break(f"{fn.__name__} of a {type(x.value).__name__}", Var(fn), [x])

    @pending
    def binary(self, fn, lhs: Var, rhs: Var, then=None):
        """An operator between two values."""
        if not self.live:
            return self.deliver(then, Var(self.do(fn, lhs.value, rhs.value)))
        if self.is_tensor(lhs) or self.is_tensor(rhs):
            user = [x for x in (lhs, rhs) if not self.is_tensor(x) and self.user_operator(x, fn)]
            if not user:
                return self.deliver(then, self.front.operate(self, fn, [lhs, rhs]))
        if fn in ARITHMETIC and self.is_size_call([lhs, rhs]):
            return self.deliver(
                then, self.front.apply(self, "call_function", fn, fn, [lhs, rhs], {}, True)
            )
        if self.may_vary(fn) and self.is_number_call([lhs, rhs]):
            return self.deliver(then, self.number(fn, [lhs, rhs]))
        joined = self.sequence_operator(fn, lhs, rhs)
        if joined is not None:
            return self.deliver(then, joined)
        if self.user_operator(lhs, fn) or self.user_operator(rhs, fn):
            return self.user_binary(fn, lhs, rhs, then)
        if self.foldable(lhs) and self.foldable(rhs):
            a, b = self.known(lhs), self.known(rhs)
            if fn is operator.pow and isinstance(b, int) and isinstance(a, int) and b > MAX_REPEAT:
                raise Break("a very large power", Var(fn), [lhs, rhs])
            return self.deliver(then, constant(self.do(fn, a, b)))
        if fn in (operator.eq, operator.ne):
            found = self.equality(lhs, rhs)
            if found is not None:
                return self.deliver(then, Var(found is (fn is operator.eq)))
        raise Break(
            f"{fn.__name__} of {type(lhs.value).__name__} and {type(rhs.value).__name__}",
            Var(fn),
            [lhs, rhs],
        )

    def user_operator(self, x: Var, fn) -> bool:
        """Whether a class defines an operator in Python."""
        cls = type(x.value)
        if isinstance(x.value, (FUNCTIONS, *SCALARS)) and not isinstance(x.value, type):
            return False
        names = (
            method_name(fn),
            REVERSED.get(IN_PLACE.get(fn, fn), ""),
            method_name(IN_PLACE.get(fn, fn)),
        )
        return any(isinstance(static_lookup(cls, n)[0], types.FunctionType) for n in names if n)

    def user_binary(self, fn, lhs: Var, rhs: Var, then):
        """An operator that a user's class defines: each candidate in Python's order."""
        plain = IN_PLACE.get(fn, fn)
        tries = [(lhs, method_name(fn), rhs)]
        if plain is not fn:
            tries.append((lhs, method_name(plain), rhs))
        reverse = (rhs, REVERSED.get(plain, ""), lhs)
        own, other = type(self.typed(lhs)), type(self.typed(rhs))
        if other is not own and issubclass(other, own):
            tries.insert(0, reverse)
        elif other is not own or plain in COMPARISONS:
            tries.append(reverse)
        tries = [
            t for t in tries if t[1] and static_lookup(type(t[0].value), t[1])[0] is not MISSING
        ]

        def attempt(tracer, number):
            if number == len(tries):
                if plain in (operator.eq, operator.ne):
                    return tracer.deliver(
                        then, Var(tracer.identical(lhs, rhs) is (plain is operator.eq))
                    )
                symbol = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.get(
                    plain.__name__, plain.__name__
                )
                tracer.fail(TypeError(f"unsupported operand type(s) for {symbol}: "
                                      f"{own.__name__!r} and {other.__name__!r}"))  # fmt: skip
            x, name, y = tries[number]
            method = static_lookup(type(x.value), name)[0]

            def after(t, result):
                if result.value is NotImplemented:
                    return attempt(t, number + 1)
                return t.deliver(then, result)

            if name == "__ne__" and not isinstance(method, types.FunctionType):
                eq = static_lookup(type(x.value), "__eq__")[0]

                def negate(t, result):
                    if result.value is NotImplemented:
                        return attempt(t, number + 1)
                    return t.truth(result, lambda t2, flag: t2.deliver(then, Var(not flag)))

                if isinstance(eq, types.FunctionType):
                    return tracer.call(Var(eq), [x, y], {}, negate)
            if not isinstance(method, types.FunctionType):
                if not (tracer.foldable(x) and tracer.foldable(y)):
                    return attempt(tracer, number + 1)  # a builtin does not know the user's class
                return tracer.builtin_method(Var(method), x, name, [y], {}, after)
            return tracer.call(Var(method), [x, y], {}, after)

        return attempt(self, 0)

    def sequence_operator(self, fn, lhs: Var, rhs: Var) -> Var | None:
        """+ and * of lists and tuples whose items are Vars."""
        plain = IN_PLACE.get(fn, fn)
        a, b = lhs.value, rhs.value
        if plain is operator.add and type(a) is type(b) and type(a) in (list, tuple):
            if fn is not plain and type(a) is list:
                self.extend(lhs, "extend", rhs)
                return lhs
            joined = [*self.sequence(lhs), *self.sequence(rhs)]
            return self.new_list(joined) if type(a) is list else self.new_tuple(joined)
        if fn is operator.iadd and type(a) is list:
            items = self.sequence(rhs)
            if items is not None:
                self.extend(lhs, "extend", rhs)
                return lhs
        if plain is operator.mul:
            seq, times = (lhs, rhs) if isinstance(a, (list, tuple)) else (rhs, lhs)
            if (
                type(seq.value) in (list, tuple)
                and isinstance(times.value, int)
                and self.foldable(times)
            ):
                items = self.sequence(seq) * self.known(times)
                if fn is not plain and seq is lhs and type(seq.value) is list:
                    return self.replace_all(lhs, "append", items)
                return self.new_list(items) if type(seq.value) is list else self.new_tuple(items)
        if plain is operator.or_ and self.is_dict(lhs) and self.is_dict(rhs):
            if fn is not plain:
                self.extend(lhs, "update", rhs)
                return lhs
            return self.new_dict([*self.entries(lhs), *self.entries(rhs)])
        if plain in SET_OPERATORS and isinstance(b, (set, frozenset)) and type(a) is set:
            made = self.set_method(lhs, SET_OPERATORS[plain], [rhs])
            return made if fn is plain else self.replace_all(lhs, "add", self.sequence(made))
        if fn is not plain and isinstance(a, (list, set, dict)) and not self.user_operator(lhs, fn):
            raise Break(f"{fn.__name__} of a {type(a).__name__}", Var(fn), [lhs, rhs])
        return None

    def replace_all(self, target: Var, how: str, items: list[Var]) -> Var:
        """A list or set with other contents."""
        self.container_method(target, "clear", [])
        for x in items:
            self.container_method(target, how, [x])
        return target

    def equality(self, lhs: Var, rhs: Var) -> bool | None:
        """== of containers and plain objects; None where it cannot be told."""
        a, b = self.typed(lhs), self.typed(rhs)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and type(a) is type(b):
            xs, ys = self.sequence(lhs), self.sequence(rhs)
            if xs is None or ys is None:
                return None
            if len(xs) != len(ys):
                return False
            for x, y in zip(xs, ys, strict=True):
                same = (
                    True
                    if x is y
                    else (
                        self.known(x) == self.known(y)
                        if self.foldable(x) and self.foldable(y)
                        else self.equality(x, y)
                    )
                )
                if same is not True:
                    return same
            return True
        if self.is_dict(lhs) and self.is_dict(rhs):
            xs, ys = dict(self.keyed(lhs)), dict(self.keyed(rhs))
            if xs.keys() != ys.keys():
                return False
            parts = [self.equality(xs[k],
            ys[k]) if not (self.foldable(xs[k]) and self.foldable(ys[k])) else
                     self.known(xs[k]) == self.known(ys[k]) for k in xs]  # fmt: skip
            return None if None in parts else all(parts)
        if self.is_tensor(lhs) or self.is_tensor(rhs):
            return None
        plain = (object.__eq__, type.__eq__)
        scalar = type(a) in SCALARS or type(b) in SCALARS
        unlike = type(a) is not type(b) and scalar
        if (type(a).__eq__ in plain and type(b).__eq__ in plain) or (
            a is None or b is None or unlike
        ):
            return self.identical(lhs, rhs)
        return None

    def keyed(self, var: Var):
        return [(k.value, v) for k, v in self.entries(var)]

    @pending
    def truth(self, x: Var, then):
        """bool(x), given to `then(tracer, flag)`."""
        value = x.value
        if value is True or value is False or value is None:
            self.known(x)
            return then(self, bool(value))
        if not self.live:
            return then(self, self.do(bool, value))
        if self.is_tensor(x):
            flag = self.front.truth(self, x)
            if flag is None:
                hint = "use gh.where, or let it break: each side is captured on its own"
                raise Break("a branch on a tensor's value", Var(exact_bool), [x], hint=hint)
            return then(self, flag)
        if self.foldable(x) and type(value) in SCALARS:
            return then(self, bool(self.known(x)))
        if isinstance(value, FUNCTIONS):
            return then(self, True)
        cls = type(value)
        for name in ("__bool__", "__len__"):
            method, _ = static_lookup(cls, name)
            if isinstance(method, types.FunctionType):
                self.typed(x)
                return self.call(Var(method), [x], {}, lambda t, v: t.truth(v, then))
            if method is not MISSING:
                break
        else:
            self.typed(x)
            return then(self, True)
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            self.length(x, lambda t, v: None)
            return then(self, bool(value))
        if self.foldable(x):
            return then(self, bool(self.known(x)))
        raise Break(f"the truth of a {cls.__name__}", Var(exact_bool), [x])

    @pending
    def length(self, x: Var, then):
        """len(x)."""
        value = x.value
        if self.is_dict(x):
            self.whole_dict(x)
            return self.deliver(then, Var(len(value)))
        if self.is_tensor(x):
            return self.deliver(then, self.front.length(self, x))
        method, _ = static_lookup(type(value), "__len__")
        if isinstance(method, types.FunctionType):
            self.typed(x)
            return self.call(Var(method), [x], {}, then)
        if isinstance(x.origin, Made) and x.origin.kind == "view":
            return self.length(x.origin.parts[0], then)
        if self.live and method is MISSING:
            kind = type(value.native()) if isinstance(value, Iterator) else type(value)
            self.fail(TypeError(f"object of type {kind.__name__!r} has no len()"))
        items = self.sequence(x)
        if items is None:
            raise Break(f"the length of a {type(value).__name__}", Var(len), [x])
        return self.deliver(then, Var(len(items)))

    @pending
    def contains(self, container: Var, element: Var, inverted: bool, then=None):
        """element in container."""
        value = container.value
        fn = not_contains if inverted else contains
        if not self.live:
            return self.deliver(then, Var(self.do(fn, value, element.value)))
        method, _ = static_lookup(type(value), "__contains__")
        if isinstance(method, types.FunctionType):
            self.typed(container)

            def done(t, v):
                return t.truth(v, lambda t2, flag: t2.deliver(then, Var(flag is not inverted)))

            return self.call(Var(method), [container, element], {}, done)
        if isinstance(value, (Generator, Iterator)):
            done = lambda t, v: t.deliver(then, Var(v.value is not inverted))  # noqa: E731
            return self.call_function(Var(contains_in), [container, element], {}, done)
        found = None
        if self.is_dict(container):
            found = self.entry(container, self.known_key(element)) is not None
        elif (
            isinstance(container.origin, Made)
            and container.origin.kind == "view"
            and container.origin.parts[1] == "keys"
        ):
            found = self.entry(container.origin.parts[0], self.known_key(element)) is not None
        elif isinstance(value, (set, frozenset)):
            self.whole_set(container)
            found = self.do(value.__contains__, self.known_key(element))
        elif self.foldable(container) and self.foldable(element):
            found = self.do(contains, self.known(container), self.known(element))
        elif isinstance(value, (list, tuple)) and not self.is_tensor(element):
            items = self.sequence(container)
            parts = [x is element or (self.known(x) == self.known(element) if self.foldable(x) and
                     self.foldable(element) else self.equality(x,
                     element)) for x in items]  # fmt: skip
            found = None if None in parts and True not in parts else any(p for p in parts)
        if found is None:
            raise Break("a search in a container", Var(fn), [container, element])
        return self.deliver(then, Var(found is not inverted))

    @pending
    def get_item(self, obj: Var, key: Var, then=None):
        """obj[key]."""
        value = obj.value
        if not self.live:
            return self.deliver(then, Var(self.do(operator.getitem, value, key.value)))
        if self.is_tensor(obj):
            return self.deliver(then, self.front.operate(self, operator.getitem, [obj, key]))
        if isinstance(value, type):
            return self.deliver(
                then, Var(self.do(operator.getitem, self.known(obj), self.known(key)))
            )
        method, _ = static_lookup(type(value), "__getitem__")
        if isinstance(method, types.FunctionType):
            self.typed(obj)
            return self.call(Var(method), [obj, key], {}, then)
        if isinstance(value, dict):
            found = self.entry(obj, self.known_key(key))
            if found is not None:
                return self.deliver(then, found)
            missing = static_lookup(type(value), "__missing__")[0]
            if isinstance(missing, types.FunctionType):
                return self.call(Var(missing), [obj, key], {}, then)
            if isinstance(value, defaultdict):
                return self.default_item(obj, key, then)
            self.fail(KeyError(key.value))
        if isinstance(value, (list, tuple)) and self.foldable(key):
            items, raw = self.sequence(obj), self.known(key)
            if isinstance(raw, slice):
                part = items[raw]
                return self.deliver(
                    then, self.new_list(part) if isinstance(value, list) else self.new_tuple(part)
                )
            self.do(operator.getitem, value, raw)
            return self.deliver(then, items[raw])
        if self.foldable(obj) and self.foldable(key):
            return self.deliver(
                then, constant(self.do(operator.getitem, self.known(obj), self.known(key)))
            )
        raise Break(f"indexing of a {type(value).__name__}", Var(operator.getitem), [obj, key])

    def default_item(self, obj: Var, key: Var, then):
        """A missing item of a defaultdict."""
        factory = self.load(
            obj.value.default_factory, self.sub(obj, "attr", "default_factory", ".default_factory")
        )

        def keep(tracer, made):
            tracer.store_item(obj, key, made)
            return tracer.deliver(then, made)

        return self.call(factory, [], {}, keep)

    def set_item(self, obj: Var, key: Var, value: Var | None):
        """obj[key] = value (None deletes)."""
        target = obj.value
        args = [obj, key] + ([value] if value is not None else [])
        if not self.live:
            self.do(store if value is not None else delete, *(x.value for x in args))
            return None
        if self.is_tensor(obj):
            self.front.operate(self, operator.setitem, args)
            return None
        name = "__setitem__" if value is not None else "__delitem__"
        method, _ = static_lookup(type(target), name)
        if isinstance(method, types.FunctionType):
            self.typed(obj)
            return self.call(Var(method), args, {}, lambda t, v: None)
        if type(target) is list and isinstance(key.value, (int, slice)) and self.foldable(key):
            self.known(key)
            self.store_item(obj, key, value)
            return None
        if isinstance(target, dict):
            self.store_item(obj, key, value)
            return None
        found = Break(
            f"item assignment to a {type(target).__name__}",
            Var(store if value is not None else delete),
            args,
        )
        found.discard = True
        raise found


def called_natively(f, args, kwargs):
    """f of Vars, with Python's own iterators among them."""
    return f(*map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()})


def plain_value(var: Var):
    return var.value.native() if isinstance(var.value, (Iterator, Generator)) else var.value


def takes_result(then) -> bool:
    return getattr(then, "__code__", None) is not None and then.__code__.co_argcount >= 3


def slot_list(code) -> list[str]:
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*code.co_varnames, *cells, *code.co_freevars]


def hashable(f) -> bool:
    try:
        hash(f)
        return True
    except TypeError:
        return False


def EMPTY():
    pass


class NextThen:
    """What follows an inlined __next__: its StopIteration ends the loop."""

    def __init__(self, then):
        self.then = then

    def __call__(self, tracer, var):
        return self.then(tracer, var)


# -- builtins with a rule of their own ------------------------------------------------------------


def on_isinstance(t, fn, args, kwargs, then):
    kinds = t.known(args[1])
    flat = kinds if isinstance(kinds, tuple) else (kinds,)
    for kind in flat:
        check = static_lookup(type(kind), "__instancecheck__")[0]
        if isinstance(check, types.FunctionType) and check.__module__ not in (
            "abc",
            "typing",
            "enum",
            "_py_abc",
        ):
            raise Break("isinstance with a check of its own", fn, args)
    value = t.typed(args[0])
    if isinstance(value, Generator):
        return t.deliver(then, Var(issubclass(types.GeneratorType, kinds)))
    return t.deliver(then, Var(t.do(isinstance, value, kinds)))


def on_type(t, fn, args, kwargs, then):
    if len(args) == 1:
        return t.deliver(then, Var(type(t.typed(args[0]))))
    raise Break("a class is made", fn, args, kwargs)


def on_len(t, fn, args, kwargs, then):
    return t.length(args[0], then)


def on_bool(t, fn, args, kwargs, then):
    if not args:
        return t.deliver(then, Var(False))
    return t.truth(args[0], lambda t2, flag: t2.deliver(then, Var(flag)))


def on_getattr(t, fn, args, kwargs, then):
    name = t.known(args[1])
    if len(args) == 2:
        return t.get_attribute(args[0], name, then)
    return t.attribute_or(args[0], name, then, lambda t2: t2.deliver(then, args[2]))


def on_hasattr(t, fn, args, kwargs, then):
    name = t.known(args[1])
    return t.attribute_or(
        args[0],
        name,
        lambda t2, v: t2.deliver(then, Var(True)),
        lambda t2: t2.deliver(then, Var(False)),
    )


def on_setattr(t, fn, args, kwargs, then):
    t.set_attribute(args[0], t.known(args[1]), args[2] if len(args) > 2 else None)
    return t.deliver(then, Var(None))


def on_iter(t, fn, args, kwargs, then):
    if len(args) == 2:
        return t.call_function(Var(call_until), args, {}, then)
    return t.get_iter(args[0], then)


def on_next(t, fn, args, kwargs, then):
    return t.next_of(args[0], args[1] if len(args) > 1 else None, then)


def on_super(t, fn, args, kwargs, then):
    if args:
        return t.deliver(then, t.make_super(args[0], args[1]))
    frame = t.frames[-1]
    code = frame.root
    cell = frame.locals[frame.code.slots.index("__class__")]
    this = frame.locals[0]
    if isinstance(this.value, types.CellType):
        this = t.cell_get(this, code.co_varnames[0])
    return t.deliver(then, t.make_super(t.cell_get(cell, "__class__"), this))


def on_sequence(make):
    """list(x), tuple(x), set(x)."""

    def handler(t, fn, args, kwargs, then):
        if not args:
            return t.deliver(then, make(t, []))
        items = t.sequence(args[0])
        if items is not None:
            return t.deliver(then, make(t, list(items)))

        def done(t2, made):
            found = made if make is as_list else make(t2, t2.sequence(made))
            return t2.deliver(then, found)

        return t.call_function(Var(list_of), args, {}, done)

    return handler


def as_list(t, items):
    return t.new_list(items)


def on_dict(cls):
    def handler(t, fn, args, kwargs, then):
        if cls is defaultdict:
            made = t.track(
                Var(defaultdict(args[0].value if args else None), Made("call", fn, args[:1]), {})
            )
            raise Break("a defaultdict is made", fn, args,
            kwargs) if len(args) > 1 or kwargs else Break(
                "a defaultdict is made", fn, args, kwargs)  # fmt: skip
        made = t.new_dict([], cls)
        if not args and not kwargs:
            return t.deliver(then, made)
        return t.extend(made, "update", *args, then=lambda t2, v: t2.deliver(then, made), **kwargs)

    return handler


def on_enumerate(t, fn, args, kwargs, then):
    start = args[1] if len(args) > 1 else kwargs.get("start", Var(0))

    def wrap(t2, it):
        if isinstance(it.value, (Over, Zip, Enumerate)) and t2.foldable(start):
            return t2.deliver(then, t2.track(Var(Enumerate(it, t2.known(start)), Made("iterator"))))
        return t2.call_function(Var(enumerate_of), [it, start], {}, then)

    return t.get_iter(args[0], wrap)


def on_zip(t, fn, args, kwargs, then):
    simple = (Over, Zip, Enumerate)
    if kwargs or any(not isinstance(x.value, simple) and t.sequence(x) is None for x in args):
        return t.call_function(Var(zip_of), args, kwargs, then)
    inners = []
    for x in args:
        t.get_iter(x, lambda t2, it: inners.append(it))
    return t.deliver(then, t.track(Var(Zip(inners), Made("iterator"))))


def on_reversed(t, fn, args, kwargs, then):
    method, _ = static_lookup(type(args[0].value), "__reversed__")
    if isinstance(method, types.FunctionType):
        return t.call(Var(method), args, {}, then)
    items = t.sequence(args[0])
    if items is None and isinstance(
        static_lookup(type(args[0].value), "__getitem__")[0], types.FunctionType
    ):
        return t.call_function(Var(reversed_of), args, {}, then)
    if items is None:
        raise Break("reversed", fn, args)
    return t.deliver(then, t.track(Var(Reversed(args[0], items[::-1]), Made("iterator"))))


def on_id(t, fn, args, kwargs, then):
    var = args[0]
    if isinstance(var.origin, Source) and t.live:
        t.guards.add("is", var.origin, var.value)
    elif var.origin is not None and not t.frames[-1].trusted:
        raise Break("the id of something new", fn, args)
    return t.deliver(then, Var(id(var.value)))


def on_callable(t, fn, args, kwargs, then):
    return t.deliver(then, Var(callable(t.typed(args[0]))))


def on_choices(t, fn, args, kwargs, then):
    """permutations and combinations: of places, which are known."""
    items = t.sequence(args[0])
    if items is None or not all(t.foldable(x) for x in (*args[1:], *kwargs.values())):
        raise Break(f"call of {fn.value.__name__}", fn, args, kwargs)
    words = {k: t.known(v) for k, v in kwargs.items()}
    places = t.do(fn.value, range(len(items)), *(t.known(x) for x in args[1:]), **words)
    found = [t.new_tuple([items[i] for i in choice]) for choice in places]
    return t.deliver(then, t.track(Var(Over(Var(None), found), Made("iterator"))))


def on_map(t, fn, args, kwargs, then):
    return t.call_function(Var(POLYFILLS[fn.value]), args, kwargs, then)


def on_min_max(t, fn, args, kwargs, then):
    items = t.sequence(args[0]) if len(args) == 1 else args
    if items is not None and not kwargs and items and all(t.foldable(x) for x in items):
        if any(t.varies(x) for x in items):
            for x in items:
                t.known(x)
        return t.deliver(then, Var(t.do(fn.value, [t.known(x) for x in items])))
    return t.call_function(Var(POLYFILLS[fn.value]), args, kwargs, then)


def on_sorted(t, fn, args, kwargs, then):
    items = t.sequence(args[0])
    reverse = kwargs.get("reverse", Var(False))
    key = kwargs.get("key", Var(None))
    if (
        items is None
        or key.value is not None
        and not isinstance(key.value, types.BuiltinMethodType)
    ):
        return t.call_function(Var(POLYFILLS[sorted]), args, kwargs, then)
    if key.value is not None:
        keys = t.sequence(t.tracked.get(id(key.value.__self__)) or constant(key.value.__self__))
        if keys is None or key.value.__name__ != "__getitem__":
            return t.call_function(Var(POLYFILLS[sorted]), args, kwargs, then)
    else:
        keys = items
    if not all(t.foldable(x) for x in keys):
        raise Break("sorting by values that are not known", fn, args, kwargs)
    raw = [t.known(x) for x in keys]
    places = [t.known(x) for x in items] if key.value is not None else range(len(items))
    order = t.do(sorted, places, key=raw.__getitem__, reverse=t.known(reverse))
    return t.deliver(
        then, t.new_list([Var(i) if key.value is not None else items[i] for i in order])
    )


def on_str(t, fn, args, kwargs, then):
    if not args or t.foldable(args[0]):
        return t.deliver(then, Var(t.do(fn.value, *(t.known(x) for x in args))))
    cls = type(t.typed(args[0]))
    if isinstance(args[0].value, BaseException) and t.says_the_same(args[0], fn.value):
        return t.deliver(then, Var(fn.value(args[0].value)))
    names = ("__str__", "__repr__") if fn.value is str else ("__repr__",)
    for name in names:
        method, _ = static_lookup(cls, name)
        if isinstance(method, types.FunctionType):
            return t.call(Var(method), args, {}, then)
        if method is not MISSING and method is not object.__str__:
            break
    raise Break(f"the text of a {cls.__name__}", fn, args)


def on_globals(t, fn, args, kwargs, then):
    raise Break(f"call of {fn.value.__name__}", None)


def on_print(t, fn, args, kwargs, then):
    raise Break(
        "call of print",
        fn,
        args,
        kwargs,
        hint="print after the captured function, or accept the break",
    )


def on_operator(t, fn, args, kwargs, then):
    f = fn.value
    if f is operator.getitem:
        return t.get_item(args[0], args[1], then)
    if f is operator.contains:
        return t.contains(args[0], args[1], False, then)
    if f is operator.setitem:
        t.set_item(*args)
        return t.deliver(then, Var(None))
    if f is operator.not_:
        return t.truth(args[0], lambda t2, flag: t2.deliver(then, Var(not flag)))
    if f is operator.truth:
        return t.truth(args[0], lambda t2, flag: t2.deliver(then, Var(flag)))
    return t.deliver(then, Var(t.identical(args[0], args[1]) is (f is operator.is_)))


def on_number(t, fn, args, kwargs, then):
    """int(x), float(x)."""
    if len(args) == 1 and t.is_number_call(args):
        return t.deliver(then, t.number(fn.value, args))
    if all(t.foldable(x) for x in (*args, *kwargs.values())):
        return t.deliver(
            then,
            Var(
                t.do(
                    fn.value,
                    *(t.known(x) for x in args),
                    **{k: t.known(v) for k, v in kwargs.items()},
                )
            ),
        )
    method, _ = static_lookup(type(args[0].value), f"__{fn.value.__name__}__")
    if isinstance(method, types.FunctionType) and not t.is_tensor(args[0]):
        return t.call(Var(method), args, {}, then)
    raise Break(f"{fn.value.__name__} of a {type(args[0].value).__name__}", fn, args, kwargs)


def on_object(t, fn, args, kwargs, then):
    return t.deliver(then, t.track(Var(object(), Made("object", object), {})))


def on_property(t, fn, args, kwargs, then):
    raise Break(f"making a {fn.value.__name__}", fn, args, kwargs)


def on_method_type(t, fn, args, kwargs, then):
    return t.deliver(then, t.bound(args[1], args[0]))


CLASSES = {
    bool: on_bool, list: on_sequence(as_list), tuple: on_sequence(lambda t,
    items: t.new_tuple(items)),
    set: on_sequence(lambda t, items: t.new_set(items)), dict: on_dict(dict),
    OrderedDict: on_dict(OrderedDict),
    enumerate: on_enumerate, zip: on_zip, map: on_map, filter: on_map, reversed: on_reversed,
    super: on_super,
    type: on_type, str: on_str, int: on_number, float: on_number, object: on_object,
    property: on_property,
    itertools.chain: on_map, itertools.islice: on_map, itertools.repeat: on_map,
    itertools.count: on_map,
    itertools.accumulate: on_map, itertools.starmap: on_map, itertools.product: on_map,
    types.MethodType: on_method_type, deque: on_property, defaultdict: on_property,
}  # fmt: skip
CLASSES |= dict.fromkeys(
    (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement),
    on_choices,
)
CLASSES |= {f: on_map for f in POLYFILLS if isinstance(f, type)}
for pure_class in (range, complex, bytes, frozenset, slice):

    def on_pure(t, fn, args, kwargs, then):
        if fn.value is slice:
            return t.deliver(then, Var(slice(*(x.value for x in args)), Made("call", fn, args)))
        if fn.value is frozenset and args:
            items = t.sequence(args[0])
            if items is not None:
                return t.deliver(then, Var(frozenset(t.known_key(x) for x in items)))
        if all(t.foldable(x) for x in (*args, *kwargs.values())):
            return t.deliver(
                then,
                Var(
                    t.do(
                        fn.value,
                        *(t.known(x) for x in args),
                        **{k: t.known(v) for k, v in kwargs.items()},
                    )
                ),
            )
        raise Break(f"making a {fn.value.__name__}", fn, args, kwargs)

    CLASSES[pure_class] = on_pure
BUILTINS = {
    isinstance: on_isinstance, len: on_len, getattr: on_getattr, hasattr: on_hasattr,
    setattr: on_setattr,
    delattr: on_setattr, iter: on_iter, next: on_next, id: on_id, callable: on_callable,
    min: on_min_max,
    max: on_min_max, sorted: on_sorted, repr: on_str, globals: on_globals, locals: on_globals,
    print: on_print, operator.getitem: on_operator, operator.contains: on_operator,
    operator.setitem: on_operator, operator.not_: on_operator, operator.truth: on_operator,
    operator.is_: on_operator, operator.is_not: on_operator,
}  # fmt: skip
for unsafe in ("vars", "dir", "eval", "exec", "input", "open", "breakpoint", "compile"):
    BUILTINS[getattr(builtins, unsafe)] = on_globals
BUILTINS[vars] = BUILTINS[dir] = lambda t, fn, args, kwargs, then: (_ for _ in ()).throw(
    Break(f"call of {fn.value.__name__}", fn if args else None, args))  # fmt: skip
for native in (input, open):
    BUILTINS[native] = lambda t, fn, args, kwargs, then: (_ for _ in ()).throw(
        Break(f"call of {fn.value.__name__}", fn, args, kwargs))  # fmt: skip
NATIVES = {polyfill: f for f, polyfill in POLYFILLS.items()}
NATIVES |= {enumerate_of: enumerate, zip_of: zip}
COMPARISONS = {operator.lt, operator.gt, operator.le, operator.ge, operator.eq, operator.ne}
CACHED = type(functools.lru_cache(len))
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
UNARY = {operator.neg, operator.pos, operator.invert}
OPERATORS = {*REVERSED, *IN_PLACE}
SET_ALGEBRA = {
    "union",
    "intersection",
    "difference",
    "symmetric_difference",
    "issubset",
    "issuperset",
    "isdisjoint",
}
SET_OPERATORS = {operator.or_: "union", operator.and_: "intersection", operator.sub: "difference",
                 operator.xor: "symmetric_difference"}  # fmt: skip
BUILTIN_KINDS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                 types.MethodWrapperType, types.ClassMethodDescriptorType,
                 type(functools.reduce))  # fmt: skip
