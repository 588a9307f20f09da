"""Runs a random world plainly and captured, and compares all that can be seen of the two; makes
failing worlds small, and scripts of them."""

import ast
import builtins
import contextlib
import decimal
import gc
import io
import itertools
import math
import operator
import os
import random
import re
import sys
import types
import warnings
from importlib import import_module
from importlib.util import find_spec
from unittest import mock

import numpy as np
from random_worlds import LEFT_OUT, LIBRARIES, PRELUDE, RandomWorld
from shrinking import fewest

import glasshouse as gh
from glasshouse.base.flags import flags

NAME = "random_world"
ADDRESS = re.compile(r"\b0x[0-9a-f]+")
TOLERANCE = 6  # digits that results of Programs keep
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")
WHOLE = (type(None), bool, bytes, type(Ellipsis), type(NotImplemented))
MOST_PATCHES = 20
LARGE = 1e7  # addresses and hashes of them are, which differ each time
CHANGED = (builtins, math, operator)  # modules that a world may change


class Picture:
    """A value as nested tuples, made without the methods of the user's classes. An object that was
    met before is its number, so that what is shared is seen too."""

    def __init__(self, digits: int | None):
        self.digits = digits
        self.met: dict[int, int] = {}
        self.held: list = []

    def of(self, value):
        cls = type(value)  # by identity: a metaclass may define equality
        if cls is int or cls is float or cls is complex:
            return self.number(value)
        if any(cls is kind for kind in WHOLE):
            return repr(value)
        if cls is str:
            return ADDRESS.sub("0x", value)
        if cls is types.BuiltinFunctionType:
            return value.__name__
        if cls is types.ModuleType and not re.fullmatch(r"m\d", value.__name__):
            return value.__name__
        if cls is tuple or cls is frozenset:  # which object one is says little
            return cls.__name__, self.items(value)
        if id(value) in self.met:
            return "same as", self.met[id(value)]
        self.met[id(value)] = len(self.met)
        self.held.append(value)
        return self.contents(value, cls)

    def number(self, value):
        if abs(value) > LARGE:
            return "large"
        if self.digits and type(value) is float and math.isfinite(value):
            return f"{value + 0.0:.{self.digits}g}"  # a Program's zeros have any sign
        return repr(value)

    def contents(self, value, cls):
        name = type.__dict__["__name__"].__get__(cls)
        if is_tensor(value):
            return self.tensor(value, name)
        if issubclass(cls, np.ndarray | np.generic):
            return name, str(value.dtype), value.shape, self.of(value.tolist())
        if issubclass(cls, type):
            return self.class_of(value)
        if cls is types.FunctionType:
            return self.function(value)
        if cls is types.MethodType:
            return name, self.of(value.__self__), self.of(value.__func__)
        if cls is types.CellType:
            return name, self.cell(value)
        if cls is property or cls is staticmethod or cls is classmethod:
            return name, self.of(value.fget if cls is property else value.__func__)
        if issubclass(cls, BaseException):
            return (
                name,
                safe_text(value),
                self.of(vars(value)),
                self.of(BaseException.args.__get__(value)),
            )
        return name, self.items(value), self.attributes(value)

    def items(self, value):
        if issubclass(type(value), dict):
            return tuple((self.of(k), self.of(v)) for k, v in dict.items(value))
        for kind in (list, tuple):
            if issubclass(type(value), kind):
                return tuple(map(self.of, kind.__iter__(value)))
        for kind in (set, frozenset):
            if issubclass(type(value), kind):
                return tuple(sorted(str(self.of(x)) for x in kind.__iter__(value)))
        for kind in (int, float, str):
            if issubclass(type(value), kind):
                return kind.__repr__(value)
        if type(value).__module__ in ("collections", "array", "builtins", "decimal", "functools"):
            return ADDRESS.sub("0x", safe_text(value)) if hasattr(type(value), "__len__") else ""
        return ""

    def attributes(self, value):
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            own = {}
        results = []
        for k, v in own.items():
            # The keys of a layer's hooks count up in the process.
            part = list(v.values()) if str(k).endswith("_hooks") and isinstance(v, dict) else v
            results.append((k, self.of(part)))
        for cls in type.mro(type(value)):
            for k, slot in vars(cls).items():
                if type(slot) is types.MemberDescriptorType and cls.__module__ == NAME:
                    with contextlib.suppress(AttributeError):
                        results.append((k, self.of(slot.__get__(value))))
        return tuple(results)

    def class_of(self, cls):
        if cls.__dict__.get("__module__") != NAME and NAME not in str(vars(cls).get("__module__")):
            return "class", type.__dict__["__name__"].__get__(cls)
        bases = type.__dict__["__bases__"].__get__(cls)
        own = type.__dict__["__dict__"].__get__(cls)
        left = (
            "__dict__",
            "__weakref__",
            "_abc_impl",
            "__static_attributes__",
            "__firstlineno__",
            "__slotnames__",
        )
        pairs = [(k, self.of(v)) for k, v in own.items() if k not in left]
        return "class", tuple(map(self.of, bases)), tuple(pairs)

    def function(self, fn):
        if not fn.__code__.co_filename.startswith("<"):
            return "function", fn.__name__
        code = fn.__code__
        return (
            "function", fn.__name__, code.co_name, code.co_code.hex(), self.of(fn.__defaults__),
            self.of(fn.__kwdefaults__), self.of(vars(fn)),
            tuple(map(self.cell, fn.__closure__ or ())),
        )  # fmt: skip

    def cell(self, cell):
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "empty"

    def tensor(self, x, name):
        values = x.detach().tolist()
        text = self.of(values)
        grad = None if not x.is_leaf or x.grad is None else self.of(x.grad.tolist())
        return (
            name,
            str(x.dtype),
            tuple(x.shape),
            x.requires_grad,
            text,
            grad,
            self.of(getattr(x, "tag", None)),
        )


