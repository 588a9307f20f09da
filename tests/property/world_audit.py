"""An audit of what captured functions say that they read: each thing is changed by itself after two
calls, and the third call, captured, must do what plain Python does.

`audit(text, steps, mode)` does it for the function of a world of `random_worlds`."""

import random
import sys
import types
from functools import partial
from importlib import import_module

import world_differential as worlds
from random_worlds import LIBRARIES, NOT_AUDITED

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.capture.guards.class_reads import is_behaviour
from glasshouse.capture.guards.program import read_source
from glasshouse.capture.sessions.session import CaptureSession
from glasshouse.capture.values.var import ValueSource

MOST_CHANGES = 10  # of one function
pick_mode, kind_of = worlds.pick_mode, worlds.kind_of
make_parts = partial(worlds.make_parts, without=NOT_AUDITED)
script_of, NAME = worlds.script_of, worlds.NAME


ENDS = {"__next__": StopIteration, "__getitem__": IndexError}  # what ends an iteration


def make_replacement(name):
    """A function to stand where there was another one; no iteration over it is endless."""

    def replacement(*args, **kwargs):
        if name in ENDS:
            raise ENDS[name]
        return 5

    return replacement


def other(value, name=None):
    """A value that is not equal to this one, of the same kind where that can be; `name` is that
    under which a class has it."""
    if type(value) is bool:
        return not value
    if type(value) in (int, float, complex, str, bytes, tuple):
        return value + {str: "x", bytes: b"x", tuple: (1,)}.get(type(value), 1)
    if isinstance(value, (types.FunctionType, staticmethod, classmethod, property)):
        return make_replacement(name)
    if worlds.is_tensor(value):
        return value.detach() + 1
    if type(value) in (list, dict, set):
        return type(value)()
    return 1 if value is None else None


def is_in_the_world(source: ValueSource, names: dict) -> bool:
    """Whether what has the value belongs to the world: nothing else is put back. A path that begins
    at an argument does not, which calls vary anyway."""
    path = [source]
    while path[-1].base is not None:
        path.append(path[-1].base)
    values = [read_source(x, ()) for x in path[1:]] if path[-1].kind == "const" else []
    first = values[-1] if values else None
    values += [owner_of(x) for x in path if x.kind == "lookup"] if values else []
    begins = first is names or getattr(first, "__module__", None) == NAME
    return begins and not any(
        isinstance(x, types.ModuleType) or isinstance(x, type) and x.__module__ != NAME
        for x in values
    )


def owner_of(source: ValueSource) -> type | None:
    """The class that has the class attribute at a source; None if it was deleted."""
    cls = read_source(source.base, ())
    return next((c for c in cls.__mro__ if source.key in vars(c)), None)


def change_at(source: ValueSource) -> None:
    """Put another value where a source reads one."""
    base, key = read_source(source.base, ()), source.key
    value = read_source(source, ())
    if source.kind in ("get", "item"):
        base[key] = other(value)
    elif source.kind == "cell":
        base.cell_contents = other(value)
    elif source.kind == "lookup":
        setattr(owner_of(source), key, other(value, key))
    elif source.kind == "attr":
        setattr(base, key, other(value))


class KeptReads:
    """Keeps, of each trace, all paths that it made and the classes that it read."""

    def __init__(self):
        self.sources: list[ValueSource] = []
        self.classes: list[type] = []
        self.install = CaptureSession.install

    def __enter__(self):
        def install(session, *args):
            tracer = session.tracer
            self.sources = list(tracer.guards.sources.values())
            self.classes = list(tracer.guards.classes.behaviours)
            return self.install(session, *args)

        CaptureSession.install = install
        return self

    def __exit__(self, *exc_info):
        CaptureSession.install = self.install


def changes(reads: KeptReads, names: dict) -> dict[str, object]:
    """Return a change to each thing that a trace read, by name."""
    results = {}
    for source in reads.sources:
        if source.base is not None and is_in_the_world(source, names):
            results[f"{source.kind} {source.text}"] = partial(change_at, source)
    for cls in (x for x in reads.classes if x.__module__ == NAME):
        for name in [x for x in vars(cls) if is_behaviour(x, vars(cls)[x])]:
            if name not in ("__dict__", "__weakref__", "__getattribute__"):
                change = partial(setattr, cls, name, other(vars(cls)[name], name))
                results[f"{cls.__qualname__}.{name}"] = change
    return results


def run(text: str, step: str, library: str, mode: str, number: int, captured: bool):
    """(names of the changes, what the third call does) after the change of a number."""
    module = types.ModuleType(NAME)
    names = vars(module)
    digits = worlds.TOLERANCE if mode == "program" else None
    with worlds.restored(import_module(library)):
        sys.modules[NAME] = module
        exec(worlds.PRELUDES[library], names)
        exec(compile(text, "<world>", "exec"), names)
        plain = names["fn"]
        names["call"] = fast = gh.optimize(mode)(plain)
        with KeptReads() as reads:
            for _ in range(2):
                worlds.run_step(step, names, digits)
        result = changes(reads, names)
        keys = sorted(result)
        if not 0 <= number < len(keys):
            return keys, None
        try:
            result[keys[number]]()
        except Exception:  # it cannot be set
            return keys, None
        names["call"] = fast if captured else plain
        return keys, worlds.run_step(step, names, digits)


def audit(text: str, steps: list[str], mode: str) -> int:
    """Compare the third call for the changes of a world; the number of changes."""
    library, compiler = mode.split("-")
    step = next(x for x in steps if x.startswith("call("))
    play = partial(run, text, step, LIBRARIES[library], compiler)
    gh.reset()
    with flags.override(compile="never"):
        try:
            keys, _ = play(-1, True)
        except Exception:  # of the module itself
            return 0
        numbers = list(range(len(keys)))
        chosen = random.Random(text).sample(numbers, min(MOST_CHANGES, len(numbers)))
        for number in sorted(chosen):
            want, got = (play(number, captured) for captured in (False, True))
            if want[0] != got[0] or number >= len(want[0]):
                continue  # the world is not the same each time
            if want[1] != got[1]:
                where, a, b = worlds.first_difference(want[1], got[1])
                raise AssertionError(
                    f"{step} after {want[0][number]} changed, result{where}: expected {a}, got {b}"
                )
    return len(chosen)


def check_seed(seed: int, mode: str) -> int:
    """Audit the world of a seed."""
    text, steps = make_parts(seed, mode)
    try:
        return audit(text, steps, mode)
    except Exception as error:
        options = f"--world --audit --seed {seed} --functions 1 --mode {mode}"
        again = f"python tools/fuzzers/fuzz_capture.py {options}"
        raise AssertionError(f"seed {seed}, {mode}: {error}\n\n{text}\n{again}") from error


def failure_of(text: str, steps: list[str], mode: str) -> str | None:
    """The kind of difference of a world under audit; None if there is none."""
    try:
        audit(text, steps, mode)
    except Exception as error:
        return kind_of(error)
    return None


minimise = worlds.minimise
