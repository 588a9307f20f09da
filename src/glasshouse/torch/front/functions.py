"""Custom autograd.Functions whose Python is plain: a call of one is a node of the graph.

The node calls `apply`, so autograd runs forward and backward as in eager, with all of `ctx`. A
compiler runs their Python once and keeps the computation. So the Python may depend only on its
arguments and on guarded values, and may write only to `ctx`. Its code is checked before it runs."""

import builtins
import dis
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Function

from glasshouse.capture.bytecode.instructions import GENERATORS
from glasshouse.capture.rules.builtins.builtin_rules import PURE
from glasshouse.capture.values.plain import SCALARS, static_lookup
from glasshouse.capture.values.plain import is_instance as isinstance
from glasshouse.capture.values.var import Break, Var
from glasshouse.torch.front import names
from glasshouse.torch.front.effects import depends_on_values, draws
from glasshouse.torch.front.names import name_of
from glasshouse.torch.patches.fakes import FakeTensorMode

METHODS = ("forward", "backward", "setup_context")
PLAIN_CLASSES = {torch.no_grad, torch.enable_grad, torch.Tensor}
MODULES = ("torch.", "math.")
PLAIN_BUILTINS = {len, range, tuple, list, dict, zip, enumerate, reversed, isinstance, min, max,
                  sum, int, float, bool, str, any, all, slice, sorted, map, *PURE}  # fmt: skip
JUMPS = ("POP_JUMP", "JUMP", "BUILD_", "UNARY_", "UNPACK_")
# Operations of bytecode that write to nothing but locals.
PLAIN_OPERATIONS = set(
    "RESUME NOP CACHE EXTENDED_ARG PRECALL CALL CALL_KW KW_NAMES CALL_FUNCTION_EX "
    "CALL_INTRINSIC_1 PUSH_NULL POP_TOP COPY SWAP LOAD_CONST LOAD_FAST LOAD_FAST_CHECK "
    "LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST "
    "STORE_FAST_STORE_FAST DELETE_FAST LOAD_CLOSURE LOAD_DEREF MAKE_CELL COPY_FREE_VARS "
    "STORE_DEREF MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE BINARY_OP BINARY_SUBSCR BINARY_SLICE "
    "TO_BOOL COMPARE_OP IS_OP CONTAINS_OP FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC "
    "CONVERT_VALUE LIST_EXTEND LIST_APPEND LIST_TO_TUPLE MAP_ADD DICT_MERGE DICT_UPDATE "
    "GET_ITER FOR_ITER END_FOR RETURN_VALUE RETURN_CONST RAISE_VARARGS LOAD_ASSERTION_ERROR "
    "BEFORE_WITH PUSH_EXC_INFO WITH_EXCEPT_START RERAISE POP_EXCEPT LOAD_GLOBAL LOAD_ATTR "
    "LOAD_METHOD STORE_ATTR".split()
)
# Attributes that read values, write, or have effects; `mark_dirty` marks writes.
REFUSED = names.READS_VALUES | names.CHANGES_TENSOR
REFUSED |= {"mark_dirty", "backward", "grad", "grad_fn", "data"}
APPLY = getattr(Function.apply, "__func__", None)  # of the class method; None where it is in C


class NotPlain(Exception):
    """The reason why the Python of a custom Function is not plain."""


