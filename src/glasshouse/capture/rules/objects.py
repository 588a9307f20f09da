"""Guards, loads, object creation, cells and globals: each read is guarded, and each write to
something that is not new is logged."""

import builtins
import types
from enum import Enum

from glasshouse.capture.bytecode.instructions import original_of
from glasshouse.capture.frames.frame import CapturedGenerator
from glasshouse.capture.guards.outcomes import OutcomeWriter, rely_on
from glasshouse.capture.guards.program import GuardCheck, GuardSet
from glasshouse.capture.rules.identity import IdentityRules
from glasshouse.capture.values.plain import (
    ARRAY_SCALARS,
    FUNCTIONS,
    NUMBERS,
    SCALARS,
    compares,
    compares_itself,
    has_own_equality,
    is_heap,
    looks_up_itself,
)
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.rebound_globals import is_rebound
from glasshouse.capture.values.var import Break, NewNumber, Recipe, SymbolicNumber, ValueSource, Var
from glasshouse.ir.node import IRNode

# Kinds of sources that may be missing in a later call.
READ_KINDS = {"get", "cell", "attr", "lookup"}
PLAIN_HASHES = (tuple.__hash__, frozenset.__hash__)


class ObjectRules(IdentityRules):
    """The part of the tracer that knows where values come from."""

    guards: GuardSet

    # -- guards --------------------------------------------------------------------------------

    def typed(self, var: Var):
        """The value; relies on its type."""
        if (
            self.live
            and isinstance(var.origin, ValueSource)
            and not self.guards.has("eq", var.origin)
        ):
            self.guards.add("type", var.origin, type(var.value))
        if self.live and type(var.value) not in self.read_classes.classes:
            self.read_classes.add(type(var.value))
        return var.value

    def concretize(self, var: Var):
        """The value; relies on all of it.

        Raises: Break if it is computed by the graph
        """
        value, origin = var.value, var.origin
        if not self.live or origin is None:
            return value
        if isinstance(origin, ValueSource):
            if type(value) in (tuple, list, set):
                for item in self.sequence(var):
                    self.concretize(item)
            else:
                single = value is None or type(value) is bool
                kind = "eq" if not single and compares(value) else "is"
                if type(value) in ARRAY_SCALARS:
                    kind, value = "call", GuardCheck(same_scalar, var.value, repr(var.value))
                self.guards.add(kind, origin, value)
                if type(value) is types.FunctionType:
                    self.guards.add("code", origin, value.__code__)
        elif isinstance(origin, SymbolicNumber) and self.rely_on_number(origin, value):
            return value
        elif isinstance(origin, (Recipe, SymbolicNumber)):
            parts = self.parts_of(origin, var)
            if parts is None and origin.kind not in ("function", "method", "object", "traceback"):
                raise Break(f"a new {origin.kind} is needed as a constant", None)
            for part in parts or ():
                self.concretize(part)
        elif type(value) in (int, float, bool, tuple):  # made of sizes, which are now fixed
            self.fix_inputs(origin)
        else:
            raise Break("a value that the graph computes is needed", None)
        return var.value

    def rely_on_number(self, origin: SymbolicNumber, value) -> bool:
        """Guard the result of arithmetic, if other numbers may give the same: step % 10."""
        outcome = OutcomeWriter(self).outcome(origin.fn, origin.args)
        if type(value) is not int or outcome is None or outcome.one_to_one:
            return False
        rely_on(self, outcome, "number", value)
        return True

    def rely_on_code(self, fn: Var) -> None:
        """Guard a function that is called: for an argument, only that it has the same code."""
        value, origin = fn.value, fn.origin
        is_argument = self.live and isinstance(origin, ValueSource) and self.is_passed(origin)
        if is_argument and type(value) is types.FunctionType:
            code = self.guards.source("attr", origin, "__code__")
            self.guards.add("is", code, value.__code__)
        else:
            self.concretize(fn)

    def fix_inputs(self, node: IRNode) -> None:
        """Rely on all free sizes and numbers that a node was computed from."""
        inputs_by_node = {id(placeholder): var for placeholder, var in self.inputs}
        waiting, visited = [node], {id(node)}
        while waiting:
            node = waiting.pop()
            if node.meta.get("hidden"):
                raise Break("a number that a tensor holds is needed as a constant")
            node.meta["varies"] = False
            var = inputs_by_node.get(id(node))
            if var is not None and self.is_tensor(var):
                for item in self.sequence(self.front.metadata(self, var, "shape")):
                    self.concretize(item)
            elif var is not None:
                self.concretize(var)
            inputs = [x for x in node.all_input_nodes if id(x) not in visited]
            visited.update(map(id, inputs))
            waiting += inputs

    def parts_of(self, origin: Recipe | SymbolicNumber, var: Var) -> list[Var] | None:
        """The Vars that make up something new, without a dict's keys; None if there is more."""
        if isinstance(origin, SymbolicNumber):
            return list(origin.args)
        if origin.kind in ("list", "tuple", "set"):
            return self.sequence(var)
        if origin.kind == "dict":
            return [value for _, value in self.entries(var)]
        return [origin.parts[0], *origin.parts[1]] if origin.kind == "call" else None

    def is_passed(self, source: ValueSource) -> bool:
        """Whether a source starts at an argument."""
        while source.base is not None:
            source = source.base
        return source.kind == "slot"

    def foldable(self, var: Var) -> bool:
        """Whether guarding a value does not make the graph too special."""
        value, origin = var.value, var.origin
        computed = isinstance(origin, (SymbolicNumber, IRNode)) and type(value) in (
            int,
            float,
            bool,
        )
        if computed or self.varies(var):
            return True
        if self.is_tensor(var):
            return False
        if isinstance(origin, Recipe):
            # Later uses may run methods of its class, which may read anything.
            of_class = origin.kind == "call" and is_heap(type(value))
            if of_class or id(var) in self.folding:  # it contains itself
                return False
            self.folding.add(id(var))
            try:
                parts = self.parts_of(origin, var)
                return parts is not None and all(map(self.foldable, parts))
            finally:
                self.folding.discard(id(var))
        if origin is None:
            return not isinstance(value, CapturedGenerator)
        if isinstance(origin, ValueSource):
            if type(value) is tuple:
                return all(self.foldable(x) for x in self.sequence(var))
            plain = compares(value) or isinstance(value, FUNCTIONS)
            return plain or self.front.is_constant(value)
        return False

    def is_same_object(self, var: Var) -> bool:
        """Whether a value has a source and is equal only to itself."""
        if not isinstance(var.origin, ValueSource) or self.is_tensor(var):
            return False
        names = ("__hash__", "__eq__")
        return all(self.look_up(type(var.value), x) is getattr(object, x) for x in names)

    def all_foldable(self, args, kwargs=None) -> bool:
        return all(map(self.foldable, (*args, *(kwargs or {}).values())))

    def call_concrete(self, fn, args, kwargs=None):
        """Call fn on values, and rely on them."""
        words = {k: self.concretize(v) for k, v in (kwargs or {}).items()}
        return self.do(fn, *map(self.concretize, args), **words)

    def varies(self, var: Var) -> bool:
        """Whether a number may be another one in a later call."""
        if type(var.origin) is SymbolicNumber:
            return True
        if type(var.value) in ARRAY_SCALARS:
            return self.live and isinstance(var.origin, ValueSource)
        if (
            type(var.value) not in NUMBERS
            or not isinstance(var.origin, ValueSource)
            or not self.live
        ):
            return False
        return not self.guards.has("eq", var.origin) and self.is_dynamic(var.origin)

    def was_seen_to_vary(self, var: Var) -> bool:
        """Whether a number varied in earlier calls, or may vary by a setting."""
        varied = self.all_dynamic or var.origin.text in self.dynamic
        return varied and type(var.value) in (int, float) and self.varies(var)

    # -- loading -------------------------------------------------------------------------------

    def load(self, value, source: ValueSource | None) -> Var:
        """The Var of a value read at a source; one Var for one object."""
        if self.live and compares_itself(value):
            raise Break("a class whose metaclass defines its equality or hash")
        if self.live and source is not None and source.kind in READ_KINDS:
            self.guards.read.append(source)
        if self.live and type(value) not in self.read_classes.classes:
            self.read_classes.add(type(value))
        if (
            not self.live
            or source is None
            or type(value) in SCALARS
            or isinstance(value, FUNCTIONS)
        ):
            return self.loaded(value, source)
        var = self.tracked.get(id(value))
        if var is None:
            if looks_up_itself(type(value)):
                raise Break(f"a {type(value).__name__}, which looks up its attributes itself")
            var = self.tracked[id(value)] = self.loaded(value, source)
        elif isinstance(var.origin, ValueSource) and var.origin is not source:
            self.guards.add("same", source, var.origin)
        return var

    def part_of(self, obj: Var, name: str, value) -> Var:
        """The Var of an attribute that C code keeps in an object of any origin."""
        if isinstance(obj.origin, SymbolicNumber):  # .real and the like
            return self.number(getattr, [obj, Var(name)])
        if isinstance(obj.origin, Recipe):
            return self.part_of_new(obj, name, value)
        if isinstance(obj.origin, IRNode):
            self.concretize(obj)
        return self.load(value, self.sub(obj, "attr", name))

    def load_in(self, trusted: bool, value, source: ValueSource | None) -> Var:
        """The Var of a value read in a frame; trusted scalars and functions are constants."""
        fixed = trusted and (type(value) in SCALARS or isinstance(value, FUNCTIONS))
        return Var(value) if fixed else self.load(value, source)

    def track(self, var: Var) -> Var:
        """Remember something new by its identity."""
        if self.live and type(var.value) not in self.read_classes.classes:
            self.read_classes.add(type(var.value))
        self.tracked[id(var.value)] = var
        return var

    def sub(self, var: Var, kind: str, key=None) -> ValueSource | None:
        """The source of a part of a value with a source; else None."""
        if not self.live or not isinstance(var.origin, ValueSource):
            return None
        return self.guards.source(kind, var.origin, key)

    def dict_of(self, var: Var) -> ValueSource | None:
        """The source of an object's attributes."""
        return self.source_in(var, "dict")

    def entry_source(self, base: ValueSource | None, key) -> ValueSource | None:
        return None if base is None or not self.live else self.guards.source("get", base, key)

    # -- making --------------------------------------------------------------------------------

    def hand_over(self, items) -> None:
        """Replace our generators by Python's own in values that are put into something, once
        nothing is learnt any more: real code may see them."""
        for x in items:
            if not self.live and isinstance(x.value, CapturedGenerator) and not x.value.running:
                x.value = x.value.native()
                self.handed_over.append(x)

    def new_tuple(self, items: list[Var], cls=tuple) -> Var:
        self.hand_over(items)
        values = tuple(x.value for x in items)
        if cls is not tuple:
            return self.track(Var(tuple.__new__(cls, values), Recipe("tuple", cls), list(items)))
        if all(x.origin is None and x.items is None and type(x) is not NewNumber for x in items):
            return Var(values, None, list(items))
        return Var(values, Recipe("tuple"), list(items))

    def new_list(self, items: list[Var]) -> Var:
        self.hand_over(items)
        return self.track(Var([x.value for x in items], Recipe("list"), list(items)))

    def new_slice(self, parts: list[Var]) -> Var:
        return Var(slice(*(x.value for x in parts)), Recipe("call", Var(slice), parts))

    def new_dict(self, pairs, cls=dict) -> Var:
        pairs = [(self.concrete_key(key), key, value) for key, value in pairs]
        self.hand_over(x for *_, x in pairs)
        value = self.do(cls, [(raw, x.value) for raw, _, x in pairs])
        items: dict = {}
        for raw, key, x in pairs:  # of equal keys, a dict keeps the first
            items[raw] = (items[raw][0] if raw in items else key, x)
        return self.track(Var(value, Recipe("dict", cls), items))

    def new_set(self, elements: list[Var], value: set | None = None) -> Var:
        """A set made by adding these elements in order; or `value`, if it is known."""
        keys = [self.concrete_key(x) for x in elements]
        if value is None:
            value = self.do(set, keys)
        items: dict = {}
        for key, x in zip(keys, elements, strict=True):  # of equal ones, a set keeps the first
            items.setdefault(key, (x,))
        return self.track(Var(value, Recipe("set"), items))

    def new_cell(self, content: Var | None) -> Var:
        cell = types.CellType() if content is None else types.CellType(content.value)
        return self.track(Var(cell, Recipe("cell"), content if self.live else None))

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
            pairs = zip(flat[::2], flat[1::2], strict=True) if isinstance(flat, tuple) else flat
            fn.__annotations__ = dict(pairs)
        if "annotate" in parts:
            fn.__annotate__ = parts["annotate"].value
        return self.track(Var(fn, Recipe("function", code, f.globals, parts), {}))

    def concrete_key(self, var: Var):
        """A dict key: relies on a constant, or on the identity of an object."""
        value, origin = var.value, var.origin
        if not self.live:
            return value
        scalar = type(value) in SCALARS
        if not scalar:
            self.check_hash(var)
        if isinstance(origin, ValueSource) and not scalar and type(value) is not tuple:
            self.guards.add("is", origin, value)
        elif type(value) is tuple or isinstance(origin, (ValueSource, SymbolicNumber)):
            self.concretize(var)
            self.do(hash, value)  # of a tuple it may raise
        elif isinstance(origin, IRNode):
            raise Break("a tensor that the graph computes is used as a key", None)
        return value

    def check_hash(self, key: Var) -> None:
        """Refuse keys that user code compares, and those without a hash."""
        value = key.value
        hashes = self.look_up(type(value), "__hash__")
        # No other key has the hash of an object.
        by_identity = hashes is object.__hash__ or self.front.is_key(value)
        if compares_in_python(value) and not by_identity:
            raise Break(f"a {type(value).__name__}, whose class compares in Python, is a key")
        if hashes is None:
            self.do(hash, self.typed(key))  # raises

    def set_key(self, var: Var):
        """The key to look up in a set: a set stands for the frozenset of its elements."""
        if not isinstance(var.value, set):
            return self.concrete_key(var)
        self.whole_set(var)
        return frozenset(var.value)

    # -- cells and globals ---------------------------------------------------------------------

    def cell_get(self, cell: Var, name: str) -> Var:
        if isinstance(cell.items, Var):
            return cell.items
        try:
            value = cell.value.cell_contents
        except ValueError:
            is_free = name in original_of(self.frames[-1].root)[0].co_freevars
            if is_free or not cell.is_new:  # which may be set in a later call
                args = [cell, Var(name), Var(is_free)]
                raise Break("an unset cell is read", Var(read_cell), args) from None
            self.fail(unset_error(name, is_free))
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
        """Log a write to something that is not new."""
        if not self.live:
            return
        if var.log is None:
            var.log = []
            self.written.append(var)
        var.log.append(entry)

    def load_global(self, f, name: str) -> Var:
        scope = self.globals_var(f.globals)
        if name in scope.items:
            var = scope.items[name]
            if var is not None:
                return var
        elif name in f.globals:
            value = f.globals[name]
            source = self.entry_source(scope.origin, name)
            fixed = f.trusted and not is_rebound(f.globals, name)
            if fixed:
                source = self.guards.source("const", None, value, name)
            var = self.load_in(fixed, value, source)
            self.note_global(f, name)
            return var
        table = f.globals.get("__builtins__", builtins)
        table = table if isinstance(table, dict) else table.__dict__
        if self.live and not f.trusted:
            place = self.guards.source("const", None, table, "builtins")
            if name not in scope.items:  # else the trace deleted it
                self.guards.add("absent", scope.origin, name)
            if name in table:
                self.guards.add("is", self.guards.source("get", place, name), table[name])
            else:
                self.guards.add("absent", place, name)
            if name not in scope.items:
                self.note_global(f, name)
        if name not in table:
            self.fail(NameError(f"name '{name}' is not defined", name=name))
        return Var(table[name])

    def rely_on_global(self, f, scope: Var, name: str) -> None:
        """Guard whether a module has a global that is deleted."""
        if name in f.globals:
            self.load_global(f, name)
        elif self.live and not f.trusted:
            self.guards.add("absent", scope.origin, name)

    def globals_var(self, names: dict) -> Var:
        """The Var of a module's globals."""
        var = self.scopes.get(id(names))
        if var is None:
            source = self.guards.source("const", None, names, "G")
            var = self.scopes[id(names)] = Var(names, source, {})
        return var

    def store_global(self, f, name: str, var: Var | None) -> None:
        scope = self.globals_var(f.globals)
        if var is None and name not in scope.items:
            self.rely_on_global(f, scope, name)
        if var is None and name not in f.globals:
            self.fail(NameError(f"name '{name}' is not defined", name=name))
        if var is None:
            del f.globals[name]
        else:
            f.globals[name] = var.value
        if self.live:
            scope.items[name] = var
        self.write(scope, ("item", Var(name), var))


