"""Rules of calls: inlined, folded, put into the graph, or left to Python by a break."""

import functools
import gc
import sys
import types
import typing
import weakref
from collections import OrderedDict

from glasshouse.base.interrupts import let_through
from glasshouse.capture.bytecode.instructions import GENERATORS, decoded, original_of, slot_names
from glasshouse.capture.bytecode.skipped import is_skipped
from glasshouse.capture.bytecode.tracebacks import caller_of
from glasshouse.capture.frames.frame import CapturedGenerator, CaptureFrame, plain_value
from glasshouse.capture.frames.polyfill_natives import KINDS
from glasshouse.capture.rules.builtin_rules import (
    BUILTINS,
    CLASSES,
    GETTERS,
    PURE,
    check_count,
)
from glasshouse.capture.rules.frame_readers import FRAME_READERS
from glasshouse.capture.rules.library_rules import fold_numbers, is_of_numbers
from glasshouse.capture.rules.opcodes import COLLECTS, unknown_operation
from glasshouse.capture.rules.operators import OPERATORS, UNARY
from glasshouse.capture.values.plain import (
    CACHED,
    FUNCTIONS,
    MISSING,
    SCALARS,
    is_trusted,
    looks_up_itself,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.polyfills import NATIVES, POLYFILLS
from glasshouse.capture.values.var import (
    Break,
    Recipe,
    ValueSource,
    Var,
    computed,
    constant,
    pending,
)

LOOKS_UP = "an object that looks up its attributes itself"
LIMIT_DEPTH = 120
NO_WORDS: dict[str, Var] = {}
CONTAINERS = (list, tuple, dict, set, frozenset)
MUTABLE = (list, dict, set)
# Functions that show lifetimes of objects, which differ while a function is captured.
LIFETIMES = {weakref.ref, weakref.proxy, weakref.finalize, gc.collect, sys.getrefcount}
BUILTIN_KINDS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    type(functools.reduce),
)


