"""Copies of all that a function may read or write, and their comparison after two runs."""

import copy
import io
import math
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base.flags import flags
from glasshouse.capture.bytecode.native import native
from glasshouse.dispatch import backend as backends
from glasshouse.nn.module import Module
from glasshouse.optim import LRScheduler, Optimizer
from glasshouse.tensor import Tensor, random

OURS = (Module, Optimizer, LRScheduler, random.Generator)
# How far results may be apart, as a part of the largest value: the order of sums is not fixed.
TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4}
COARSE = 4e-2  # for types of 16 bits and below
LIMIT_DEPTH = 40


class Outcome(NamedTuple):
    """How a call ended: with a value, or an error."""

    value: Any
    error: BaseException | None = None


class Difference(NamedTuple):
    """The first place where two worlds differ, as Python, and its value in each."""

    where: str
    wanted: str
    got: str


class World:
    """A function with the arguments of a call; `roots` has all that it may change, by name."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    @property
    def roots(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        function = self.fn
        if isinstance(function, types.MethodType):
            values["self"], function = function.__self__, function.__func__
        if isinstance(function, types.FunctionType):
            code = function.__code__
            names = code.co_varnames[bool(values) : code.co_argcount]
            values |= dict(zip(names, self.args, strict=False))
            values |= {f"*args[{i}]": x for i, x in enumerate(self.args[len(names) :])}
            values |= outside(function)
        else:
            values["module"] = function
            values |= {f"args[{i}]": x for i, x in enumerate(self.args)}
        return {**values, **self.kwargs}

    def copied(self) -> "World":
        """The same function with copies of everything; values that cannot be copied are shared."""
        copier = Copier()
        return World(copier.copy(self.fn), copier.copy(self.args), copier.copy(self.kwargs))

    def run_plain(self) -> Outcome:
        """Call the function uncaptured, printing nothing. The generators of random numbers are as
        they were before."""
        mode = native().set_mode(2)  # nothing inside is captured
        try:
            with redirect_stdout(io.StringIO()), generators_kept():
                return self.run(self.fn)
        finally:
            native().set_mode(mode)

    def run(self, fn: Any) -> Outcome:
        """How a call with these arguments ends. All is compiled, as captured graphs are: so equal
        Programs give equal bits."""
        with flags.override(compile="always"):
            outcome = outcome_of(fn, self.args, self.kwargs)
            backends.current().sync()
        return outcome

    def difference(self, other: "World") -> Difference | None:
        """Where another world, which was this one, is not like it; None if it is."""
        comparison, mine, theirs = WorldComparison(), self.roots, other.roots
        for name in mine:
            difference = comparison.compare(name, mine[name], theirs.get(name))
            if difference is not None:
                return difference
        return None


class FirstDraws(list[Any]):
    """Gets (generator, key) of each draw; notes how many each generator had made before."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[Any, ...]] = {}

    def append(self, draw: tuple[Any, ...]) -> None:
        generator = draw[0]
        self.before.setdefault(id(generator), (generator, generator.draws - 1))


@contextmanager
def generators_kept() -> Iterator[None]:
    """Context: afterwards generators of random numbers continue as if nothing had been drawn."""
    draws = FirstDraws()
    random.observers.append(draws)
    try:
        yield
    finally:
        random.observers[:] = [x for x in random.observers if x is not draws]
        for generator, count in draws.before.values():
            generator.draws = count


