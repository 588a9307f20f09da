"""Expressions for the Vars that a replacement reads and makes, and the statements before them."""

import copy
import sys
import types
from collections import OrderedDict, defaultdict
from contextlib import suppress
from types import CodeType
from typing import Any

from glasshouse.capture.bytecode.tracebacks import error_part, set_error_part, without_locals
from glasshouse.capture.frames.frame import CapturedGenerator
from glasshouse.capture.rules.constants import is_plain
from glasshouse.capture.trace.tracer import CaptureTracer
from glasshouse.capture.values.plain import (
    attribute_of_c,
    bound_to,
    builtin_base,
    is_native,
    is_small,
    own_dict,
    static_lookup,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import (
    STEPS,
    CannotRebuild,
    Kwargs,
    NewNumber,
    SymbolicNumber,
    ValueSource,
    Var,
    stored,
)
from glasshouse.ir.node import IRNode

MAX_NESTED = 100  # of new things in one another
MOST_TRIED = 32  # sizes of a set's table, to find the one that gives its order
LITERALS = (int, bool, str, type(None))


def is_literal(value: Any) -> bool:
    """Whether a constant is written as a literal: CPython has one object for all equal ones."""
    if type(value) is str:
        return value.isidentifier() and sys.intern(value) is value
    return type(value) in LITERALS and (type(value) is not int or is_small(value))


def annotate(fn: types.FunctionType, flat: Any) -> None:
    """Give a new function its annotations: names and values in turn, or a dict."""
    fn.__annotations__ = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2]))


def set_of(*elements: Any) -> set[Any]:
    """A set made by adding these elements in order."""
    result = set()
    for x in elements:
        result.add(x)
    return result


def grown_set_of(count: int, *elements: Any) -> set[Any]:
    """A set made by adding these elements, then the first of them again, at once: its table has
    room for as many more, as that of a union of sets that overlap."""
    result = set_of(*elements)
    result |= set(elements[:count])
    return result


def may_be_fetched(source: ValueSource) -> bool:
    """Whether guards can hand over the value at a source without a reference to it."""
    step: ValueSource | None = source
    while step is not None and step.kind not in ("attr", "handled"):
        step = step.base
    return step is None


