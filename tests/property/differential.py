"""Runs a function's text plainly and captured, in worlds of their own, and compares all that can be
seen of the two after each call; makes failing texts small."""

import ast
import bisect
import collections
import contextlib
import copy
import dataclasses
import dis
import enum
import functools
import gc
import io
import itertools
import math
import operator
import random
import re
import sys
import warnings
import weakref

import numpy as np
from checking import Match
from random_functions import RandomFunction

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.flags import flags

FILE = "<random function>"
GLOBALS = "TOTAL LOG CACHE SHARED W LAYER".split()
MODES = {  # how a function is captured; whether its tensors require gradients
    "eager": ({"compiler": "eager"}, False),
    "dynamic": ({"compiler": "eager", "dynamic": True}, False),
    "gradients": ({"compiler": "eager"}, True),
    "program": ({"compiler": "program"}, False),
    "program_dynamic": ({"compiler": "glass", "dynamic": True}, False),
    "program_gradients": ({"compiler": "program"}, True),
}
TOLERANCE = 1e-5  # where operations are fused
MOST_CALLS = 15


class Own(Exception):
    pass


class Color(enum.Enum):
    RED = 0
    GREEN = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Point:
    a: int
    b: int = 0


Pair = collections.namedtuple("Pair", "a b")
OUTSIDE = {
    "gh": gh, "nn": nn, "math": math, "enum": enum, "copy": copy, "bisect": bisect,
    "operator": operator, "functools": functools, "itertools": itertools,
    "contextlib": contextlib, "collections": collections, "Own": Own, "Color": Color,
    "Point": Point, "Pair": Pair, "ACT": nn.ReLU(), "__name__": "random_function",
}  # fmt: skip


def pick_mode(seed: int, compiled: float) -> str:
    """The mode of a seed: `compiled` is the part of the functions that makes Programs."""
    at = random.Random(f"mode {seed}").random()
    if at < compiled:
        return ["program", "program_dynamic", "program_gradients"][int(at / compiled * 3)]
    at = (at - compiled) / (1 - compiled)
    return "eager" if at < 0.6 else "dynamic" if at < 0.8 else "gradients"


class CallSettings:
    """Settings from which the arguments of a call are made: sizes and numbers that change now and
    then."""

    def __init__(self, rng: random.Random, before: "CallSettings | None"):
        self.seed = rng.randrange(3)
        self.n = rng.choice([0, 1, 2, 3, 4, 5, -1, 7])
        self.size = rng.choice([1, 2, 3, 3, 4])
        self.items = [rng.randrange(5) for _ in range(rng.randrange(4))]
        self.table = rng.choice([{}, {"a": 1}, {"a": 2, "b": 0}])
        self.word = rng.choice(["a", "", "bcd"])
        self.dtype = rng.choice(["float32"] * 7 + ["int32"])
        if before is not None:  # most stays as it was
            for name in vars(self):
                if rng.random() < 0.7:
                    setattr(self, name, copy.copy(getattr(before, name)))


def make_settings(seed: int) -> list[CallSettings]:
    """3 to 15 calls."""
    rng, results = random.Random(f"calls {seed}"), []
    for _ in range(rng.choice([3, 3, 3, 4, 4, 5, 6, 8, MOST_CALLS])):
        results.append(CallSettings(rng, results[-1] if results else None))
    return results