def is_tensor(value) -> bool:
    torch = sys.modules.get("torch")
    kinds = (gh.Tensor,) if torch is None else (gh.Tensor, torch.Tensor)
    return issubclass(type(value), kinds)


def safe_text(value) -> str:
    """str(value), or how it fails."""
    try:
        return ADDRESS.sub("0x", str(value))
    except Exception as error:
        return f"{type(error).__name__} in str()"


@contextlib.contextmanager
def restored(library):
    """Inside, process state may be changed; after it all is as it was."""
    owners = [*CHANGED, library.nn.LeakyReLU, library.nn.ReLU]
    before = [dict(vars(owner)) for owner in owners]
    environment, limit, collecting = dict(os.environ), sys.getrecursionlimit(), gc.isenabled()
    options = np.get_printoptions()
    gc.disable()
    random.seed(0)
    try:
        with decimal.localcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for owner, names in zip(owners, before, strict=True):
            put_back(owner, names)
        stop_patches()
        for name in [x for x in sys.modules if re.fullmatch(rf"m\d|{NAME}", x)]:
            del sys.modules[name]
        os.environ.clear()
        os.environ.update(environment)
        sys.setrecursionlimit(limit)
        np.set_printoptions(**options)
        library.set_grad_enabled(True)
        if hasattr(library, "set_default_dtype"):
            library.set_default_dtype(library.float32)
        if collecting:
            gc.enable()


def stop_patches() -> None:
    """Stop all patches, of what is not there any more too."""
    for _ in range(MOST_PATCHES):
        try:
            mock.patch.stopall()
            break
        except (AttributeError, TypeError):
            continue


def put_back(owner, names: dict) -> None:
    """Give a module or class the names that it had."""
    for name in vars(owner).keys() - names.keys():
        delattr(owner, name)
    now = vars(owner)
    for name, value in names.items():
        if name not in now or now[name] is not value:
            setattr(owner, name, value)


PRELUDES = {
    name: compile(PRELUDE.replace("LIB", name), f"<prelude of {name}>", "exec")
    for name in LIBRARIES.values()
}


def run_world(text: str, steps: list[str], library: str, mode: str, captured: bool) -> list:
    """Return all that can be seen of each step of a world, and of its state at the end."""
    module = types.ModuleType(NAME)
    names = vars(module)
    digits = TOLERANCE if mode == "program" else None
    with restored(import_module(library)):
        sys.modules[NAME] = module
        exec(PRELUDES[library], names)
        # A warning that capture gives leaves its registry in the module.
        usual = set(names) - {"l1", "log_table", "act"} | {"__warningregistry__"}
        exec(compile(text, "<world>", "exec"), names)
        names["call"] = gh.optimize(mode)(names["fn"]) if captured else names["fn"]
        outcomes = [(step, *run_step(step, names, digits)) for step in steps]
        del names["call"]
        end = {name: value for name, value in names.items() if name not in usual}
        outcomes.append(("the world", picture(end, digits), ""))
    return outcomes


