"""Runs functions plainly and captured, and compares all that can be seen of the two."""

import ast
import contextlib
import copy
import gc
import inspect
import io
import math
import textwrap
import types
from collections import defaultdict, deque
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh

MODES = ("eager", "inlined", "broken", "context", "program")
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
LAZY_ITEMS = 60
PACKAGE = (str(Path(gh.__file__).parent), "<glasshouse")  # files of ours, and code that we made


# What is known to differ from plain Python, and why.
WRONG: dict[tuple[str, str], str] = {}


class Make:
    """An argument that is a new object in each run."""

    def __init__(self, fn, *args):
        self.fn, self.args = fn, args

    def __deepcopy__(self, memo):
        return self.fn(*copy.deepcopy(self.args, memo))


class Cases(list):
    """Functions with their arguments, collected by decorating them."""

    def __init__(self, *modes: str):
        super().__init__()
        self.modes = modes or MODES[:3]

    def __call__(self, *args, modes=(), **options):
        modes = modes or self.modes

        def add(fn):
            name = fn.__name__
            number = sum(p.id.rpartition("-")[0].partition("#")[0] == name for p in self)
            number //= len(modes)
            label = name if not number else f"{name}#{number + 1}"
            for mode in modes:
                values = (fn, args, {**options, "mode": mode})
                reason = WRONG.get((name, mode)) or WRONG.get((name, ""))
                marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
                self.append(pytest.param(*values, id=f"{label}-{mode}", marks=marks))
            return fn

        return add


class Outcome:
    """The outcome of one call: its result or exception, its output, its arguments afterwards."""

    def __init__(self, fn, args, kwargs):
        self.args, self.kwargs = args, kwargs
        self.result = self.error = None
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                self.result = fn(*args, **kwargs)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, gh.base.errors.CaptureError)):
                raise
            self.error = error
        self.printed = printed.getvalue()
        self.names: dict = {}
        self.hit = False


def through(fn):
    """A function whose only frame of interest is inlined."""

    def outer(*args, **kwargs):
        return fn(*args, **kwargs)

    return outer


def inside(context, fn):
    """A function that calls fn in a context."""

    def call(*args, **kwargs):
        with context:
            return fn(*args, **kwargs)

    return call


def broken(fn):
    """fn with a graph break before each of its statements, and of the functions in it."""
    source, first = inspect.getsourcelines(fn)
    tree = ast.parse(textwrap.dedent("".join(source)))
    ast.increment_lineno(tree, first - 1)
    tree.body[0].decorator_list = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef)):
            for name in ("body", "orelse", "finalbody"):
                if isinstance(body := getattr(node, name, None), list):
                    setattr(node, name, [x for s in body for x in with_break(s)])
    ast.fix_missing_locations(tree)
    results: dict = {}
    exec(compile(tree, inspect.getsourcefile(fn), "exec"), fn.__globals__, results)
    return results[fn.__name__]


def with_break(statement) -> list:
    kept = (ast.Global, ast.Nonlocal, ast.ExceptHandler)
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if isinstance(statement, kept) or text:
        return [statement]
    return [ast.copy_location(ast.parse("gh.capture.graph_break()").body[0], statement), statement]


# Cases whose results are right, but which capture takes in pieces, or again in each call: live
# generators, errors that are raised and caught, classes made inside, and the like.
PARTIAL = set(
    """
    annotated_inner arithmetic_methods assert_fails assert_fails_without_message
    assert_on_tensor assert_on_tensor_fails asserts break_in_any break_in_assert
    break_in_context_manager break_in_failing_assert break_in_generator_loop
    break_inside_generator break_inside_generator_expression break_with_live_generator
    close_generator comparison_methods data_class_compare data_class_frozen_used
    decorated_by_context
    decorates_inside default_dict_made delattr_and_vars dict_from_keys dict_subclass_made
    dict_unhashable_key dict_view_sets error_in_comprehension error_in_with_and_break
    error_in_with_is_caught evaluates_text exception_group generator_in_class hash_method
    ids_and_hashes iteration_by_items itertools_cycle list_compare local_names module_call
    named_tuple_made next_of_ended number_methods return_in_with_and_break returns_generator
    returns_map returns_started_generator set_of_unhashable set_operators text_methods
    throw_into_generator with_in_loop_and_break
    """.split()
)