class FunctionWorld:
    """A function with globals of its own, and how it is called."""

    def __init__(self, text: str, wrap, gradients: bool):
        self.told: list = []
        self.gradients = gradients
        self.names = {**OUTSIDE, "record": gh.disable(self.told.append), "TOTAL": 1, "LOG": [1]}
        self.names.update(CACHE={}, W=gh.asarray(np.float32([0.5, -1, 2, 1])))
        if gradients:
            self.names["W"].requires_grad = True
            gh.random.seed(0)
            self.names["LAYER"] = nn.Linear(1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of what a smaller text has come to
            code = compile(text, FILE, "exec")
        exec(code, self.names)
        self.called = wrap(self.names["fn"])

    def arguments(self, settings: CallSettings) -> list:
        rng = np.random.default_rng(settings.seed)
        x = gh.asarray((rng.integers(-6, 7, settings.size) / 2).astype(settings.dtype))
        if self.gradients and settings.dtype == "float32":
            x.requires_grad = True
        box = self.names["Box"](settings.n % 3) if "Box" in self.names else None
        items, table = list(settings.items), dict(settings.table)
        return [x, settings.n, items, table, box, settings.word, settings.n / 2]

    def call(self, settings: CallSettings) -> dict:
        """All that can be seen of one call, by name."""
        args, result, error = self.arguments(settings), None, None
        del self.told[:], self.names["LOG"][6:]
        printed, out = io.StringIO(), sys.stdout
        grad = gh.is_grad_enabled()
        try:
            sys.stdout = printed
            result = self.called(*args)
        except Exception as raised:
            error = raised
        finally:
            sys.stdout = out
            enabled = gh.is_grad_enabled()
            gh.set_grad_enabled(grad)
        lines = lines_of(error)
        if self.gradients and error is None:
            result = result, backward(result)
        outcome = {name: self.names.get(name) for name in GLOBALS}
        text = re.sub(r"\b0x[0-9a-f]+", "0x", printed.getvalue())  # addresses are others' each time
        outcome.update(args=args, result=result, told=self.told, printed=text)
        outcome.update(grad_enabled=enabled, error=error, lines=lines)
        if "Box" in self.names:
            outcome["count"] = self.names["Box"].count
        return outcome


def backward(result) -> str:
    """Gradients of the tensors among the results, into what they come from."""
    try:
        for x in result:
            if isinstance(x, gh.Tensor) and x.requires_grad and not x.is_leaf:
                x.sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def lines_of(error: BaseException | None) -> list:
    """(function, line) of the user's frames, of an error and of what it comes from; no frame is
    kept."""
    results, met = [], set()
    while error is not None and id(error) not in met:
        met.add(id(error))
        at, frames = error.__traceback__, []
        while at is not None:
            code = at.tb_frame.f_code
            if code.co_filename == FILE:
                frames.append((code.co_name, line_of(at, error)))
            at = at.tb_next
        results.append((type(error).__name__, frames))
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
    return results


def line_of(entry, error: BaseException) -> int:
    """The line of a traceback's entry. A warm function stores one local and loads another in one
    instruction, which has the line of the first: an error of the second is counted there."""
    if isinstance(error, UnboundLocalError) and entry.tb_next is None:
        steps = [
            x for x in dis.get_instructions(entry.tb_frame.f_code) if x.offset >= entry.tb_lasti
        ]
        loads = [x for x in steps if f"'{x.argval}'" in str(error)]
        if loads and loads[0].positions:
            return loads[0].positions.lineno
    return entry.tb_lineno


def compare_calls(want: dict, got: dict, tolerance: float) -> None:
    """Raises AssertionError where two calls differ."""
    if (want["error"] is None) != (got["error"] is None):
        error = got["error"] or want["error"]
        end = f"raised {got['error']!r}" if got["error"] else f"did not raise {want['error']!r}"
        raise AssertionError(f"error: {end}") from error
    for name in ("lines", "printed", "told", "grad_enabled"):
        if want[name] != got[name]:
            raise AssertionError(f"{name}: got {got[name]!r}, not {want[name]!r}")
    match = Match(tolerance)
    match.errors(want["error"], got["error"], "error")
    for name in ("result", "args", "count", *GLOBALS):
        match.values(want.get(name), got.get(name), name)


COUNTED = (list, dict, gh.Tensor, collections.OrderedDict)


def reference_counts(outcome: dict) -> dict[str, int]:
    """How often the arguments and globals, and what lies in them, are referred to, by place."""
    results: dict[str, int] = {}
    waiting = [(name, outcome[name]) for name in GLOBALS]
    waiting += [(f"args[{i}]", x) for i, x in enumerate(outcome["args"])]
    for name, value in waiting:
        inside = []
        if type(value) is list:
            inside = [(f"{name}[{i}]", i) for i in range(len(value))]
        elif type(value) is dict:
            inside = [(f"{name}[{key!r}]", i) for i, key in enumerate(value)]
        elif type(value).__name__ in ("Box", "Child"):
            inside = [(f"{name}.{key}", key) for key in vars(value)]
        for place, key in inside:
            item = item_at(value, key)
            if counted(item):
                results[place] = sys.getrefcount(item)
            del item
        if counted(value):
            results[name] = sys.getrefcount(value)
    return results


def item_at(value, place):
    """Return the item at a place of a list or Box; of a dict at a number, since hashes of keys
    change."""
    if type(value) is dict:
        return next(itertools.islice(value.values(), place, None))
    return value[place] if type(value) is list else vars(value)[place]


def counted(value) -> bool:
    return type(value) in COUNTED or type(value).__name__ in ("Box", "Child")


def compare_counts(want: dict, got: dict) -> None:
    """Nobody holds what plain Python lets go, and the other way round."""
    one, two = reference_counts(want), reference_counts(got)
    for place in one:
        if one[place] != two.get(place):
            raise AssertionError(f"references: {place} has {two.get(place)}, not {one[place]}")


def left_alive(world: FunctionWorld, outcome: dict) -> list:
    """Weak references to the arguments, which should go with the call."""
    return [weakref.ref(x) for x in outcome["args"] if isinstance(x, gh.Tensor) or counted(x)
            and not isinstance(x, (list, dict))]  # fmt: skip


def run_text(text: str, calls: list[CallSettings], mode: str, counts: bool = True) -> None:
    """Compare calls of a function's text; AssertionError where captured ones differ."""
    options, gradients = MODES[mode]
    gh.capture.reset()
    plain = FunctionWorld(text, lambda fn: fn, gradients)
    captured = FunctionWorld(text, lambda fn: gh.optimize(**options)(fn), gradients)
    fused = mode.startswith("program")
    tolerance = TOLERANCE if fused else 0.0
    # Equal bits need equal kernels: what recurs may else be compiled from one call to the next.
    policy = {} if fused else {"compile": "never"}
    alive: list[tuple] = []
    collecting = gc.isenabled()
    gc.disable()  # nothing may depend on when garbage is looked for
    try:
        # What comparing prints, through methods of the user's, is nobody's.
        with (
            contextlib.redirect_stdout(io.StringIO()),
            flags.override(**policy),
            gh.capture.config.override(raise_internal_errors=True, raise_compiler_errors=True),
        ):
            for i, settings in enumerate(calls):
                alive.append(
                    compare_once(plain, captured, settings, f"call {i}", tolerance, counts)
                )
        for i, pair in enumerate(alive):
            for one, two in zip(*pair, strict=True):
                if one() is None and two() is not None:
                    gc.collect()
                    assert two() is None, f"references: {two()!r} of call {i} lives on"
    finally:
        if collecting:
            gc.enable()


def compare_once(plain, captured, settings, where, tolerance, counts) -> tuple:
    """Compare one call; weak references to what it was given, of both."""
    want, got = plain.call(settings), captured.call(settings)
    try:
        compare_calls(want, got, tolerance)
        want["result"] = got["result"] = None  # a Program's backward has all its inputs
        if counts:
            compare_counts(want, got)
    except AssertionError as error:
        raise AssertionError(f"{where}, {error}") from error.__cause__
    return left_alive(plain, want), left_alive(captured, got)


def check_seed(seed: int, mode: str) -> None:
    """Compare the function of a seed; a failure has its text, and how to make it small."""
    text, calls = make_parts(seed, mode)
    try:
        run_text(text, calls, mode)
    except Exception as error:
        again = f"python tools/fuzzers/fuzz_capture.py --seed {seed} --functions 1 --mode {mode}"
        raise AssertionError(f"seed {seed}, {mode}: {error}\n\n{text}\n{again}") from error


def make_parts(seed: int, mode: str) -> tuple[str, list[CallSettings]]:
    """The function of a seed as text, and its calls."""
    return RandomFunction(seed, MODES[mode][1]).text, make_settings(seed)


def script_of(text: str, calls: list[CallSettings], mode: str) -> str:
    """A function, and the settings of its calls."""
    return "\n".join([text, *(f"    {vars(call)}" for call in calls)])


# -- making failures small -------------------------------------------------------------------------


def kind_of(error: BaseException) -> str:
    """Return the part of a failure that stays the same while its function becomes smaller."""
    text = str(error)
    if not isinstance(error, AssertionError):
        return type(error).__name__
    return text.partition(", ")[2].partition(":")[0].partition("[")[0].partition(".")[0]


def failure_of(text: str, calls, mode: str) -> str | None:
    """The kind of failure of a text; None if there is none or it cannot be compiled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_text(text, calls, mode)
    except AssertionError as error:
        return kind_of(error)
    except Exception:  # of the text itself: what calls raise is compared
        return None
    return None


def smaller_trees(tree: ast.Module):
    """Texts with one part less, or one part replaced by a smaller one; large cuts first."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list"):
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            for i in range(len(block)):
                kept = block[:]
                for swap in ([], *inner_blocks(block[i])):
                    block[i : i + 1] = swap
                    if not block and field == "body":
                        block[:] = [ast.Pass()]
                    if [*map(id, block)] != [*map(id, kept)] and not only_pass(block, kept):
                        yield ast.unparse(ast.fix_missing_locations(tree))
                    block[:] = kept
    for node in list(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for i, one in enumerate(values):
                if not isinstance(one, ast.expr) or isinstance(
                    getattr(one, "ctx", None), ast.Store
                ):
                    continue
                for other in smaller_expressions(one):
                    put(node, field, value, i, other)
                    yield ast.unparse(ast.fix_missing_locations(tree))
                    put(node, field, value, i, one)


def inner_blocks(node: ast.AST):
    """The blocks of a statement, those of its handlers and cases too: each may stand for it."""
    if not isinstance(node, ast.stmt):
        return
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(part, field, None), list) and block:
                yield block