class PlainReader:
    """Reads the code of functions, and notes its dependencies.

    Raises: NotPlain"""

    def __init__(self, front: Any) -> None:
        self.front = front
        self.classes: dict[type[Any], None] = {}
        self.functions: dict[int, types.FunctionType] = {}
        self.globals: list[tuple[dict[Any, Any], str]] = []
        self.cells: list[types.CellType] = []

    def read_class(self, cls: type[Any]) -> None:
        """Read the methods of a custom Function that autograd calls."""
        if cls in self.classes:
            return
        self.classes[cls] = None
        own_rule = static_lookup(cls, "vjp")[1] is not static_lookup(Function, "vjp")[1]
        own_apply = static_lookup(cls, "apply")[0] is not static_lookup(Function, "apply")[0]
        if own_rule or own_apply or cls.boxed_grads_call:
            raise NotPlain("which says itself how it is called")
        for name in METHODS:
            method, owner = static_lookup(cls, name)
            if not owner.__module__.startswith("torch."):
                self.read(getattr(method, "__func__", method), is_entry=True)

    def read(self, fn: Any, is_entry: bool = False) -> None:
        """Read a function; PyTorch's decorators around it are skipped."""
        if not isinstance(fn, types.FunctionType):
            raise NotPlain(f"whose Python has a {type(fn).__name__}")
        wrapped = getattr(fn, "__wrapped__", None)
        if wrapped is not None and str(fn.__globals__.get("__name__")).startswith("torch."):
            return self.read(wrapped, is_entry)
        if id(fn) in self.functions:
            return None
        self.functions[id(fn)] = fn
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self.check_value(value, "a default")
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        for name, cell in cells.items():
            self.cells.append(cell)
            self.check_value(cell.cell_contents, name)
        return self.read_code(fn.__code__, fn.__globals__, is_entry, set(cells))

    def read_code(self, code: Any, scope: dict[Any, Any], is_entry: bool, fixed: set[str]) -> None:
        """Read the instructions; `fixed` has the names of guarded cells."""
        context = code.co_varnames[0] if is_entry and code.co_argcount else None
        if code.co_flags & GENERATORS:
            raise NotPlain("whose Python has a generator")
        steps = list(dis.get_instructions(code))
        inside = None  # the module whose attribute the next instruction reads
        for before, step in zip([None, *steps], steps):
            op, name = step.opname, step.argval
            plain = op in PLAIN_OPERATIONS or op.startswith(JUMPS)
            in_place = op == "BINARY_OP" and step.argrepr.endswith("=")
            rebinds = op == "STORE_DEREF" and name in fixed
            rebinds = rebinds or op == "STORE_FAST" and name == context
            if not plain or in_place or rebinds:
                raise NotPlain(f"whose Python has {op} {step.argrepr}".rstrip())
            if inside is not None and not op.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                raise NotPlain(f"whose Python takes {inside.__name__} for a value")
            if op == "STORE_ATTR" and (before is None or not loads(before, context)):
                raise NotPlain(f"whose Python sets {name!r} of something else than ctx")
            if op == "LOAD_CONST" and isinstance(name, types.CodeType):
                self.read_code(name, scope, False, fixed)
            elif op == "LOAD_GLOBAL":
                inside = self.check(self.find(scope, name), name)
            elif op in ("LOAD_ATTR", "LOAD_METHOD"):
                self.refuse(name)
                inside = None if inside is None else self.check(getattr(inside, name), name)

    def find(self, scope: dict[Any, Any], name: str) -> Any:
        """The global or builtin that a name means; note it for the guards."""
        self.globals.append((scope, name))
        if name in scope:
            return scope[name]
        if not hasattr(builtins, name):
            raise NotPlain(f"whose Python names {name}, which is not defined")
        return getattr(builtins, name)

    def refuse(self, name: str) -> None:
        """Refuse names of functions that read values, write, or have effects."""
        writes = name.endswith("_") and not name.endswith("__")
        has_effects = draws(name) or depends_on_values(name)
        if name in REFUSED or has_effects or writes or name.startswith("__"):
            raise NotPlain(f"whose Python uses {name}")

    def check(self, value: Any, name: str) -> types.ModuleType | None:
        """Check a named value; returns it if it is a module, whose attribute is checked next."""
        if isinstance(value, types.ModuleType) and f"{value.__name__}.".startswith(MODULES):
            return value
        self.check_value(value, name)
        return None

    def check_value(self, value: Any, name: str) -> None:
        """Check a constant or a callable."""
        if type(value) in SCALARS or isinstance(value, names.VALUES):
            return
        if type(value) is tuple:
            for x in value:
                self.check_value(x, name)
        elif isinstance(value, type) and issubclass(value, Function):
            self.read_class(value)
        elif isinstance(value, types.FunctionType) and self.is_users(value):
            self.read(value)
        elif not self.is_plain_callable(value):
            raise NotPlain(f"whose Python names {name}, a {type(value).__name__}")

    def is_users(self, fn: Any) -> bool:
        state = fn in names.CONSTANTS or fn in names.STATE_READERS
        return not (state or self.front.is_operation(fn))

    def is_plain_callable(self, value: Any) -> bool:
        """Whether a value is a known class or function of PyTorch or Python without effects."""
        if isinstance(value, type):
            error = issubclass(value, Exception) and value.__module__ == "builtins"
            return error or value in PLAIN_CLASSES or value in PLAIN_BUILTINS
        kinds = (types.FunctionType, types.BuiltinFunctionType, *names.OVERLOADS)
        if not isinstance(value, kinds) or value in names.AUTOGRAD:
            return False
        if value in PLAIN_BUILTINS or value in names.CONSTANTS or value in names.STATE_READERS:
            return True
        self.refuse(name_of(value))
        return self.front.is_operation(value)

    def guard(self, tracer: Any) -> None:
        """Guard all that was read."""
        add, source = tracer.guards.add, tracer.guards.source
        for cls in self.classes:
            base = source("const", None, cls, cls.__name__)
            for name in METHODS:
                add("is", source("lookup", base, name), static_lookup(cls, name)[0])
        for fn in self.functions.values():
            base = source("const", None, fn, fn.__name__)
            for name in ("__code__", "__defaults__"):
                add("is", source("attr", base, name), getattr(fn, name))
        for cell in self.cells:
            base = source("const", None, cell, "cell")
            tracer.concretize(tracer.heap.load(cell.cell_contents, source("cell", base)))
        for scope, name in self.globals:
            var = tracer.heap.globals_var(scope)
            if name in var.items:
                raise NotPlain(f"whose Python names {name}, which was set")
            if name in scope:
                tracer.concretize(
                    tracer.heap.load(scope[name], tracer.heap.entry_source(var.origin, name))
                )
            else:
                add("absent", var.origin, name)