def read_cell(cell: types.CellType, name: str, is_free: bool):
    """Read a cell, or raise as Python does: in a resume function a free variable is a local."""
    try:
        return cell.cell_contents
    except ValueError:
        pass  # no context, and no name for the error: with its frame it would be a cycle
    raise unset_error(name, is_free)


def unset_error(name: str, is_free: bool) -> NameError:
    """The error of a variable in a cell that has no value."""
    what = "where it is not associated with a value"
    if is_free:
        return NameError(
            f"cannot access free variable '{name}' {what} in enclosing scope", name=name
        )
    return UnboundLocalError(f"cannot access local variable '{name}' {what}", name=name)


def same_scalar(value, expected) -> bool:
    """Whether two of NumPy's numbers are the same to the bit."""
    return type(value) is type(expected) and value.tobytes() == expected.tobytes()


def compares_in_python(value) -> bool:
    """Whether user code defines the equality or hash of a value."""
    if isinstance(value, (tuple, frozenset)) and type(value).__hash__ in PLAIN_HASHES:
        return any(map(compares_in_python, value))
    cls = type(value)
    if cls in SCALARS or isinstance(value, FUNCTIONS):
        return False
    if isinstance(value, Enum) and cls.__hash__ is Enum.__hash__:
        return False
    return has_own_equality(cls)