def only_pass(block, kept) -> bool:
    """Whether a cut only writes `pass` again."""
    return len(block) == len(kept) == 1 and isinstance(kept[0], ast.Pass)


def put(node, field, value, i, other) -> None:
    if isinstance(value, list):
        value[i] = other
    else:
        setattr(node, field, other)


def smaller_expressions(node: ast.expr):
    """Parts of an expression, and a number."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return
    yield from (x for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr))
    yield ast.Constant(1)


def is_python(text: str) -> bool:
    """Whether a cut has left Python: not a `try` without a handler, say."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def minimise(text: str, calls: list, mode: str, fails=failure_of) -> tuple[str, list]:
    """The smallest text and the fewest calls that are found to fail in the same way."""
    kind = fails(text, calls, mode)
    assert kind is not None, "this does not fail"
    changed = True
    while changed:
        changed = False
        for i in range(len(calls) - 1, -1, -1):
            fewer = calls[:i] + calls[i + 1 :]
            if fewer and fails(text, fewer, mode) == kind:
                calls, changed = fewer, True
        going = True
        while going:
            going = False
            for smaller in filter(is_python, smaller_trees(ast.parse(text))):
                if len(smaller) < len(text) + 1 and fails(smaller, calls, mode) == kind:
                    text, going, changed = smaller, True, True
                    break
    return text, calls