def loads(step: dis.Instruction, name: str | None) -> bool:
    """Whether an instruction loads a local variable last."""
    last = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return step.opname.startswith("LOAD_FAST") and last == name


def applied_class(fn: Any) -> type[Any] | None:
    """The custom Function whose `apply`, as PyTorch has it, a function is; None for others.

    It is a class method: of Python before PyTorch 2.14, of C since."""
    if type(fn) is not type(Function.apply):
        return None
    cls = fn.__self__
    if not isinstance(cls, type) or not issubclass(cls, Function):
        return None
    is_apply = fn.__name__ == "apply" if APPLY is None else fn.__func__ is APPLY
    return cls if is_apply else None


def caller_of(cls: type[Any]) -> Any:
    """The function that a node calls to apply a custom Function."""

    def call(*args):
        return cls.apply(*args)

    call.__name__ = call.__qualname__ = cls.__name__
    return call


def try_without_contents(cls: type[Any], values: list[Any]) -> None:
    """Run a custom Function forward and backward on tensors without contents, as compilers do.

    Raises: NotPlain if it needs contents
    """
    try:
        mode = FakeTensorMode()
        arguments = [without_contents(mode, x) for x in values]
        with mode, torch.enable_grad():
            results = cls.apply(*arguments)
            results = results if isinstance(results, tuple) else (results,)
            outs = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
            leaves = [x for x in arguments if isinstance(x, torch.Tensor) and x.requires_grad]
            if outs and leaves:
                ones = [torch.ones_like(x) for x in outs]
                torch.autograd.grad(outs, leaves, ones, allow_unused=True)
    except Exception as error:
        raise NotPlain(f"which raises {type(error).__name__} without values of tensors") from None


def without_contents(mode: Any, value: Any) -> Any:
    """A tensor without contents like another; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return mode.from_tensor(value.detach()).requires_grad_(value.requires_grad)


class TorchFunctionFront:
    """Calls of custom autograd.Functions."""

    apply: Callable[..., Any]  # both are of other parts of the front end
    is_tensor: Callable[..., bool]

    def apply_function(self, tracer: Any, fn: Var, args: Any, kwargs: Any, then: Any) -> bool:
        """A call of `apply` as a node, or a break."""
        cls, reader = fn.value.__self__, PlainReader(self)
        try:
            if kwargs or not all(self.is_argument(tracer, x) for x in args):
                raise NotPlain("which is given more than tensors and constants")
            reader.read_class(cls)
            try_without_contents(cls, [x.value for x in args])
            reader.guard(tracer)
        except NotPlain as why:
            reason = f"{cls.__name__}, a custom autograd.Function, {why}"
            raise Break(reason, fn, args, kwargs) from None
        tracer.front_state.plain_codes |= {f.__code__ for f in reader.functions.values()}
        tracer.concretize(fn)
        call = caller_of(cls)
        tracer.deliver(then, self.apply(tracer, "call_function", call, call, args, {}))
        return True

    def is_argument(self, tracer: Any, var: Var) -> bool:
        """Whether a node can take a value: a tensor or a constant."""
        if self.is_tensor(var.value):
            return True
        return not isinstance(var.value, (list, dict, set)) and tracer.foldable(var)