class CallRules:
    """The part of the tracer that calls."""

    @pending
    def call(self, fn: Var, args: list[Var], kwargs: dict[str, Var], then=None):
        """Call; the result goes to `then`, or onto the stack of the frame that runs now."""
        f = fn.value
        if not self.live:
            rule = FRAME_READERS.get(f) if isinstance(f, READER_KINDS) else None
            if rule is not None and not args and not kwargs:
                return self.deliver(then, rule(self))
            return self.deliver(then, self.real_call(fn, args, kwargs))
        if isinstance(f, READER_KINDS) and f in LIFETIMES and all(x.is_new for x in args):
            return self.leave_to_python(f"a call of {f.__name__}", fn, args, kwargs, then)
        frame = self.frames[-1]
        if frame.at in frame.code.opaque:
            if isinstance(f, types.FunctionType):
                fn = Var(NATIVES[f]) if f in NATIVES else fn
            raise Break("a call that could not be captured before", fn, args, kwargs)
        if self.front.call(self, fn, args, kwargs, then):
            return None
        named = fn.is_made("method")
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
            return self.call(Var(self.concretize(fn).fn), args, kwargs, then)
        if isinstance(f, CACHED):
            return self.call_cached(fn, args, kwargs, then)
        if isinstance(f, GETTERS) and len(args) == 1 and not kwargs:
            return self.call_getter(fn, args[0], then)
        method = self.look_up(type(f), "__call__")
        if isinstance(method, types.FunctionType):
            self.typed(fn)
            return self.call(Var(method), [fn, *args], kwargs, then)
        if is_of_numbers(self, f, args, kwargs):
            return fold_numbers(self, fn, args, kwargs, then)
        if not callable(f):
            self.typed(fn)
            return self.give(then, self.do(f))
        raise Break(f"call of a {type(f).__name__}", fn, args, kwargs)

    def fold(self, fn: Var, f, args, kwargs, then):
        """Call a function of constants; the result is a constant."""
        result = self.call_concrete(f, args, kwargs)
        shares = isinstance(result, CONTAINERS) and any(self.holds_new(x) for x in args)
        if not self.is_plain(result) or shares:
            reason = f"{getattr(f, '__name__', f)} gives a {type(result).__name__}"
            raise Break(reason, fn, args, kwargs)
        operands = [x.value for x in (*args, *kwargs.values())]
        return self.deliver(then, computed(result, operands))

    def holds_new(self, var: Var) -> bool:
        """Whether a container holds a mutable object, which a result may share."""
        inside = self.sequence(var) if isinstance(var.value, CONTAINERS) else None
        return any(isinstance(x.value, MUTABLE) or self.holds_new(x) for x in inside or ())

    def is_plain(self, value) -> bool:
        """Whether a value may be kept from one call to the next."""
        if isinstance(value, (list, tuple, set, frozenset)):
            return all(map(self.is_plain, value))
        if type(value) in (dict, OrderedDict):
            return all(self.is_plain(x) for pair in value.items() for x in pair)
        plain = (*SCALARS, *FUNCTIONS, range, slice, types.MethodType, *GETTERS)
        return isinstance(value, plain) or self.front.is_constant(value)

    def leave_to_python(self, reason: str, fn: Var, args, kwargs, then):
        """Do a call in Python, and from their next call on also all running functions."""
        for frame in self.frames:
            decoded(original_of(frame.root)[0]).unknown = frame.code.unknown = reason
        self.stop_learning(reason)
        self.hands_over = False  # a call of a resume function holds its arguments
        return self.call(fn, args, kwargs, then)

    def real_call(self, fn: Var, args, kwargs) -> Var:
        """Have Python make a call; its result."""
        self.hand_over((*args, *kwargs.values()))
        values = {k: v.value for k, v in kwargs.items()}
        with let_through():
            if self.frames:
                call = caller_of(self.frames[-1])
                return Var(self.do(call, fn.value, [x.value for x in args], values))
            return Var(self.do(fn.value, *(x.value for x in args), **values))

    def call_method_object(self, fn: Var, args, kwargs, then):
        """A bound method."""
        if fn.is_made("method"):
            this, inner = fn.origin.parts
            return self.call(inner, [this, *args], kwargs, then)
        if fn.origin is None:
            return self.call(Var(fn.value.__func__), [Var(fn.value.__self__), *args], kwargs, then)
        self.typed(fn)
        this = self.load(fn.value.__self__, self.sub(fn, "attr", "__self__"))
        inner = self.load(fn.value.__func__, self.sub(fn, "attr", "__func__"))
        return self.call(inner, [this, *args], kwargs, then)

    def partial_parts(self, fn: Var):
        """(function and arguments, keywords) of a functools.partial."""
        if fn.is_made("call"):
            _, args, kwargs = (*fn.origin.parts, {})[:3]
            return list(args), dict(kwargs)
        p = fn.value
        self.typed(fn)
        names = ("func", "args", "keywords")
        parts = [self.load(getattr(p, name), self.sub(fn, "attr", name)) for name in names]
        keywords = {k.value: v for k, v in self.entries(parts[2])}
        return [parts[0], *self.sequence(parts[1])], keywords

    # -- Python functions ----------------------------------------------------------------------

    def call_own(self, this: Var, name: str, args, then) -> bool:
        """Call a method that the class defines in Python; False if it has none."""
        method = self.own_method(this, name)
        if method is None:
            return False
        self.call(Var(method), [this, *args], {}, then)
        return True

    def call_function(self, fn: Var, args, kwargs, then):
        """Inline a Python function, or break."""
        f = fn.value
        if f in POLYFILLS or f in BUILTINS or f in self.config.constant_results:
            self.concretize(fn)  # a rule is for the function, not for its code
        if f in POLYFILLS:
            return self.call_polyfill(fn, args, kwargs, then)
        if f in BUILTINS:
            return BUILTINS[f](self, fn, args, kwargs, then)
        if f in self.config.constant_results:
            return self.deliver(then, constant(self.call_concrete(f, args, kwargs)))
        reason = self.why_opaque(f, args, kwargs)
        if reason is None and len(self.frames) > LIMIT_DEPTH:
            reason = "deep recursion"
        if decoded(f.__code__).unknown == COLLECTS:
            return self.leave_to_python(reason, fn, args, kwargs, then)
        self.rely_on_code(fn)
        if reason:
            raise Break(reason, fn, args, kwargs)
        return self.inline(fn, args, kwargs, then)

    def why_opaque(self, f, args=(), kwargs=NO_WORDS) -> str | None:
        """The reason why a call of a function is not captured; None if it is."""
        code = f.__code__
        config = self.config
        off = id(code) in config.disabled or id(f) in config.disallowed
        marked = getattr(f, "__gh_disabled__", False)  # or why
        if off or marked:
            return marked if isinstance(marked, str) else f"{f.__qualname__} is not to be captured"
        if code.co_flags & (0x80 | 0x200):
            return f"{f.__qualname__} is a coroutine"
        module = str(f.__globals__.get("__name__", ""))  # wraps() copies the name of another
        if is_skipped(module, f.__qualname__):
            return f"{module}.{f.__qualname__} is not captured"
        is_left = module.startswith(self.front.left_to_python)
        if is_left and not self.front.looks_into(self, module, args, kwargs):
            return self.front.why_left(f, module)
        missing = unknown_operation(code)
        return f"{f.__qualname__} has {missing}" if missing else None

    def inline(self, fn: Var, args, kwargs, then, init=None):
        """Interpret a call in a new frame."""
        f, code = fn.value, fn.value.__code__
        if self.live and code.co_flags & GENERATORS and self.is_left_open(code):
            return self.leave_generator_to_python(fn, args, kwargs, then)
        if not fn.is_new:
            self.note_read("function", f, "__code__", f)
            self.rely_on_function(f)
        frame = CaptureFrame(code, f.__globals__, len(slot_names(code)))
        self.bind_arguments(fn, frame, args, kwargs)
        closure = self.closure_of(fn)
        count = len(frame.locals) - len(code.co_freevars)
        frame.locals[count:] = closure
        if code.co_flags & GENERATORS:
            operations = [x.op for x in frame.code.instructions]
            frame.ip = operations.index("RETURN_GENERATOR") + 1
            for ins in frame.code.instructions[: frame.ip]:
                if ins.op == "MAKE_CELL":
                    self.op_MAKE_CELL(frame, ins)
            site = self.site()
            make = functools.partial(call_natively, NATIVES.get(f, f), args, kwargs)
            new = CapturedGenerator(frame, site, type(self).untraced, make)
            new.kind, new.is_kept = KINDS.get(f, new.kind), not self.live or self.keeps()
            return self.deliver(then, self.track(Var(new, Recipe("generator", site))))
        frame.then, frame.init = then, init
        self.frames.append(frame)
        return None

    def closure_of(self, fn: Var) -> list[Var]:
        """The cells of a function."""
        if fn.is_made("function"):
            closure = fn.origin.parts[2].get("closure")
            return [] if closure is None else list(closure.items)
        closure, cells = self.sub(fn, "attr", "__closure__"), []
        for i, cell in enumerate(fn.value.__closure__ or ()):
            source = None
            if closure is not None:
                source = self.guards.source("item", closure, i)
            elif self.live:
                source = self.guards.source("const", None, cell, f"cell{i}")
            cells.append(self.load(cell, source))
        return cells

    def default_of(self, fn: Var, kind: str, key) -> Var:
        """A default argument."""
        if fn.is_made("function"):
            defaults = fn.origin.parts[2][kind.strip("_")]
            if not defaults.items:
                return constant(defaults.value[key])
            return defaults.items[key] if isinstance(key, int) else defaults.items[key][1]
        f = fn.value
        value, base = getattr(f, kind)[key], self.sub(fn, "attr", kind)
        if base is None and self.live and not is_trusted(str(f.__module__)):
            place = self.guards.source("const", None, f, f.__name__)
            base = self.guards.source("attr", place, kind)
        if base is None or f.__module__.startswith("glasshouse."):
            return self.load_in(True, value, self.guards.source("const", None, value, "default"))
        step = "item" if isinstance(key, int) else "get"
        return self.load(value, self.guards.source(step, base, key))

    def bind_arguments(self, fn: Var, frame: CaptureFrame, args, kwargs) -> None:
        """Put arguments into a frame's slots: Python binds the Vars."""
        f = fn.value
        code = f.__code__
        named, stars = code.co_argcount + code.co_kwonlyargcount, code.co_flags & 0xC
        names = code.co_varnames[: named + stars.bit_count()]
        taking = ARGUMENTS.replace(
            co_argcount=code.co_argcount,
            co_posonlyargcount=code.co_posonlyargcount,
            co_kwonlyargcount=code.co_kwonlyargcount,
            co_varnames=names,
            co_nlocals=len(names),
            co_flags=ARGUMENTS.co_flags | stars,
            co_name=code.co_name,
        )
        bind = types.FunctionType(taking, {})
        bind.__qualname__ = f.__qualname__
        bind.__defaults__ = tuple(("__defaults__", i) for i in range(len(f.__defaults__ or ())))
        bind.__kwdefaults__ = {name: ("__kwdefaults__", name) for name in f.__kwdefaults__ or ()}
        values = list(self.do(bind, *args, **kwargs).values())
        for i, x in enumerate(values[:named]):
            frame.locals[i] = x if isinstance(x, Var) else self.default_of(fn, *x)
        for i, x in enumerate(values[named:], named):
            pairs = type(x) is dict and ((Var(k), v) for k, v in x.items())
            frame.locals[i] = self.new_dict(pairs) if pairs else self.new_tuple(x)

    # -- classes -------------------------------------------------------------------------------

    def call_class(self, fn: Var, args, kwargs, then):
        """Make an instance."""
        cls = self.concretize(fn)
        special = CLASSES.get(cls)
        if special is not None:
            check_count(fn, args, kwargs)
            return special(self, fn, args, kwargs, then)
        if cls in POLYFILLS:
            return self.call_polyfill(fn, args, kwargs, then)
        if cls in GETTERS and self.all_foldable(args, kwargs):
            return self.give(then, self.call_concrete(cls, args, kwargs))
        if cls is functools.partial:
            if not args[0].is_new:
                self.rely_on_code(args[0])
            words = {k: v.value for k, v in kwargs.items()}
            result = functools.partial(*(x.value for x in args), **words)
            return self.deliver(then, self.track(Var(result, Recipe("call", fn, args, kwargs), {})))
        meta = self.look_up(type(cls), "__call__")
        if meta is not type.__dict__["__call__"]:
            return self.call_metaclass(fn, meta, args, kwargs, then)
        return self.instantiate(fn, cls, args, kwargs, then)

    def call_metaclass(self, fn: Var, meta, args, kwargs, then):
        """Call a class whose metaclass defines its call: the result is a member of an enumeration,
        or what the metaclass makes, which is new in each call."""
        cls = fn.value
        if typing.is_typeddict(cls):
            return self.call(Var(dict), args, kwargs, then)
        members = getattr(cls, "__members__", None)  # pybind11's enumerations have it too
        if members and self.all_foldable(args, kwargs):
            member = self.call_concrete(cls, args, kwargs)
            if isinstance(member, cls):
                return self.member_for(fn, args, kwargs, member, then)
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        if isinstance(meta, types.FunctionType):
            return self.call(Var(meta), [fn, *args], kwargs, then)
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)

    def instantiate(self, fn: Var, cls: type, args, kwargs, then):
        """Make an object of a user's class: __new__, then __init__, inlined."""
        if len(self.frames) > LIMIT_DEPTH:
            raise Break("deep recursion", fn, args, kwargs)
        if self.look_up(cls, "__del__") is not MISSING:
            return self.leave_to_python(f"a {cls.__name__} with __del__", fn, args, kwargs, then)
        if looks_up_itself(cls):
            for frame in self.frames:
                decoded(original_of(frame.root)[0]).unknown = frame.code.unknown = LOOKS_UP
            raise Break(f"a {cls.__name__}, which looks up its attributes itself")
        new, init = (self.look_up(cls, name) for name in ("__new__", "__init__"))
        new = new.__func__ if isinstance(new, staticmethod) else new
        if issubclass(cls, BaseException):
            return self.make_exception(fn, cls, init, args, kwargs, then)
        if isinstance(new, types.FunctionType):

            def initialise(tracer, obj):
                kind = type(obj.value)
                begin = tracer.look_up(kind, "__init__") if issubclass(kind, cls) else None
                if isinstance(begin, types.FunctionType):
                    return tracer.inline(Var(begin), [obj, *args], kwargs, then, obj)
                if begin not in (None, object.__init__):
                    finish = lambda t, v: t.deliver(then, obj)  # noqa: E731
                    return tracer.call(Var(begin), [obj, *args], kwargs, finish)
                return tracer.deliver(then, obj)

            return self.call(Var(new), [fn, *args], kwargs, initialise)
        if new is not object.__new__:
            return self.make_builtin(fn, cls, init, args, kwargs, then)
        instance = self.track(Var(self.do(object.__new__, cls), Recipe("object", cls), {}))
        if isinstance(init, types.FunctionType):
            reason = self.why_opaque(init, args, kwargs)
            if reason:
                hint = reason.partition(": ")[2]
                raise Break(f"making a {cls.__name__}", fn, args, kwargs, hint=hint)
            return self.inline(Var(init), [instance, *args], kwargs, then, instance)
        if init is object.__init__:
            if args or kwargs:
                self.do(cls, *map(plain_value, args), **kwargs)  # raises
            return self.deliver(then, instance)
        raise Break(f"making a {cls.__name__}", fn, args, kwargs)

    def says_the_same(self, error: Var, how) -> bool:
        """Whether str or repr of an exception is the same in each call."""
        value, origin = error.value, error.origin
        method = self.look_up(type(value), f"__{how.__name__}__")
        if isinstance(method, types.FunctionType) or not isinstance(origin, Recipe):
            return False
        if origin.kind == "exception_value":
            return self.is_plain(value.args)
        parts = origin.parts[1] if origin.kind in ("call", "exception") else [error]
        if not all(map(self.foldable, parts)):
            return False
        for part in parts:
            self.concretize(part)
        return True

    def make_exception(self, fn, cls, init, args, kwargs, then):
        """Make an exception, by a call of its class if that runs no user code."""
        if isinstance(init, types.FunctionType):
            value = self.do(cls.__new__, cls, *(x.value for x in args))
            base = Var(value, Recipe("exception", cls, args), {})
            return self.inline(Var(init), [self.track(base), *args], kwargs, then, base)
        value = self.do(cls, *(x.value for x in args), **{k: v.value for k, v in kwargs.items()})
        return self.deliver(then, self.track(Var(value, Recipe("call", fn, args, kwargs), {})))

    def make_builtin(self, fn, cls, init, args, kwargs, then):
        """Make an instance of a subclass of a builtin container or of property."""
        if cls.__new__ is property.__new__:
            obj = self.track(Var(cls.__new__(cls), Recipe("property", cls, [], {}), {}))
            return self.call(Var(init), [obj, *args], kwargs, lambda t, _: t.deliver(then, obj))
        bases = (OrderedDict, dict, list)
        base = next((b for b in bases if issubclass(cls, b) and cls.__new__ is b.__new__), None)
        if base is None:
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)
        kind, how, items = ("list", "extend", []) if base is list else ("dict", "update", {})
        obj = self.track(Var(cls.__new__(cls), Recipe(f"sub{kind}", cls), items))
        if isinstance(init, types.FunctionType):
            return self.inline(Var(init), [obj, *args], kwargs, then, obj)
        if not args and not kwargs and issubclass(cls, getattr(init, "__objclass__", type)):
            return self.deliver(then, obj)
        if base is list and (kwargs or len(args) > 1):
            return self.deliver(then, self.real_call(fn, args, kwargs))  # raises
        setter = self.look_up(cls, "__setitem__")  # which OrderedDict calls
        if init is not base.__init__ or base is OrderedDict and setter is not base.__setitem__:
            raise Break(f"making a {cls.__name__}", fn, args, kwargs)  # as defaultdict does
        return self.extend(obj, how, *args, then=lambda t, v: t.deliver(then, obj), **kwargs)

    # -- builtins ------------------------------------------------------------------------------

    def call_builtin(self, fn: Var, args, kwargs, then):
        """Call a builtin function: by a rule, folded, or with a break."""
        f = fn.value
        owner = getattr(f, "__self__", None)
        bound = owner is not None and not isinstance(owner, types.ModuleType)
        if isinstance(fn.origin, ValueSource) and (not bound or isinstance(owner, type)):
            self.guards.add("is", fn.origin, f)
        if f in BUILTINS:
            check_count(fn, args, kwargs)
            return BUILTINS[f](self, fn, args, kwargs, then)
        number = self.of_numbers(f, args) if self.is_number_call(args) and not kwargs else None
        if number is not None:
            return self.deliver(then, number)
        result = self.front.of_held_numbers(self, f, args) if f in PURE and not kwargs else None
        if result is not None:
            return self.deliver(then, result)
        if f in PURE and self.all_foldable(args, kwargs):
            return self.fold(fn, f, args, kwargs, then)
        if f in POLYFILLS:
            return self.call_polyfill(fn, args, kwargs, then)
        if bound:
            if isinstance(fn.origin, ValueSource):
                this = self.load(owner, self.sub(fn, "attr", "__self__"))
            elif isinstance(owner, MUTABLE):  # shared by all calls
                this = self.load(owner, self.guards.source("const", None, owner, "owner"))
            else:
                this = self.tracked.get(id(owner)) or constant(owner)
            return self.builtin_method(fn, this, f.__name__, args, kwargs, then)
        if isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            return self.builtin_method(fn, args[0], f.__name__, args[1:], kwargs, then)
        if f in (abs, pow) and not kwargs and self.is_tensor(args[0]):
            return self.deliver(then, self.front.operate(self, f, args))
        if f in OPERATORS and len(args) == 2 and not kwargs:
            return self.binary(f, args[0], args[1], then)
        if f in UNARY and len(args) == 1 and not kwargs:
            return self.unary(f, args[0], then)
        raise Break(f"call of {getattr(f, '__qualname__', f)}", fn, args, kwargs)


READER_KINDS = (type, types.BuiltinFunctionType)


def call_natively(f, args, kwargs):
    """f of Vars, with Python's own iterators among them."""
    return f(*map(plain_value, args), **{k: plain_value(v) for k, v in kwargs.items()})


def arguments():
    return locals()


ARGUMENTS = arguments.__code__  # with the parameters of another function it binds like that