class ValueEmitter:
    """Writes statements that repeat the reads, new values and writes of a trace; `names` has the
    values of the names in them."""

    def __init__(self, tracer: "CaptureTracer") -> None:
        self.tracer = tracer
        self.names: dict[str, object] = {}
        self.pooled: dict[int, str] = {}
        self.reads: list[str] = []
        self.makes: list[str] = []  # before the effects
        self.after_effects: list[str] | None = None  # once the effects are written
        self.variables: dict[int, str] = {}
        self.referents: list[Any] = []  # keeps ids valid
        self.outputs: dict[IRNode, int] = {}
        self.output_vars: list[Var] = []
        self.busy: set[int] = set()
        self.unfilled: list[Var] = []  # cells that were made
        self.fetches: Any = tracer.front.computes_for_real
        self.fetched: list[ValueSource] = []  # values that the guards have read and hand over

    # -- names -----------------------------------------------------------------------------------

    def pool(self, value: Any) -> str:
        """A name for a constant."""
        if is_literal(value):
            return repr(value)
        name = self.pooled.get(id(value))
        if name is None:
            name = self.pooled[id(value)] = f"c{len(self.pooled)}"
            self.names[name] = value
        return name

    def fresh(self, var: Var | object) -> str:
        name = f"v{len(self.variables)}"
        self.variables[id(var)] = name
        self.referents.append(var)
        return name

    def source(self, source: ValueSource) -> str:
        """The local variable with the value at a source, read before anything is written."""
        variable = self.variables.get(id(source))
        if variable is not None:
            return variable
        if source.kind == "slot":
            return f"s{source.key}"
        if source.kind == "const":
            return self.pool(source.key)
        if source.kind == "handled":
            name = self.fresh(source)
            self.reads.append(f"{name} = {self.pool(sys.exc_info)}()[1]")
            return name
        if self.fetches and may_be_fetched(source):
            self.fetched.append(source)
            return self.fresh(source)
        base = self.source(source.base)
        key = self.pool(source.key) if source.kind == "get" else source.key
        text = STEPS[source.kind][0].format(base, key)
        if source.kind == "get" and self.has_own(source.base, "__getitem__"):
            text = f"{self.pool(dict.__getitem__)}({base}, {key})"
        if source.kind in ("dict", "attr") and self.has_own(source.base, "__getattribute__"):
            name = "__dict__" if source.kind == "dict" else key
            text = f"{self.pool(attribute_of_c)}({base}, {name!r})"
        if source.kind == "lookup":
            text = f"{self.pool(stored)}({base}, {key!r})"
        name = self.fresh(source)
        self.reads.append(f"{name} = {text}")
        return name

    def has_own(self, source: ValueSource, method: str) -> bool:
        """Whether the class of the value at a source has a special method in Python."""
        guard = self.tracer.guards.guards.get(("type", source, None))
        return guard is not None and not is_native(*static_lookup(guard.value, method))

    def name(self, var: Var) -> str:
        """An expression for a Var."""
        variable = self.variables.get(id(var))
        if variable is not None:
            return variable
        origin = var.origin
        if isinstance(origin, ValueSource):
            return self.source(origin)
        if origin is None:
            if isinstance(var.value, CapturedGenerator):
                raise CannotRebuild("a generator", var.value.site)
            if isinstance(var, NewNumber):
                name = self.fresh(var)
                self.reads.append(f"{name} = - -{self.pool(var.value)}")  # an equal one
                return name
            return self.pool(var.value)
        if isinstance(origin, IRNode):
            return self.output(var, origin)
        if isinstance(origin, SymbolicNumber):
            return self.number(var, origin)
        if id(var) in self.busy:
            raise CannotRebuild("something new that contains itself")
        if len(self.busy) > MAX_NESTED:
            raise CannotRebuild("something new that is deeply nested")
        self.busy.add(id(var))
        try:
            name = getattr(self, f"make_{origin.kind}")(var, *origin.parts)
        finally:
            self.busy.discard(id(var))
        while self.unfilled and not self.busy:  # a cell may hold a function that refers to it
            cell = self.unfilled.pop()
            if cell.items is not None:
                self.make(f"{self.variables[id(cell)]}.cell_contents = {self.name(cell.items)}")
        return name

    def output(self, var: Var, node: IRNode) -> str:
        if node.op == "placeholder":  # a tensor that was made of an array
            (tensor,) = (x for other, x in self.tracer.operands.inputs if other is node)
            return self.name(tensor)
        at = self.outputs.get(node)
        if at is None:
            at = self.outputs[node] = len(self.outputs)
            self.output_vars.append(var)
        return f"o[{at}]"

    def number(self, var: Var, origin: SymbolicNumber) -> str:
        variable = self.variables.get(id(origin))
        if variable is None:
            text = f"{self.pool(origin.fn)}({', '.join(map(self.name, origin.args))})"
            variable = self.fresh(origin)
            self.reads.append(f"{variable} = {text}")
        return variable

    # -- making ----------------------------------------------------------------------------------

    def make(self, statement: str) -> None:
        """A statement that makes something new, or a part of it."""
        (self.makes if self.after_effects is None else self.after_effects).append(statement)

    def bind(self, var: Var, text: str) -> str:
        name = self.fresh(var)
        self.make(f"{name} = {text}")
        return name

    def listed(self, items: Any) -> str:
        return "".join(f"{self.name(x)}, " for x in items)

    def make_list(self, var: Var) -> str | None:
        return self.bind(var, f"[{self.listed(var.items)}]")

    def make_tuple(self, var: Var, cls: Any = tuple) -> str:
        text = f"({self.listed(var.items)})"
        if cls is not tuple:
            text = f"{self.pool(tuple.__new__)}({self.pool(cls)}, {text})"
        return self.bind(var, text)

    def make_set(self, var: Var) -> str:
        """A set with its elements in the order of the trace, which depends on how it is made."""
        if not var.items:
            return self.bind(var, "set()")
        order = list(var.value)
        if list(set_of(*var.items)) != order:
            copied = frozenset(var.value)
            constant = all(x.origin is None for (x,) in var.items.values())
            if constant and list(set(copied)) == order:
                return self.bind(var, f"set({self.pool(copied)})")
            for count in range(min(len(order), MOST_TRIED) + 1):
                for keys in (var.items, order):
                    if list(grown_set_of(count, *keys)) == order:
                        words = f"{count}, {self.listed(var.items[x][0] for x in keys)}"
                        return self.bind(var, f"{self.pool(grown_set_of)}({words})")
        elements = self.listed(x for (x,) in var.items.values())
        return self.bind(var, f"{self.pool(set_of)}({elements})")

    def make_dict(self, var: Var, cls: Any = dict) -> str:
        ordered = isinstance(var.value, OrderedDict)
        order = [k for k in var.value if k in var.items] if ordered else var.items
        pairs = [(self.name(var.items[k][0]), self.name(var.items[k][1])) for k in order]
        if cls is dict:
            return self.bind(var, "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}")
        name = self.bind(var, f"{self.pool(cls)}([{''.join(f'({k}, {v}), ' for k, v in pairs)}])")
        self.attributes_of_new(var, name)
        return name

    def make_defaultdict(self, var: Var, factory: Any) -> Any:
        pairs = [f"{self.name(k)}: {self.name(v)}" for k, v in var.items.values()]
        text = f"{self.pool(defaultdict)}({self.name(factory)}, {{{', '.join(pairs)}}})"
        return self.bind(var, text)

    def make_sublist(self, var: Var, cls: Any) -> str:
        if any(not isinstance(x, Var) for x in var.items):
            raise CannotRebuild(f"a new {cls.__name__}")
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)})")
        self.make(f"{self.pool(list.extend)}({name}, [{self.listed(var.items)}])")
        self.attributes_of_new(var, name)
        return name

    def attributes_of_new(self, var: Var, name: str) -> None:
        """Set the attributes of a new object whose dict is known."""
        attrs = own_dict(var.value)
        if not attrs:
            return
        table = self.tracer.heap.tracked.get(id(attrs))
        if table is None or table.items is None or table.items.keys() != attrs.keys():
            raise CannotRebuild(f"a new {type(var.value).__name__} with attributes")
        for key in attrs:
            words = f"{name}, {key!r}, {self.name(table.items[key][1])}"
            self.make(f"{self.pool(object.__setattr__)}({words})")

    def make_subdict(self, var: Var, cls: Any) -> str:
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)})")
        base = OrderedDict if issubclass(cls, OrderedDict) else dict
        for key, value in (var.items[k] for k in base.__iter__(var.value)):
            words = f"{name}, {self.name(key)}, {self.name(value)}"
            self.make(f"{self.pool(base.__setitem__)}({words})")
        self.attributes_of_new(var, name)
        return name

    def make_object(self, var: Var, cls: Any) -> str:
        name = self.bind(var, f"{self.pool(object.__new__)}({self.pool(cls)})")
        self.attributes(var, name)
        if id(own_dict(var.value)) in self.tracer.heap.tracked:
            self.attributes_of_new(var, name)
        return name

    def make_attributes(self, var: Var, obj: Any) -> Any:
        return self.bind(var, f"{self.pool(own_dict)}({self.name(obj)})")

    def attributes(self, var: Var, name: str) -> None:
        """Set the attributes that the trace set on something new."""
        if isinstance(var.value, BaseException):
            self.set_chain(var, name)
        for key, value in (var.items or {}).items():
            if value is not None:
                words = f"{name}, {key!r}, {self.name(value)}"
                self.make(f"{self.pool(object.__setattr__)}({words})")

    def set_chain(self, var: Var, name: str) -> None:
        """Set the cause, context and traceback of a new exception."""
        error, texts = var.value, {}
        for part in ("__cause__", "__context__"):
            other = error_part(error, part)
            if other is not None:
                linked = self.tracer.heap.tracked.get(id(other))
                if linked is None or not linked.is_new or id(linked) in self.busy:
                    raise CannotRebuild("an exception that was raised and caught")
                texts[part] = self.name(linked)
        trace = error_part(error, "__traceback__")
        if trace is not None:
            texts["__traceback__"] = self.pool(without_locals(trace))
        if error_part(error, "__suppress_context__"):
            texts["__suppress_context__"] = "True"
        for part, text in texts.items():
            self.make(f"{self.pool(set_error_part)}({name}, {part!r}, {text})")

    def make_call(self, var: Var, fn: Var, args: list[Var], kwargs: Kwargs | None = None) -> str:
        if isinstance(var.value, super):
            return self.bind(var, f"super({self.listed(args)})")
        words = [self.name(x) for x in args]
        words += [f"{k}={self.name(v)}" for k, v in (kwargs or {}).items()]
        name = self.bind(var, f"{self.name(fn)}({', '.join(words)})")
        if isinstance(var.items, dict):
            self.attributes(var, name)
        return name

    def make_property(self, var: Var, cls: Any, args: Any, kwargs: Any) -> Any:
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)})")
        words = [name, *map(self.name, args), *(f"{k}={self.name(v)}" for k, v in kwargs.items())]
        self.make(f"{self.pool(property.__init__)}({', '.join(words)})")
        self.attributes(var, name)
        return name

    def make_exception(self, var: Var, cls: Any, args: Any) -> Any:
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)}, {self.listed(args)})")
        self.make(f"{self.pool(BaseException.__init__)}({name}, {self.listed(args)})")
        self.attributes(var, name)
        return name

    def make_exception_value(self, var: Var) -> str | None:
        """A copy of an exception that an operation raised and somebody caught."""
        error, cls = var.value, type(var.value)
        builtin = next(base for base in cls.__mro__ if base.__module__ == "builtins")
        small = builtin.__basicsize__ == Exception.__basicsize__  # all is in args and attributes
        plain = is_plain(self.tracer, (error_part(error, "args"), own_dict(error)))
        if not plain or not (small or builtin is cls):
            raise CannotRebuild(f"a {cls.__name__} that was raised and caught")
        copier = alike if small else copy.copy
        name = self.bind(var, f"{self.pool(copier)}({self.pool(copier(error))})")
        for part in ("name", "obj"):  # of an AttributeError or NameError
            linked = self.tracer.heap.tracked.get(id(getattr(error, part, None)))
            if linked is not None or isinstance(getattr(error, part, None), str):
                text = self.name(linked) if linked is not None else repr(getattr(error, part))
                self.make(f"{name}.{part} = {text}")
        self.set_chain(var, name)
        return name

    def make_traceback(self, var: Var, error: Any) -> Any:
        return self.bind(var, f'{self.pool(error_part)}({self.name(error)}, "__traceback__")')

    def make_token(self, var: Var, variable: Var, value: Var, before: Any) -> str:
        """The token of setting a context variable, which is set after those set before it."""
        if before is not None:
            self.name(before)
        return self.bind(var, f"{self.name(variable)}.set({self.name(value)})")

    def make_used_token(self, var: Var) -> Any:
        raise CannotRebuild("a token of a context variable that was reset")

    def make_cell(self, var: Var) -> str:
        self.unfilled.append(var)
        return self.bind(var, f"{self.pool(types.CellType)}()")

    def make_function(
        self, var: Var, code: CodeType, names: dict[str, Any], parts: dict[str, Var]
    ) -> str:
        closure = "None"
        if "closure" in parts:
            closure = f"({self.listed(parts['closure'].items)})"
        elif code.co_freevars:  # from 3.13 on another instruction sets the closure
            closure = f"({f'{self.pool(types.CellType)}(), ' * len(code.co_freevars)})"
        words = f"{self.pool(code)}, {self.pool(names)}, {code.co_name!r}, None, {closure}"
        name = self.bind(var, f"{self.pool(types.FunctionType)}({words})")
        for part in ("defaults", "kwdefaults", "annotate"):
            if part in parts:
                self.make(f"{name}.__{part}__ = {self.name(parts[part])}")
        if "annotations" in parts:
            words = f"{name}, {self.name(parts['annotations'])}"
            self.make(f"{self.pool(annotate)}({words})")
        self.attributes(var, name)
        return name

    def make_method(self, var: Var, this: Var, inner: Any) -> str:
        if isinstance(inner, Var):
            if isinstance(var.value, types.MethodType):
                words = f"{self.name(inner)}, {self.name(this)}"
                return self.bind(var, f"{self.pool(types.MethodType)}({words})")
            return self.bind(var, f"{self.pool(bound_to)}({self.name(inner)}, {self.name(this)})")
        return self.bind(var, f"({self.name(this)}).{inner}")

    def make_view(self, var: Var, base: Var, which: str) -> str:
        method = getattr(builtin_base(base.value), which)  # its class may have another
        return self.bind(var, f"{self.pool(method)}({self.name(base)})")

    def make_iterator(self, var: Var) -> str | None:
        fn, *parts = var.value.recipe()
        if self.after_effects is None and any(x.log for x in parts):
            raise CannotRebuild("an iterator over what is written to")  # it sees the present items
        return self.bind(var, f"{self.pool(fn)}({self.listed(parts)})")

    def make_generator(self, var: Var, site: tuple[Any, ...]) -> Any:
        raise CannotRebuild("a generator that is not finished", site)

    # -- effects ---------------------------------------------------------------------------------

    def effects(self) -> list[str]:
        """The statements that repeat the writes of the trace."""
        statements = []
        for var, log in self.tracer.effects.in_order():
            target = self.name(var)
            for kind, *parts in last_writes(log):
                if kind == "token":
                    self.name(parts[0])
                else:
                    statements.append(self.effect(var, target, kind, *parts))
        return statements

    def effect(self, var: Var, target: str, kind: str, *parts: Any) -> str:
        if kind == "method":
            method, args = parts
            container = isinstance(var.value, (list, dict, set))
            if container and not is_native(*static_lookup(type(var.value), method)):
                words = ", ".join([target, *map(self.name, args)])
                return f"{self.pool(getattr(builtin_base(var.value), method))}({words})"
            return f"{target}.{method}({', '.join(map(self.name, args))})"
        *key, value = parts
        if kind == "attr" and value is None:
            return f"{self.pool(delete_attribute)}({target}, {key[0]!r})"
        if kind == "attr":
            setter = type.__setattr__ if isinstance(var.value, type) else object.__setattr__
            return f"{self.pool(setter)}({target}, {key[0]!r}, {self.name(value)})"
        setter = "__delitem__" if value is None else "__setitem__"
        if kind == "item" and not is_native(*static_lookup(type(var.value), setter)):
            words = [target, self.name(key[0]), *([] if value is None else [self.name(value)])]
            base = builtin_base(var.value)
            return f"{self.pool(getattr(base, setter))}({', '.join(words)})"
        place = f"{target}[{self.name(key[0])}]" if kind == "item" else f"{target}.cell_contents"
        return f"del {place}" if value is None else f"{place} = {self.name(value)}"


def last_writes(log: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last write to each place, in the order of the first ones, which decides the order of
    attributes. A place that was deleted and set again is deleted first, so that it comes last."""
    writes: dict[Any, Any] = {}
    for i, entry in enumerate(log):
        place = entry[:2] if entry[0] == "attr" else entry[:1] if entry[0] == "cell" else i
        if entry[0] == "attr" and entry[-1] is None:
            writes.pop(place, None)
            place = place, "deleted"
        writes[place] = entry
    return list(writes.values())


def alike(error: BaseException) -> BaseException:
    """An exception with the arguments and attributes of another, made without its __init__."""
    clone = BaseException.__new__(type(error), *error_part(error, "args"))
    attributes: Any = own_dict(clone)
    attributes.update(own_dict(error))
    return clone


def delete_attribute(obj: Any, name: str) -> None:
    """Delete an attribute if it exists: it may have been set and deleted in one call."""
    with suppress(AttributeError):
        (type if isinstance(obj, type) else object).__delattr__(obj, name)