def check(
    fn,
    *args,
    mode="eager",
    calls=3,
    kwargs=None,
    whole=False,
    hit=True,
    again=False,
    names=(),
    factory=False,
    line=False,
    sets=None,
    dynamic=False,
    tolerance=0.0,
):
    """Run fn plainly and captured, `calls` times each, and compare everything after each call.

    kwargs: keyword arguments; whole: there is no graph break; hit: calls with equal arguments are
    answered by an entry from the second on; again: all calls get the same objects, rather than
    fresh copies; names: globals that fn changes, restored before each run; factory: fn() makes the
    function; line: the innermost line of the user's in the traceback is compared as well; sets:
    a list of argument tuples, one for each call, instead of args.
    """
    if mode == "broken":
        fn, whole, mode = broken(fn), False, "eager"
    if fn.__name__ in PARTIAL:
        whole = hit = False
    sets = sets if sets is not None else [args] * calls
    space = fn.__globals__
    before = {name: copy.deepcopy(space[name]) for name in names if name in space}

    def restore():
        for name in names:
            space.pop(name, None)
        space.update(copy.deepcopy(before))

    def run(called, wrapped):
        restore()
        inputs = copy.deepcopy((sets[0], kwargs or {}))
        for i in range(len(sets)):
            if not again:
                inputs = copy.deepcopy((sets[i], kwargs or {}))
            hits = getattr(wrapped, "hits", 0)
            done = Outcome(called, *inputs)
            done.names = {name: space.get(name, "missing") for name in names}
            done.hit = getattr(wrapped, "hits", 0) > hits
            yield done

    gh.capture.reset()
    plain_fn = fn() if factory else fn
    captured_fn = fn() if factory else fn
    if mode == "inlined":
        captured_fn = through(captured_fn)
    compiler = "program" if mode == "program" else "eager"
    captured = gh.optimize(compiler, dynamic=dynamic)
    if mode == "context":
        captured, hit = inside(captured, captured_fn), False
    else:
        captured = captured(captured_fn)
    tolerance = max(tolerance, 1e-6 if mode == "program" else 0.0)
    keep = frozen if again or names else (lambda done: done)
    plain = [keep(done) for done in run(plain_fn, None)]
    gc.disable()  # nothing may depend on when garbage is looked for
    try:
        for i, got in enumerate(run(captured, captured)):
            compare(plain[i], got, f"call {i + 1}", tolerance, line)
            if hit and i and sets[i] is sets[i - 1]:
                assert got.hit, f"call {i + 1}: no entry answered it"
    finally:
        gc.enable()
        restore()
    if whole:
        assert gh.capture.counters["breaks"] == 0, "there was a graph break"


def frozen(done):
    """An outcome as it is now, since later calls change its objects."""
    words = {"args": done.args, "kwargs": done.kwargs, "result": done.result, "names": done.names}
    done.__dict__.update(copy.deepcopy(words))
    return done


def compare(want: Outcome, got: Outcome, where: str, tolerance: float, line: bool) -> None:
    """Compare two outcomes of the same call."""
    if got.error is not None and want.error is None:
        raise AssertionError(f"{where}: raised {got.error!r}") from got.error
    if want.error is not None and got.error is None:
        raise AssertionError(f"{where}: did not raise {want.error!r}; gave {got.result!r}")
    match = Match(tolerance)
    if want.error is not None:
        match.errors(want.error, got.error, f"{where}, exception")
    match.values(want.args, got.args, f"{where}, arguments")
    match.values(want.kwargs, got.kwargs, f"{where}, keywords")
    match.values(want.names, got.names, f"{where}, globals")
    match.values(want.result, got.result, f"{where}, result")
    assert want.printed == got.printed, f"{where}: printed {got.printed!r}, not {want.printed!r}"
    if line and want.error is not None:
        assert innermost(want.error) == innermost(got.error), f"{where}: line of the exception"


def innermost(error: BaseException):
    """(file, line) of the innermost frame outside the library."""
    result, at = None, error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            result = code.co_filename, at.tb_lineno
        at = at.tb_next
    return result