def run_step(step: str, names: dict, digits) -> tuple:
    """Result or error of a step, and what it printed."""
    printed, out = io.StringIO(), sys.stdout
    try:
        sys.stdout = printed
        code = compile(step, "<step>", "eval" if step.startswith("call(") else "exec")
        result = eval(code, names)
    except Exception as error:
        result = "raised", type(error).__name__, safe_text(error)
    finally:
        sys.stdout = out
    return picture(result, digits), ADDRESS.sub("0x", printed.getvalue())


def picture(value, digits):
    try:
        return with_one_super_error(Picture(digits).of(value))
    except RecursionError:
        return "too deep"


# From 3.12 on, Python says the one while a `super().x` is cold and the other when it is warm, if
# the first argument is of another class: which one comes depends on the calls before.
SUPER_ERRORS = {
    "AttributeError": re.compile(r"'super' object has no attribute '\w+'"),
    "TypeError": re.compile(r"super\(type, obj\): obj .* subtype of type.*"),
}


def with_one_super_error(outcomes):
    """A picture in which both errors of a `super()` of another class's object are one."""
    if type(outcomes) is not tuple:
        return outcomes
    parts = [with_one_super_error(part) for part in outcomes]
    for i, (kind, text) in enumerate(itertools.pairwise(parts)):
        pattern = SUPER_ERRORS.get(kind) if type(kind) is type(text) is str else None
        if pattern and pattern.fullmatch(text):
            parts[i : i + 2] = "an error of", "super of another class"
    return tuple(parts)


def compare_world(text: str, steps: list[str], mode: str) -> None:
    """Compare a world's plain and captured runs; AssertionError where they differ. A mode is a
    library and a compiler, such as gh-eager."""
    library, compiler = mode.split("-")
    library = LIBRARIES[library]
    gh.reset()
    with (
        flags.override(compile="never"),
        gh.capture.config.override(raise_internal_errors=True, raise_compiler_errors=True),
    ):
        try:
            want = run_world(text, steps, library, compiler, False)
        except Exception:  # of the module itself
            return
        got = run_world(text, steps, library, compiler, True)
    for i, (one, two) in enumerate(zip(want, got, strict=True)):
        for what, a, b in zip(("result", "printed"), one[1:], two[1:], strict=True):
            if a != b:
                where, a, b = first_difference(a, b)
                raise AssertionError(f"step {i} {one[0]}, {what}{where}: expected {a}, got {b}")


def first_difference(a, b, where: str = ""):
    """Where two pictures differ first, and the parts there."""
    if type(a) is type(b) is tuple and len(a) == len(b):
        for i, (one, two) in enumerate(zip(a, b, strict=True)):
            if one != two:
                return first_difference(one, two, f"{where}[{i}]")
    return where, a, b


def pick_mode(seed: int, compiled: float, library: str = "") -> str:
    """The mode of a seed: of each library in turn; `compiled` is the part that makes Programs."""
    names = [name for name, module in LIBRARIES.items() if find_spec(module)]
    part = random.Random(f"mode {seed}").random()
    compiler = "program" if part < compiled else "eager"
    return f"{library or names[seed % len(names)]}-{compiler}"


def make_parts(seed: int, mode: str, without=LEFT_OUT) -> tuple[str, list[str]]:
    """The world of a seed as text, and its steps."""
    world = RandomWorld(seed, mode.partition("-")[0], frozenset(without))
    return world.text, world.steps


def check_seed(seed: int, mode: str, without=LEFT_OUT) -> None:
    """Compare the world of a seed; a difference has its text, and how to make it small."""
    text, steps = make_parts(seed, mode, without)
    try:
        compare_world(text, steps, mode)
    except Exception as error:
        options = f"--world --seed {seed} --functions 1 --mode {mode}"
        again = f"python tools/fuzzers/fuzz_capture.py {options}"
        shown = "\n".join([text, *steps, again])
        raise AssertionError(f"seed {seed}, {mode}: {error}\n\n{shown}") from error