def outcome_of(fn: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Outcome:
    try:
        return Outcome(fn(*args, **kwargs))
    except Exception as error:
        return Outcome(None, error)


def outside(fn: types.FunctionType) -> dict[str, Any]:
    """The values that a function reads from its closure, and those globals that may change."""
    values = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    for name in sorted(names_of(fn.__code__)):
        if name in fn.__globals__ and may_change(fn.__globals__[name]):
            values[name] = fn.__globals__[name]
    return values


def names_of(code: types.CodeType) -> set[str]:
    """The global names in a function and those inside it."""
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return {*code.co_names}.union(*map(names_of, inner))


def may_change(value: Any) -> bool:
    """Whether a value may be written to: a tensor, a container, a user's object."""
    if isinstance(value, (Tensor, list, dict, set, *OURS)):
        return True
    if isinstance(value, types.FunctionType):
        return not is_from_library(value.__module__)
    fixed = (type, types.ModuleType, types.BuiltinFunctionType)
    if isinstance(value, fixed) or is_from_library(type(value).__module__):
        return False
    return hasattr(value, "__dict__")


def is_from_library(module: str | None) -> bool:
    name = (module or "").partition(".")[0]
    return name in ("glasshouse", "builtins", "numpy", "functools", "typing", "collections")


class Copier:
    """Copies values together: references to one object become references to one copy."""

    def __init__(self) -> None:
        self.memo: dict[int, Any] = {}
        self.globals: dict[
            int, dict[Any, Any]
        ] = {}  # copies of modules' names, by the id of the original

    def copy(self, value: Any) -> Any:
        if id(value) in self.memo:
            return self.memo[id(value)]
        if isinstance(value, types.FunctionType) and may_change(value):
            return self.copy_function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self.copy(value.__func__), self.copy(value.__self__))
        if type(value) in (tuple, list):
            return (
                type(value)([self.copy(x) for x in value])
                if type(value) is tuple
                else (self.copy_list(value))
            )
        if not may_change(value):
            return value
        try:
            return copy.deepcopy(value, self.memo)
        except Exception:  # a file, a lock, …: both have it
            return value

    def copy_list(self, value: list[Any]) -> list[Any]:
        clone = self.memo[id(value)] = []
        clone.extend(self.copy(x) for x in value)
        return clone

    def copy_function(self, fn: types.FunctionType) -> types.FunctionType:
        """A function that reads copies of the values that fn reads."""
        names = self.globals.get(id(fn.__globals__))
        if names is None:
            names = self.globals[id(fn.__globals__)] = dict(fn.__globals__)
        cells = tuple(types.CellType() for _ in fn.__closure__ or ())
        clone = types.FunctionType(fn.__code__, names, fn.__name__, fn.__defaults__, cells)
        clone.__kwdefaults__ = fn.__kwdefaults__
        clone.__dict__.update(fn.__dict__)
        self.memo[id(fn)] = clone
        for cell, old in zip(cells, fn.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self.copy(old.cell_contents)
            except ValueError:  # not set yet
                continue
        for name in sorted(names_of(fn.__code__)):
            if name in fn.__globals__:
                names[name] = self.copy(fn.__globals__[name])
        return clone


class WorldComparison:
    """Compares two values and all that is in them."""

    def __init__(self) -> None:
        self.visited: set[tuple[int, int]] = set()

    def compare(self, where: str, want: Any, got: Any, depth: int = 0) -> Difference | None:
        """The first difference between the wanted value and the one found."""
        if want is got or (id(want), id(got)) in self.visited or depth > LIMIT_DEPTH:
            return None
        self.visited.add((id(want), id(got)))
        if isinstance(want, Tensor) and isinstance(got, Tensor):
            return self.compare_tensors(where, want, got)
        if type(want) is not type(got):
            return Difference(where, brief(want), brief(got))
        if isinstance(want, (bool, int, str, bytes, float, complex, type(None), np.generic)):
            return None if equal_numbers(want, got) else Difference(where, repr(want), repr(got))
        if isinstance(want, np.ndarray):
            return compare_arrays(where, want, got)
        if isinstance(want, (list, tuple)):
            pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(want, got))]
            return self.compare_parts(where, len(want), len(got), pairs, depth)
        if isinstance(want, dict):
            pairs = [
                (f"{where}[{brief(k)}]", a, b) for (k, a), b in zip(want.items(), got.values())
            ]
            return self.compare_parts(where, len(want), len(got), pairs, depth)
        if isinstance(want, (set, frozenset)):
            return self.compare_parts(where, len(want), len(got), [], depth)
        if may_change(want) and not isinstance(want, types.FunctionType):
            mine, theirs = vars(want), vars(got)
            pairs = [(f"{where}.{k}", mine[k], theirs.get(k)) for k in mine]
            return self.compare_parts(where, len(mine), len(theirs), pairs, depth)
        return None

    def compare_parts(
        self, where: str, expected: int, got: int, pairs: list[Any], depth: int
    ) -> "Difference | None":
        if expected != got:
            return Difference(f"len({where})", str(expected), str(got))
        differences = (self.compare(name, a, b, depth + 1) for name, a, b in pairs)
        return next((x for x in differences if x is not None), None)

    def compare_tensors(self, where: str, want: Tensor, got: Tensor) -> Difference | None:
        for name in ("spec", "requires_grad"):
            one, two = getattr(want, name), getattr(got, name)
            if one != two:
                return Difference(f"{where}.{name}", str(one), str(two))
        if want.mode is not None or got.mode is not None:
            return None
        difference = compare_arrays(where, want.detach().numpy(), got.detach().numpy())
        if difference is not None:
            return difference
        gradient, other = want.__dict__.get("grad"), got.__dict__.get("grad")
        return self.compare(f"{where}.grad", gradient, other)


def compare_arrays(where: str, want: np.ndarray, got: np.ndarray) -> Difference | None:
    if want.shape != got.shape or want.dtype != got.dtype:
        shown = (f"{x.dtype}{list(x.shape)}" for x in (want, got))
        return Difference(where, *shown)
    error = largest_error(want, got)
    if error <= tolerance_of(want.dtype):
        return None
    at = where_largest(want, got)
    name = f"{where}[{', '.join(map(str, at))}]" if at else where
    by = f": {error:.3g} of the largest value" if want.any() else ""
    return Difference(f"{name} (the largest error{by})", str(want[at]), str(got[at]))


def largest_error(want: np.ndarray, got: np.ndarray, least: float = 1e-6) -> float:
    """The largest |want - got| as a part of the largest |want|, or of `least` if that is more;
    inf if only one is NaN."""
    if want.size == 0:
        return 0.0
    if want.dtype.kind not in "fcV" and want.dtype.name != "bfloat16":
        return 0.0 if np.array_equal(want, got) else math.inf
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(wide), got.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b)[~same]
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    if not np.isfinite(error).all():
        return math.inf
    return float(error.max() / max(scale, least))


def where_largest(want: np.ndarray, got: np.ndarray) -> tuple[int, ...]:
    """The index of the largest error."""
    if want.dtype.kind in "fc" or want.dtype.name == "bfloat16":
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):
            error = np.abs(want.astype(wide) - got.astype(wide))
        error = np.where(np.isnan(error), np.inf, error)
    else:
        error = want != got
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), want.shape))


def tolerance_of(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "biu":
        return 0.0
    return TOLERANCE.get(dtype.name, COARSE)


def equal_numbers(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isnan(a) and math.isnan(b) or math.isclose(a, b, rel_tol=1e-4)
    return a == b


def brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {value.spec}"
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