class Match:
    """A comparison of two structures, whose shared parts must be shared in the same places."""

    def __init__(self, tolerance=0.0):
        self.tolerance = tolerance
        self.forth: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.kept: list = []

    def fail(self, where, want, got, what="differs"):
        raise AssertionError(f"{where} {what}: got {got!r:.300}, not {want!r:.300}")

    def errors(self, want, got, where):
        if want is None or got is None:
            if want is not got:
                self.fail(where, want, got)
            return
        if id(want) in self.forth:
            self.seen(want, got, where)
            return
        self.seen(want, got, where)
        self.types(want, got, where)
        if str(want) != str(got):
            self.fail(where, want, got)
        self.values(want.args, got.args, f"{where}.args")
        self.values(vars(want), vars(got), f"{where}.__dict__")
        self.errors(want.__cause__, got.__cause__, f"{where}.__cause__")
        self.errors(want.__context__, got.__context__, f"{where}.__context__")
        if want.__suppress_context__ != got.__suppress_context__:
            self.fail(where, want, got, "differs in __suppress_context__")

    def types(self, want, got, where):
        a, b = type(want), type(got)
        if a is not b and not alike_classes(a, b):
            self.fail(where, want, got, f"is a {b.__qualname__}, not a {a.__qualname__}")

    def seen(self, want, got, where) -> bool:
        """Whether the pair was met before; both or none must have been."""
        partners = self.forth.get(id(want)), self.back.get(id(got))
        if partners == (None, None):
            self.forth[id(want)], self.back[id(got)] = id(got), id(want)
            self.kept.append((want, got))
            return False
        if partners != (id(got), id(want)):
            self.fail(where, want, got, "is another object than elsewhere")
        return True

    def values(self, want, got, where):
        if want is got and not isinstance(want, (list, dict, set, gh.Tensor)):
            return
        self.types(want, got, where)
        if isinstance(want, (float, complex)):
            if not close(want, got, self.tolerance):
                self.fail(where, want, got)
            return
        if (
            isinstance(want, (*PLAIN, Enum, range, slice))
            or type(want).__module__ == "builtins"
            and (isinstance(want, (frozenset, types.CodeType)))
        ):
            if want != got:
                self.fail(where, want, got)
            return
        if isinstance(want, tuple):
            if id(want) in self.forth and self.forth[id(want)] != id(got):
                self.fail(where, want, got, "is not the tuple that came before")
            if want:
                self.forth[id(want)] = id(got)
                self.kept.append((want, got))
            self.sequence(want, got, where)
            return
        if self.seen(want, got, where):
            return
        self.contents(want, got, where)

    def sequence(self, want, got, where):
        if len(want) != len(got):
            self.fail(where, want, got, "has another length")
        for i, (x, y) in enumerate(zip(want, got, strict=True)):
            self.values(x, y, f"{where}[{i}]")

    def mapping(self, want, got, where):
        if len(want) != len(got):
            self.fail(where, want, got, "has other keys")
        # In order: a key whose hash has changed since is not found.
        for (x, one), (y, two) in zip(items_of(want), items_of(got), strict=True):
            self.values(x, y, f"{where}, a key")
            self.values(one, two, f"{where}[{x!r}]")

    def contents(self, want, got, where):
        if isinstance(want, gh.Tensor):
            self.tensors(want, got, where)
        elif isinstance(want, np.ndarray):
            if want.dtype != got.dtype or want.shape != got.shape:
                self.fail(where, want, got)
            np.testing.assert_allclose(got, want, rtol=self.tolerance, err_msg=where)
        elif isinstance(want, type):
            if not alike_classes(want, got):
                self.fail(where, want, got)
        elif isinstance(want, types.FunctionType):
            self.functions(want, got, where)
        elif isinstance(want, types.MethodType):
            self.values(want.__self__, got.__self__, f"{where}.__self__")
            self.values(want.__func__, got.__func__, f"{where}.__func__")
        elif isinstance(want, types.BuiltinMethodType):
            if want.__name__ != got.__name__:
                self.fail(where, want, got)
            self.values(want.__self__, got.__self__, f"{where}.__self__")
        elif isinstance(want, types.ModuleType):
            self.fail(where, want, got)
        elif isinstance(want, BaseException):
            if str(want) != str(got):
                self.fail(where, want, got)
            self.values(want.args, got.args, f"{where}.args")
        else:
            self.objects(want, got, where)

    def functions(self, want, got, where):
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            if getattr(want, name) != getattr(got, name):
                self.fail(f"{where}.{name}", want, got)
        if want.__code__.co_code != got.__code__.co_code:
            self.fail(f"{where}.__code__", want, got)
        for name in ("__defaults__", "__kwdefaults__", "__dict__", "__annotations__"):
            self.values(getattr(want, name), getattr(got, name), f"{where}.{name}")
        self.sequence(want.__closure__ or (), got.__closure__ or (), f"{where}.__closure__")

    def objects(self, want, got, where):
        """Containers and objects of classes, with their attributes."""
        if isinstance(want, types.CellType):
            self.values(cell_contents(want), cell_contents(got), where)
            return
        if isinstance(want, (dict, types.MappingProxyType)):
            self.mapping(want, got, where)
        elif isinstance(want, (list, deque)):
            self.sequence(want, got, where)
        elif isinstance(want, (set, frozenset)):
            self.sets(want, got, where)
        elif hasattr(type(want), "__next__") and type(want).__module__ in ("builtins", "itertools"):
            self.sequence(first(want), first(got), f"{where}, what is left of it")
        elif type(want).__module__ == "builtins" and hasattr(want, "__len__"):
            self.sequence([*want], [*got], where)
        if isinstance(want, defaultdict):
            self.values(want.default_factory, got.default_factory, f"{where}.default_factory")
        own = [attributes(x) for x in (want, got)]
        if set(own[0]) != set(own[1]):
            self.fail(where, own[0], own[1], "has other attributes")
        for name in own[0]:
            self.values(own[0][name], own[1][name], f"{where}.{name}")
        opaque = not own[0] and not isinstance(want, (dict, list, set, frozenset, deque))
        if opaque and type(want).__eq__ is not object.__eq__ and want != got:
            self.fail(where, want, got)

    def sets(self, want, got, where):
        if len(want) != len(got):
            self.fail(where, want, got, "has another length")
        plain = all(isinstance(x, (*PLAIN, tuple, frozenset, Enum)) for x in want)
        if plain and want != got:
            self.fail(where, want, got)

    def tensors(self, want, got, where):
        for name in ("shape", "dtype", "requires_grad"):
            if getattr(want, name) != getattr(got, name):
                self.fail(f"{where}.{name}", getattr(want, name), getattr(got, name))
        x, y = want.detach().numpy(), got.detach().numpy()
        if x.dtype.kind in "biu" or not self.tolerance:
            ok = np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")
        else:
            ok = np.allclose(x, y, rtol=self.tolerance, atol=self.tolerance, equal_nan=True)
        if not ok:
            self.fail(where, want, got)
        if (want.grad is None) != (got.grad is None):
            self.fail(f"{where}.grad", want.grad, got.grad)
        if want.grad is not None:
            self.values(want.grad, got.grad, f"{where}.grad")


