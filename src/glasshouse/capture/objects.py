"""Reading and writing containers, attributes, cells and globals, with guards on what was read and a
log of what was written."""

import builtins
import functools
import types
from collections import OrderedDict

from glasshouse.capture.frame import END, Enumerate, Generator, Iterator, Over, Zip
from glasshouse.capture.guards import GuardSet
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


def pending(method):
    """A method whose last argument `then` gets the result: a Break within it remembers that."""
    code = method.__code__
    place = code.co_varnames[: code.co_argcount].index("then")

    @functools.wraps(method)
    def wrapped(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Break as found:
            then = (
                kwargs["then"] if "then" in kwargs else args[place] if len(args) > place else None
            )
            if then is not None and found.then is None and not found.settled:
                found.then = then
            raise

    return wrapped


class Objects:
    """The part of the tracer that knows Python's data model."""

    guards: GuardSet

    # -- guards --------------------------------------------------------------------------------

    def typed(self, var: Var):
        """The value, whose type is relied on."""
        if self.live and isinstance(var.origin, Source) and not self.guards.has("eq", var.origin):
            self.guards.add("type", var.origin, type(var.value))
        return var.value

    def known(self, var: Var):
        """The value, which is relied on.

        Raises:  Break if it is computed by the graph
        """
        value, origin = var.value, var.origin
        if not self.live or origin is None:
            return value
        if isinstance(origin, Source):
            if isinstance(value, (tuple, list, set, frozenset)) and type(value) in (
                tuple,
                list,
                set,
            ):
                for item in self.sequence(var):
                    self.known(item)
            elif type(value) is types.FunctionType and self.is_passed(origin):
                code = self.guards.source("attr", origin, "__code__")
                self.guards.add("is", code, value.__code__)
            else:
                single = value is None or type(value) is bool
                kind = "eq" if not single and compares(value) else "is"
                self.guards.add(kind, origin, value)
        elif isinstance(origin, Number):
            for arg in origin.args:
                self.known(arg)
        elif isinstance(origin, Made):
            self.known_parts(var)
        elif type(value) in (int, bool, tuple):  # made of sizes: from here on, of these
            self.fix_sizes()
        else:
            raise Break("a value that the graph computes is needed", None)
        return value

    def fix_sizes(self) -> None:
        """Rely on every size that was let free."""
        for _, var in list(self.inputs):
            if self.is_tensor(var):
                for item in self.sequence(self.front.metadata(self, var, "shape")):
                    self.known(item)

    def known_parts(self, var: Var) -> None:
        """Rely on everything that something new is made of."""
        made = var.origin
        if made.kind in ("list", "tuple", "set"):
            for item in self.sequence(var):
                self.known(item)
        elif made.kind == "dict":
            for key, value in self.entries(var):
                self.known(key)
                self.known(value)
        elif made.kind == "call":
            self.known(made.parts[0])
            for part in made.parts[1]:
                self.known(part)
        elif made.kind not in ("function", "method", "object", "traceback"):
            raise Break(f"a new {made.kind} is needed as a constant", None)

    def is_passed(self, source: Source) -> bool:
        """Whether a source starts at an argument."""
        while source.base is not None:
            source = source.base
        return source.kind == "slot"

    def foldable(self, var: Var) -> bool:
        """Whether a value may be relied on without making the graph too special."""
        value, origin = var.value, var.origin
        if isinstance(origin, (Number, Node)) and type(value) in (int, bool) or self.varies(var):
            return True
        if self.is_tensor(var):
            return False
        if isinstance(origin, Made):
            if origin.kind in ("tuple", "list", "set"):
                return all(self.foldable(x) for x in self.sequence(var))
            if origin.kind == "dict":
                return all(self.foldable(v) for _, v in self.entries(var))
            return origin.kind == "call" and all(self.foldable(x) for x in origin.parts[1])
        if origin is None:
            return not isinstance(value, Generator)
        if isinstance(origin, Source):
            if type(value) is tuple:
                return all(self.foldable(x) for x in self.sequence(var))
            return (
                type(value) in SCALARS
                or isinstance(value, FUNCTIONS)
                or self.front.is_constant(value)
            )
        return False

    def all_foldable(self, args, kwargs=None) -> bool:
        return all(map(self.foldable, (*args, *(kwargs or {}).values())))

    def known_call(self, fn, args, kwargs=None):
        """fn of values that are relied on."""
        words = {k: self.known(v) for k, v in (kwargs or {}).items()}
        return self.do(fn, *map(self.known, args), **words)

    def varies(self, var: Var) -> bool:
        """Whether a number may be another one in a later call."""
        if isinstance(var.origin, Number):
            return True
        if (
            type(var.value) not in (int, float)
            or not isinstance(var.origin, Source)
            or not self.live
        ):
            return False
        if self.guards.has("eq", var.origin):
            return False
        return self.is_dynamic(var.origin)

    def identical(self, lhs: Var, rhs: Var) -> bool:
        """lhs is rhs, guarded."""
        same = lhs.value is rhs.value
        if not self.live or lhs is rhs:
            return same
        single = (bool, type(None), type(Ellipsis), type(NotImplemented))
        for var, other in ((lhs, rhs), (rhs, lhs)):
            if type(other.value) in single and isinstance(var.origin, Source):
                if type(var.value) in single:
                    self.guards.add("is", var.origin, var.value)
                else:
                    self.typed(var)
                return same
        sources = [x for x in (lhs, rhs) if isinstance(x.origin, Source)]
        if len(sources) == 2:
            if type(lhs.value) in SCALARS or isinstance(lhs.value, FUNCTIONS):
                self.known(lhs), self.known(rhs)
            else:
                self.guards.add("same" if same else "distinct", lhs.origin, rhs.origin)
        elif sources and (lhs.origin is None or rhs.origin is None):
            if same or isinstance(sources[0].value, FUNCTIONS) or type(sources[0].value) in SCALARS:
                self.known(sources[0])
            else:
                self.typed(sources[0])
        return same

    # -- loading -------------------------------------------------------------------------------

    def load(self, value, source: Source | None) -> Var:
        """What was read at a source; one Var for one object."""
        if self.live and source is not None and source.kind in ("get", "cell", "attr"):
            self.guards.read.append(source)
        if (
            not self.live
            or source is None
            or type(value) in SCALARS
            or isinstance(value, FUNCTIONS)
        ):
            return Var(value, source)
        found = self.tracked.get(id(value))
        if found is None:
            found = Var(value, source)
            self.tracked[id(value)] = found
            return found
        if isinstance(found.origin, Source) and found.origin is not source:
            self.guards.add("same", source, found.origin)
        elif found.origin is not source:
            pass  # made in this trace and stored where it is now read
        return found

    def track(self, var: Var) -> Var:
        """Remember something new by its identity."""
        self.tracked[id(var.value)] = var
        return var

    def sub(self, var: Var, kind: str, key=None) -> Source | None:
        """The source of a part of what is at a source."""
        if not self.live or not isinstance(var.origin, Source):
            return None
        return self.guards.source(kind, var.origin, key)

    def dict_of(self, var: Var) -> Source | None:
        return self.sub(var, "dict", None)

    def entry_source(self, base: Source | None, key) -> Source | None:
        return None if base is None or not self.live else self.guards.source("get", base, key)

    # -- making --------------------------------------------------------------------------------

    def new_tuple(self, items: list[Var], cls=tuple) -> Var:
        values = tuple(x.value for x in items)
        if cls is not tuple:
            return self.track(Var(tuple.__new__(cls, values), Made("tuple", cls), list(items)))
        if all(x.origin is None and x.items is None for x in items):
            return Var(values, None, list(items))
        return Var(values, Made("tuple"), list(items))

    def new_list(self, items: list[Var]) -> Var:
        return self.track(Var([x.value for x in items], Made("list"), list(items)))

    def new_dict(self, pairs, cls=dict) -> Var:
        items = {}
        for key, value in pairs:
            items[self.known_key(key)] = (key, value)
        return self.track(
            Var(cls((k, v.value) for k, (_, v) in items.items()), Made("dict", cls), items)
        )

    def new_set(self, elements: list[Var]) -> Var:
        items = {self.known_key(x): (x,) for x in elements}
        return self.track(Var({x.value for x in elements}, Made("set"), items))

    def new_cell(self, content: Var | None) -> Var:
        cell = types.CellType() if content is None else types.CellType(content.value)
        return self.track(Var(cell, Made("cell"), content))

    def new_function(self, f, code, parts: dict) -> Var:
        # Python 3.13 sets the closure later.
        closure = tuple(types.CellType() for _ in code.co_freevars)
        if "closure" in parts:
            closure = tuple(x.value for x in parts["closure"].items)
        fn = types.FunctionType(code, f.globals, code.co_name, None, closure)
        if "defaults" in parts:
            fn.__defaults__ = tuple(parts["defaults"].value)
        if "kwdefaults" in parts:
            fn.__kwdefaults__ = dict(parts["kwdefaults"].value)
        if "annotations" in parts:
            flat = parts["annotations"].value
            fn.__annotations__ = (
                dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, tuple) else flat
            )
        return self.track(Var(fn, Made("function", code, f.globals, parts), {}))

    def known_key(self, var: Var):
        """A dict key: a constant, or an object that is relied on to be the same one."""
        if self.live and isinstance(var.origin, Source):
            if type(var.value) in SCALARS or type(var.value) is tuple:
                return self.known(var)
            self.guards.add("is", var.origin, var.value)
        elif self.live and isinstance(var.origin, Made) and type(var.value) is tuple:
            self.known(var)
        elif self.live and var.origin is not None and not isinstance(var.origin, Made):
            if isinstance(var.origin, Number):
                return self.known(var)
            raise Break("a tensor that the graph computes is used as a key", None)
        return var.value

    # -- cells and globals ---------------------------------------------------------------------

    def cell_get(self, cell: Var, name: str) -> Var:
        if isinstance(cell.items, Var):
            return cell.items
        try:
            value = cell.value.cell_contents
        except ValueError:
            text = (
                f"cannot access free variable '{name}' where it is not associated with a value in "
                "enclosing scope"
            )
            raise Break("an unset cell is read", Var(raise_name_error), [Var(text)]) from None
        return self.load(value, self.sub(cell, "cell", None))

    def cell_set(self, cell: Var, var: Var | None) -> None:
        if var is None:
            del cell.value.cell_contents
        else:
            cell.value.cell_contents = var.value
        cell.items = var if self.live else None
        if not cell.is_new:
            self.write(cell, ("cell", var))

    def write(self, var: Var, entry: tuple) -> None:
        """Note that something that is not new was written to."""
        if not self.live:
            return
        if var.log is None:
            var.log = []
            self.written.append(var)
        var.log.append(entry)

    def load_global(self, f, name: str) -> Var:
        scope = self.globals_var(f.globals)
        if name in scope.items:
            found = scope.items[name]
            if found is not None:
                return found
        elif name in f.globals:
            value = f.globals[name]
            if f.trusted:
                return Var(value) if type(value) in SCALARS or isinstance(value,
                FUNCTIONS) else self.load(
                    value, self.guards.source("const", None, value, name))  # fmt: skip
            return self.load(value, self.entry_source(scope.origin, name))
        table = f.globals.get("__builtins__", builtins)
        table = table if isinstance(table, dict) else table.__dict__
        if name not in table:
            self.fail(NameError(f"name '{name}' is not defined"))
        if self.live and not f.trusted and scope.items.get(name, MISSING) is MISSING:
            self.guards.add("absent", scope.origin, name)
        return Var(table[name])

    def globals_var(self, names: dict) -> Var:
        """The Var of a module's globals."""
        found = self.scopes.get(id(names))
        if found is None:
            source = self.guards.source("const", None, names, "G")
            found = self.scopes[id(names)] = Var(names, source, {})
        return found

    def store_global(self, f, name: str, var: Var | None) -> None:
        scope = self.globals_var(f.globals)
        if var is None:
            self.do(f.globals.__delitem__, name)
        else:
            f.globals[name] = var.value
        if self.live:
            scope.items[name] = var
        self.write(scope, ("item", Var(name), var))

    # -- containers ----------------------------------------------------------------------------

    def sequence(self, var: Var) -> list[Var] | None:
        """The items as Vars, where they are known without running the user's code; else None."""
        value = var.value
        kind = type(value)
        if not self.live and isinstance(value, (list, tuple, set, frozenset, dict)):
            return [Var(x) for x in value]
        if var.items is not None and isinstance(value, (list, tuple)):
            return var.items
        if isinstance(value, (list, tuple)) and (
            kind in (list, tuple) or kind.__iter__ in (list.__iter__, tuple.__iter__)
        ):
            self.typed(var)
            if self.live and isinstance(var.origin, Source):
                self.guards.add("len", var.origin, len(value))
            var.items = [self.load(x, self.sub(var, "item", i)) for i, x in enumerate(value)]
            return var.items
        if kind in (str, range, bytes):
            return [Var(x) for x in self.known(var)]
        if isinstance(value, dict) and kind.__iter__ in (dict.__iter__, OrderedDict.__iter__):
            return [key for key, _ in self.entries(var)]
        if kind is set or kind is frozenset:
            self.whole_set(var)
            return [var.items[x][0] for x in value]
        if isinstance(var.origin, Made) and var.origin.kind == "view":
            pairs = self.entries(var.origin.parts[0])
            which = var.origin.parts[1]
            if which == "items":
                return [self.new_tuple([k, v]) for k, v in pairs]
            return [pair[which == "values"] for pair in pairs]
        if isinstance(value, (Over, Zip, Enumerate)):
            found = []
            while (x := value.step(self)) is not END:
                found.append(x)
            return found
        if self.is_tensor(var):
            return self.front.unbind(self, var)
        return None

    def sequence_or_dict(self, var: Var):
        items = self.sequence(var)
        return var.value if items is None else items

    def whole_set(self, var: Var) -> None:
        """Know every element of a set."""
        if var.items is None:
            if self.live and isinstance(var.origin, Source):
                self.typed(var)
                fixed = frozenset(var.value)
                self.guards.add("call", var.origin, SetIs(fixed))
            var.items = {x: (Var(x),) for x in var.value}

    def is_dict(self, var: Var) -> bool:
        kind = type(var.value)
        return isinstance(var.value, dict) and kind.__getitem__ is dict.__getitem__ and (
            kind.__iter__ in (dict.__iter__, OrderedDict.__iter__))  # fmt: skip

    def entries(self, var: Var) -> list[tuple[Var, Var]]:
        """All (key, value) of a dict, guarded."""
        if not isinstance(var.value, dict):
            raise Break(f"a {type(var.value).__name__} is unpacked as a mapping", None)
        if not self.live:
            return [(Var(k), Var(v)) for k, v in var.value.items()]
        self.whole_dict(var)
        return [(var.items[k][0], var.items[k][1]) for k in var.value]

    def whole_dict(self, var: Var) -> None:
        """Know every key of a dict."""
        if var.origin is None or isinstance(var.origin, Made):
            if var.items is None:
                var.items = {k: (constant(k), constant(v)) for k, v in var.value.items()}
            return
        if id(var) not in self.whole:
            self.whole[id(var)] = var
            keys = self.original_keys.get(id(var), tuple(var.value))
            if self.live and isinstance(var.origin, Source):
                self.typed(var)
                self.guards.add("keys", var.origin, keys)
            for key in var.value:
                self.entry(var, key)

    def entry(self, var: Var, key) -> Var | None:
        """The Var at a key of a dict, guarded; None if there is none."""
        if self.scheduled and self.front.is_stale(self, var):
            raise Break("a read behind a scheduler's step")
        if not self.live:
            return Var(var.value[key]) if key in var.value else None
        if var.items is None:
            if var.origin is None:
                self.whole_dict(var)
            else:
                var.items = {}
        found = var.items.get(key)
        if found is not None:
            return found[1]
        if (
            var.is_new
            or var.origin is None
            or id(var) in self.deleted
            and key in self.deleted[id(var)]
        ):
            return None
        if key not in var.value:
            if self.live and isinstance(var.origin, Source) and id(var) not in self.whole:
                self.typed(var)
                if (
                    type(key) in (str, int)
                    or isinstance(key, Var)
                    or type(key).__hash__ is object.__hash__
                ):
                    self.guards.add("absent", var.origin, key)
                else:
                    self.guards.add("call", var.origin, Lacks(key))
            return None
        self.typed(var)
        value = self.load(var.value[key], self.entry_source(var.origin, key))
        var.items[key] = (constant(key), value)
        return value

    def store_item(self, var: Var, key: Var, value: Var | None) -> None:
        """var[key] = value of a list or dict (None deletes)."""
        raw = self.known_key(key)
        if not self.live:
            args = (raw,) if value is None else (raw, value.value)
            self.do(var.value.__delitem__ if value is None else var.value.__setitem__, *args)
            return
        if isinstance(var.value, dict):
            if id(var) not in self.original_keys and not var.is_new:
                self.original_keys[id(var)] = tuple(var.value)
                self.typed(var)
            if var.items is None:
                var.items = {}
            if value is None:
                if self.entry(var, raw) is None:
                    self.fail(KeyError(raw))
                del var.value[raw], var.items[raw]
                self.deleted.setdefault(id(var), set()).add(raw)
            else:
                if raw not in var.items:
                    self.entry(var, raw)
                old = var.items.get(raw)
                var.value[raw] = value.value
                var.items[raw] = (old[0] if old else key, value)
        else:
            items = self.sequence(var)
            if value is None:
                self.do(var.value.__delitem__, raw)
                del items[raw]
            elif isinstance(raw, slice):
                new = self.sequence(value)
                if new is None:
                    raise Break("assignment of a slice", None)
                self.do(var.value.__setitem__, raw, [x.value for x in new])
                items[raw] = new
            else:
                self.do(var.value.__setitem__, raw, value.value)
                items[raw] = value
        if not var.is_new:
            self.write(var, ("item", key, value))

    # -- attributes ----------------------------------------------------------------------------

    def attribute_now(self, obj: Var, name: str) -> Var | None:
        """An attribute that needs no user's code to read; None if there is none."""
        found = []
        depth = len(self.frames)
        try:
            self.get_attribute(obj, name, lambda t, v: found.append(v))
        except UserError:
            return None
        if len(self.frames) > depth or not found:
            raise Break(f"attribute {name!r} runs code in a pattern", None)
        return found[0]

    @pending
    def get_attribute(self, obj: Var, name: str, then=None, special: bool = False):
        """obj.name, given to `then` or pushed; `special` looks it up on the type alone."""
        value = obj.value
        if self.is_tensor(obj):
            return self.deliver(then, self.front.attribute(self, obj, name))
        if self.front.is_ambient(value):
            return self.give(then, self.do(getattr, value, name))
        if isinstance(value, (Generator, Iterator)) and hasattr(value.native(), name):
            own = getattr(value, name, None) or getattr(value.native(), name)
            return self.deliver(then, Var(own, Made("method", obj, name)))
        if (
            not special
            and isinstance(obj.items, dict)
            and self.keeps_attributes(obj)
            and name in obj.items
        ):
            found = obj.items[name]
            if found is None:
                self.fail(
                    AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")
                )
            return self.deliver(then, found)
        if isinstance(value, types.ModuleType):
            if name not in value.__dict__:
                return self.give(then, self.do(getattr, value, name))
            source = self.entry_source(self.dict_of(obj), name)
            if obj.origin is None and self.live:
                base = self.guards.source("const", None, value, value.__name__)
                table = self.guards.source("dict", base)
                source = self.entry_source(table, name)
            if self.frames[-1].trusted:
                found = value.__dict__[name]
                plain = isinstance(found, (*SCALARS, *FUNCTIONS))
                return self.deliver(then, Var(found) if plain else self.load(found, source))
            return self.deliver(then, self.load(value.__dict__[name], source))
        if isinstance(value, super):
            return self.super_attribute(obj, name, then)
        if isinstance(value, type):
            return self.class_attribute(obj, name, then)
        if (
            isinstance(obj.origin, Made)
            and obj.origin.kind == "method"
            and name in ("__self__", "__func__")
        ):
            if name == "__self__":
                return self.deliver(then, obj.origin.parts[0])
            return self.give(then, getattr(value, name))
        if isinstance(value, types.FunctionType) and name in FUNCTION_PARTS:
            if obj.is_new and name in ("__closure__", "__dict__", "__defaults__", "__kwdefaults__"):
                raise Break(f"{name} of a new function", Var(getattr), [obj, Var(name)])
            return self.deliver(then, self.load(getattr(value, name,
            None) if name != "__wrapped__" else self.do(
                getattr, value, name), self.sub(obj, "attr", name)))  # fmt: skip
        return self.instance_attribute(obj, name, then, special)

    def keeps_attributes(self, obj: Var) -> bool:
        """Whether `items` of a Var holds attributes."""
        return not isinstance(obj.value, (list, tuple, dict, set, frozenset))

    def instance_attribute(self, obj: Var, name: str, then, special: bool):
        """An attribute of an ordinary object."""
        value, cls = obj.value, type(obj.value)
        if self.scheduled and self.front.is_stale(self, obj):
            raise Break("a read behind a scheduler's step")
        self.typed(obj)
        getter = cls.__getattribute__
        if getter not in PLAIN_GETTERS and isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [obj, Var(name)], {}, then)
        if name == "__class__":
            return self.give(then, cls)
        if name == "__dict__" and hasattr(value, "__dict__"):
            return self.deliver(then, self.object_dict(obj))
        found = static_lookup(cls, name)[0]
        written = self.class_written(cls, name)
        if written is not None and name not in getattr(value, "__dict__", ()):
            return self.deliver(then, written)
        self.rely_on_class(obj, cls, name, found)
        if hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"):
            return self.descriptor(obj, name, found, then)
        if not special:
            own = getattr(value, "__dict__", None)
            if isinstance(own, dict):
                table = self.tracked.get(id(own))
                if table is not None and table.items and name in table.items:
                    return self.deliver(then, table.items[name][1])
                if name in own:
                    source = self.entry_source(self.dict_of(obj), name)
                    return self.deliver(then, self.load(own[name], source))
                if self.live and isinstance(obj.origin, Source) and not self.is_library(cls):
                    self.guards.add("absent", self.dict_of(obj), name)
            member = self.front.member(self, obj, name)
            if member is not None:
                return self.deliver(then, member)
        if found is not MISSING:
            return self.bind_class_attribute(obj, name, found, then)
        fallback, _ = static_lookup(cls, "__getattr__")
        if fallback is not MISSING and isinstance(fallback, types.FunctionType) and not special:
            return self.call(Var(fallback), [obj, Var(name)], {}, then)
        result = self.do(getattr, value, name)
        raise Break(f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj,
        Var(name)]) if result is not None else Break(
            f"attribute {name!r} of a {cls.__name__}", Var(getattr), [obj, Var(name)])  # fmt: skip

    def class_written(self, cls: type, name: str) -> Var | None:
        """What the trace put into a class, or a base of it, under this name."""
        tables = (self.class_items.get(c, ()) for c in cls.__mro__)
        return next((table[name] for table in tables if name in table), None)

    def is_library(self, cls: type) -> bool:
        return cls.__module__.startswith("glasshouse.")

    def rely_on_class(self, obj: Var, cls: type, name: str, found) -> None:
        """Guard what a class has under a name (MISSING: that it has nothing), unless it is the
        library's or built in."""
        if not self.live or not isinstance(obj.origin, Source) or self.is_library(cls):
            return
        if is_heap(cls):  # others cannot be changed
            kind = self.guards.source("type", obj.origin)
            if found is MISSING:
                self.guards.add("lacks", kind, name)
            elif type(found) not in SCALARS:
                self.guards.add("is", self.guards.source("lookup", kind, name), found)

    def class_source(self, obj: Var, name: str) -> Source | None:
        kind = self.sub(obj, "type")
        return None if kind is None else self.guards.source("lookup", kind, name)

    def object_dict(self, obj: Var) -> Var:
        """obj.__dict__, as a dict that shares what is known of the attributes."""
        if obj.is_new or (obj.items and any(True for _ in obj.items)):
            raise Break(
                "the __dict__ of an object that was written to",
                Var(getattr),
                [obj, Var("__dict__")],
            )
        return self.load(obj.value.__dict__, self.dict_of(obj))

    def descriptor(self, obj: Var, name: str, found, then):
        """A data descriptor: property, slot, or a user's."""
        if isinstance(found, property):
            if found.fget is None:
                self.fail(AttributeError(f"property {name!r} has no getter"))
            return self.call(Var(found.fget), [obj], {}, then)
        getter = static_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [Var(found), obj, Var(type(obj.value))], {}, then)
        value = self.do(found.__get__, obj.value, type(obj.value))
        if (
            isinstance(obj.origin, Made)
            and type(obj.value).__name__
            and isinstance(obj.value, BaseException)
        ):
            return self.deliver(then,
            constant(value) if name != "args" else self.new_tuple(obj.origin.parts[1])
                                if obj.origin.kind == "call" else Var(value))  # fmt: skip
        return self.deliver(then, self.load(value, self.sub(obj, "attr", name)))

    def bind_class_attribute(self, obj: Var, name: str, found, then):
        """A class attribute that was found through an instance: functions bind to it."""
        if isinstance(found, types.FunctionType):
            return self.deliver(then, self.bound(obj, Var(found)))
        if isinstance(found, staticmethod):
            return self.give(then, found.__func__)
        if isinstance(found, classmethod):
            return self.deliver(then, self.bound(Var(type(obj.value)), Var(found.__func__)))
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self.deliver(then, Var(getattr(obj.value, name), Made("method", obj, name)))
        if isinstance(obj.value, tuple) and name in getattr(type(obj.value), "_fields", ()):
            return self.deliver(then, self.sequence(obj)[type(obj.value)._fields.index(name)])
        getter = static_lookup(type(found), "__get__")[0]
        if isinstance(getter, types.FunctionType):
            return self.call(Var(getter), [Var(found), obj, Var(type(obj.value))], {}, then)
        if getter is not MISSING:
            value = self.do(found.__get__, obj.value, type(obj.value))
            return self.deliver(then, Var(value, Made("method", obj, name)) if callable(value) else
                                self.load(value, self.sub(obj, "attr", name)))  # fmt: skip
        return self.deliver(then, self.load(found, self.class_source(obj, name)))

    def bound(self, obj: Var, fn: Var) -> Var:
        """A method bound to an object."""
        return Var(types.MethodType(fn.value, obj.value), Made("method", obj, fn))

    def class_attribute(self, cls: Var, name: str, then):
        """An attribute of a class."""
        value = self.known(cls)
        meta, _ = static_lookup(type(value), name)
        if meta is not MISSING and (hasattr(type(meta), "__set__") or isinstance(meta, property)):
            if isinstance(meta, property):
                return self.call(Var(meta.fget), [cls], {}, then)
            return self.deliver(then, constant(self.do(getattr, value, name)))
        found, owner = static_lookup(value, name)
        if found is MISSING:
            if meta is not MISSING and isinstance(meta, types.FunctionType):
                return self.deliver(then, self.bound(cls, Var(meta)))
            return self.give(then, self.do(getattr, value, name))
        written = self.class_written(value, name)
        if written is not None:
            return self.deliver(then, written)
        if isinstance(found, staticmethod):
            return self.give(then, found.__func__)
        if isinstance(found, classmethod):
            return self.deliver(then, self.bound(cls, Var(found.__func__)))
        if (
            type(found) in SCALARS
            or isinstance(found, (list, dict, set))
            or self.front.is_tensor(found)
        ):
            source = None
            if (
                self.live
                and not self.is_library(value)
                and owner is not None
                and owner.__flags__ & 1 << 9
            ):
                base = cls.origin
                if not isinstance(base, Source):
                    base = self.guards.source("const", None, value, value.__name__)
                source = self.guards.source("lookup", base, name)
            return self.deliver(then, self.load(found, source) if source else Var(found))
        return self.give(then, self.do(getattr, value, name))

    def make_super(self, cls: Var, obj: Var) -> Var:
        value = self.do(super, self.known(cls), obj.value)
        return Var(value, Made("call", Var(super), [cls, obj]), [cls, obj])

    def super_attribute(self, sup: Var, name: str, then):
        """super().name: found behind the class in the object's order, bound to the object."""
        cls, obj = sup.items
        own = isinstance(obj.value, type) and issubclass(obj.value, cls.value)
        start = obj.value if own else type(self.typed(obj))
        order = start.__mro__
        for base in order[order.index(cls.value) + 1 :]:
            if name in base.__dict__:
                found = base.__dict__[name]
                if isinstance(obj.value, type) and isinstance(found, types.FunctionType):
                    return self.give(then, found)
                if isinstance(found, property):
                    return self.call(Var(found.fget), [obj], {}, then)
                if isinstance(found, classmethod):
                    return self.deliver(then, self.bound(Var(start), Var(found.__func__)))
                if isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType)):
                    return self.deliver(
                        then, Var(found.__get__(obj.value), Made("method", obj, Var(found)))
                    )
                if base is object and name == "__new__":
                    return self.give(then, object.__new__)
                return self.bind_class_attribute(obj, name, found, then)
        return self.fail(AttributeError(f"'super' object has no attribute {name!r}"))

    def set_attribute(self, obj: Var, name: str, var: Var | None):
        """obj.name = var (None deletes)."""
        value, cls = obj.value, type(obj.value)
        if self.is_tensor(obj):
            return self.front.set_attribute(self, obj, name, var)
        if isinstance(value, type):
            self.known(obj)
            if cls.__setattr__ is not type.__setattr__:
                raise Break(
                    f"attribute {name!r} of a class is set", Var(setattr), [obj, Var(name), var]
                )
            self.do(
                *((setattr, value, name, var.value) if var is not None else (delattr, value, name))
            )
            self.class_items.setdefault(value, {})[name] = var
            return self.write(self.class_var(value), ("attr", name, var))
        self.typed(obj)
        if isinstance(value, types.ModuleType):
            raise Break("an attribute of a module is set", Var(setattr), [obj, Var(name), var])
        setter = static_lookup(cls, "__setattr__" if var is not None else "__delattr__")[0]
        if isinstance(setter, types.FunctionType) and not self.front.sets_plainly(obj, name, var):
            return self.call(
                Var(setter),
                [obj, Var(name), *([var] if var is not None else [])],
                {},
                lambda t, v: None,
            )
        return self.set_plain(obj, name, var)

    def set_plain(self, obj: Var, name: str, var: Var | None):
        """What object.__setattr__ does."""
        value, cls = obj.value, type(obj.value)
        found, _ = static_lookup(cls, name)
        if isinstance(found, property):
            setter = found.fset if var is not None else found.fdel
            if setter is None:
                self.fail(
                    AttributeError(f"property {name!r} of {cls.__name__!r} object has no setter")
                )
            return self.call(
                Var(setter), [obj, *([var] if var is not None else [])], {}, lambda t, v: None
            )
        custom = static_lookup(type(found), "__set__")[0] if found is not MISSING else MISSING
        if isinstance(custom, types.FunctionType) and var is not None:
            return self.call(Var(custom), [Var(found), obj, var], {}, lambda t, v: None)
        plain = not isinstance(value, FUNCTIONS) or isinstance(value, types.FunctionType)
        if not plain or obj.origin is None and not isinstance(value, object):
            raise Break(
                f"attribute {name!r} of a {cls.__name__} is set",
                Var(setattr),
                [obj, Var(name), var],
            )
        table = self.tracked.get(id(getattr(value, "__dict__", None)))
        if table is not None and table.items is not None and found is MISSING:
            return self.store_item(table, Var(name), var)
        if var is not None:
            self.do(object.__setattr__, value, name, var.value)
        else:
            self.do(object.__delattr__, value, name)
        if not self.live:
            return None
        if obj.items is None or not isinstance(obj.items, dict):
            obj.items = {}
        obj.items[name] = var
        if not obj.is_new:
            self.write(obj, ("attr", name, var))
        return None

    def class_var(self, cls: type) -> Var:
        """The Var of a class that is written to."""
        found = self.tracked.get(id(cls))
        if found is None:
            found = self.tracked[id(cls)] = Var(cls)
        return found