# -- making failures small -------------------------------------------------------------------------


def failure_of(text: str, steps: list[str], mode: str) -> str | None:
    """The kind of difference of a world; None if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare_world(text, steps, mode)
    except Exception as error:
        return kind_of(error)
    return None


def kind_of(error: BaseException) -> str:
    """Return the part of a difference that stays the same while its world becomes smaller."""
    if not isinstance(error, AssertionError):
        return type(error).__name__
    return re.search(r", (result|printed)[^:]*: ", str(error))[1]


def minimise(text: str, steps: list[str], mode: str, fails_as=failure_of) -> tuple[str, list[str]]:
    """A small world, and few steps, that are found to fail in the same way."""
    kind = fails_as(text, steps, mode)

    def fails(text, steps) -> bool:
        return fails_as(text, steps, mode) == kind

    steps, before = fewest(steps, lambda some: fails(text, some)), ""
    while text != before:
        before, text = text, fewer_statements(text, lambda some: fails(some, steps))
    return text, fewest(steps, lambda some: fails(text, some))


def fewer_statements(text: str, fails) -> str:
    """A text with which it still fails; a block may stand for its try or with statement."""
    tree, at = ast.parse(text), 0
    while at < len(parts := statements(tree)):
        block, i = parts[at]
        removed = block.pop(i)
        inner = removed.body if isinstance(removed, ast.Try | ast.With) else []
        for swap in [inner, []] if inner else [[]]:
            block[i:i] = swap
            smaller = ast.unparse(tree) if block else ""
            if is_python(smaller) and fails(smaller):
                text = smaller
                break
            del block[i : i + len(swap)]
        else:
            block.insert(i, removed)
            at += 1
    return text


def is_python(text: str) -> bool:
    try:
        compile(text, "<world>", "exec")
    except SyntaxError:
        return False
    return bool(text)


def statements(tree: ast.Module) -> list[tuple[list, int]]:
    """(block, place) of each statement, outer and later ones first."""
    blocks = [getattr(node, name, None) for node in ast.walk(tree) for name in BLOCKS]
    return [
        (block, i)
        for block in blocks
        if isinstance(block, list)
        for i in reversed(range(len(block)))
    ]


# -- scripts ---------------------------------------------------------------------------------------

SCRIPT = """# {error}
import glasshouse as gh

gh.capture.config.raise_internal_errors = True
WORLD = '''
{world}
'''
STEPS = [
{steps}
]

for captured in (False, True):
    gh.reset()
    names = {{"__name__": "__main__"}}
    exec(WORLD, names)
    names["call"] = gh.optimize("{compiler}")(names["fn"]) if captured else names["fn"]
    print("captured" if captured else "plain")
    for step in STEPS:
        try:
            print("   ", eval(step, names)) if step[:5] == "call(" else exec(step, names)
        except Exception as error:
            print("   ", type(error).__name__, error)
"""


def script_of(text: str, steps: list[str], mode: str) -> str:
    """A script that shows a difference by itself."""
    library, compiler = mode.split("-")
    try:
        compare_world(text, steps, mode)
        error = "no difference"
    except Exception as raised:
        error = ascii(f"{type(raised).__name__}: {raised}")[1:-1]
    needed = needed_prelude(PRELUDE.replace("LIB", LIBRARIES[library]), "\n".join([text, *steps]))
    world = f"{needed}\n\n{text.strip()}".replace("\\", "\\\\")
    listed = "\n".join(f"    {step!r}," for step in steps)
    return SCRIPT.format(error=error, world=world, steps=listed, compiler=compiler)


def needed_prelude(prelude: str, text: str) -> str:
    """The definitions of the prelude that a text names, with those that these name."""
    kept: list[str] = []
    for node in reversed(ast.parse(prelude).body):
        names = {
            x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        }
        names |= {alias.asname or alias.name for alias in getattr(node, "names", ())}
        names |= {node.name} if hasattr(node, "name") else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [x for x in node.names if re.search(rf"\b{x.asname or x.name}\b", text)]
            if not node.names:
                continue
        elif not any(re.search(rf"\b{name}\b", text) for name in names):
            continue
        kept.insert(0, ast.unparse(node))
        text += "\n" + kept[0]
    return "\n".join(kept)