def alike_classes(a: type, b: type) -> bool:
    """Whether two classes were made by the same class statement."""
    names = [x.__name__ for x in a.__mro__], [x.__name__ for x in b.__mro__]
    keys = [{k for k in vars(x) if not k.startswith("_abc")} for x in (a, b)]
    local = (
        "<locals>" in a.__qualname__
        or a.__module__ == b.__module__
        and "builtins" not in a.__module__
    )
    return (
        local and a.__qualname__ == b.__qualname__ and names[0] == names[1] and keys[0] == keys[1]
    )


def attributes(x) -> dict:
    """The attributes of an object: of its dict and its slots."""
    results = dict(getattr(x, "__dict__", None) or {})
    for cls in type(x).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                results[name] = getattr(x, name)
    return results


def cell_contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


def first(iterator) -> list:
    """Return the items that an iterator has left, up to a limit, and the exception that it
    raises."""
    results = []
    try:
        for x in iterator:
            results.append(x)
            if len(results) == LAZY_ITEMS:
                break
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
    return results


def items_of(mapping):
    """The items that a mapping has, whatever its class makes of `items`."""
    return dict.items(mapping) if isinstance(mapping, dict) else mapping.items()


def close(a, b, tolerance) -> bool:
    if isinstance(a, complex):
        return close(a.real, b.real, tolerance) and close(a.imag, b.imag, tolerance)
    if a != a or b != b:
        return a != a and b != b
    if a == b:
        return math.copysign(1.0, a) == math.copysign(1.0, b)
    return math.isclose(a, b, rel_tol=max(tolerance, 1e-7))


class Counting:
    """A compiler that keeps its graphs and counts their runs."""

    def __init__(self):
        self.graphs, self.runs = [], 0

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)

        def run(*inputs):
            self.runs += 1
            return gm.forward(*inputs)

        return run


def X(*shape, seed=1, dtype="float32"):
    """A tensor of normal numbers."""
    return gh.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))