def is_heap(cls: type) -> bool:
    """Whether a class was made by Python code, and so can be changed."""
    return bool(cls.__flags__ & 1 << 9)


def raise_name_error(text: str):
    """What Python does at an unset cell."""
    raise NameError(text)


def compares(value) -> bool:
    """Whether C compares such values by what is in them."""
    if type(value) is slice:
        return all(type(x) in (int, type(None)) for x in (value.start, value.stop, value.step))
    return type(value) in (*SCALARS, range)


class SetIs:
    """A guard: a set has exactly these elements."""

    def __init__(self, elements: frozenset):
        self.elements = elements

    def __call__(self, value) -> bool:
        return isinstance(value, (set, frozenset)) and value == self.elements

    def __repr__(self):
        return f"set is {set(self.elements)!r}"


class Lacks:
    """A guard: a dict has no such key."""

    def __init__(self, key):
        self.key = key

    def __call__(self, value) -> bool:
        return self.key not in value

    def __repr__(self):
        return f"lacks {self.key!r}"


# The getters that do nothing special.
PLAIN_GETTERS = {
    object.__getattribute__,
    BaseException.__getattribute__,
    types.MethodType.__getattribute__,
}
FUNCTION_PARTS = {"__code__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__",
"__name__",
                  "__qualname__", "__doc__", "__module__", "__wrapped__",
                  "__annotations__"}  # fmt: skip
