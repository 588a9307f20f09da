"""How calls are understood: inlined, folded, put into the graph, or left to Python by a break."""

import builtins
import functools
import operator
import types
from collections import OrderedDict

from glasshouse.base.interrupts import let_through
from glasshouse.capture.builtin_rules import BUILTINS, CLASSES, GETTERS, PURE
from glasshouse.capture.bytecode import GENERATORS, slot_names
from glasshouse.capture.frame import Frame, Generator
from glasshouse.capture.iteration import plain_value
from glasshouse.capture.opcodes import unknown_operation
from glasshouse.capture.operators import OPERATORS, UNARY
from glasshouse.capture.polyfills import (
    POLYFILLS,
    call_named,
    enumerate_of,
    get_attributes,
    get_items,
    zip_of,
)
from glasshouse.capture.values import (
    FUNCTIONS,
    SCALARS,
    Break,
    Made,
    Source,
    Var,
    constant,
    pending,
    static_lookup,
)

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
CACHED = type(functools.lru_cache(len))
BUILTIN_KINDS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                 types.MethodWrapperType, types.ClassMethodDescriptorType,
                 type(functools.reduce))  # fmt: skip

NATIVES = {polyfill: f for f, polyfill in POLYFILLS.items()}
NATIVES |= {enumerate_of: enumerate, zip_of: zip}


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
            if self.all_foldable(args, kwargs):
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
        result = self.known_call(f, args, kwargs)
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
        with let_through():
            return Var(self.do(fn.value, *(x.value for x in args), **values))

    def call_method_object(self, fn: Var, args, kwargs, then):
        """A bound method."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "method":
            this, inner = fn.origin.parts
            return self.call(inner, [this, *args], kwargs, then)
        if fn.origin is None:
            return self.call(Var(fn.value.__func__), [Var(fn.value.__self__), *args], kwargs, then)
        self.typed(fn)
        this = self.load(fn.value.__self__, self.sub(fn, "attr", "__self__"))
        inner = self.load(fn.value.__func__, self.sub(fn, "attr", "__func__"))
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
            parts.append(self.load(getattr(p, name), self.sub(fn, "attr", name)))
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
            return self.deliver(then, constant(self.known_call(f, args, kwargs)))
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
        frame = Frame(code, f.__globals__, len(slot_names(code)))
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
        closure = self.sub(fn, "attr", "__closure__")
        return [
            self.load(cell, self.guards.source("item", closure, i) if closure else None)
            for i, cell in enumerate(cells)
        ]

    def default_of(self, fn: Var, kind: str, key) -> Var:
        """A default argument."""
        if isinstance(fn.origin, Made) and fn.origin.kind == "function":
            parts = fn.origin.parts[2][kind.strip("_")]
            return parts.items[key] if isinstance(key, int) and parts.items else (
                parts.items[key][1] if parts.items else constant(parts.value[key]))  # fmt: skip
        value = getattr(fn.value, kind)[key]
        base = self.sub(fn, "attr", kind)
        if base is None or fn.value.__module__.startswith("glasshouse."):
            return constant(value) if type(value) in SCALARS or isinstance(value,
            FUNCTIONS) else self.load(
                value, self.guards.source("const", None, value, "default"))  # fmt: skip
        step = "item" if isinstance(key, int) else "get"
        return self.load(value, self.guards.source(step, base, key))

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
        if cls in GETTERS and self.all_foldable(args, kwargs):
            return self.give(then, self.known_call(cls, args, kwargs))
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
            if self.all_foldable(args, kwargs):
                return self.give(then, self.known_call(cls, args, kwargs))
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
        bases = (OrderedDict, dict, list)
        base = next((b for b in bases if issubclass(cls, b) and cls.__new__ is b.__new__), None)
        if base is None:
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        kind, how, items = ("list", "extend", []) if base is list else ("dict", "update", {})
        made = self.track(Var(cls.__new__(cls), Made(f"sub{kind}", cls), items))
        if isinstance(init, types.FunctionType):
            return self.inline(Var(init), [made, *args], kwargs, then, made)
        if not args and not kwargs:
            return self.deliver(then, made)
        return self.extend(made, how, *args, then=lambda t, v: t.deliver(then, made), **kwargs)

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
                this = self.load(f.__self__, self.sub(fn, "attr", "__self__"))
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
            return self.deliver(then, constant(self.known_call(f, args, kwargs)))
        if hashable(f) and f in POLYFILLS:
            return self.call_function(Var(POLYFILLS[f]), args, kwargs, then)
        if f in (abs, pow) and not kwargs and self.is_tensor(args[0]):
            return self.deliver(then, self.front.operate(self, f, args))
        if f in OPERATORS and len(args) == 2 and not kwargs:
            return self.binary(f, args[0], args[1], then)
        if f in UNARY and len(args) == 1 and not kwargs:
            return self.unary(f, args[0], then)
        raise Break(f"call of {getattr(f, '__qualname__', f)}", fn, args, kwargs)


def called_natively(f, args, kwargs):
    """f of Vars, with Python's own iterators among them."""
    return f(*map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()})


def hashable(f) -> bool:
    try:
        hash(f)
        return True
    except TypeError:
        return False


def EMPTY():
    pass
