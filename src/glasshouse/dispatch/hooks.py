"""Hooks: the six places where lower storeys call upper ones without importing them.

| hook | set by | called by |
| --- | --- | --- |
| `tensor_class` | `tensor` | `box`: the class of the tensor around a result |
| `tape` | `autograd` | `run` and replay: puts calls with a tracked operand on the tape |
| `default_backend` | `dispatch.backend` | `run`: the backend of a thread that chose none |
| replay (seven) | `compile.replay` | `bind`, composed functions, tape, recordings, profiler |
| `optimize` | `capture.api` | `Module.compile` |
| `state.watchers` | who watches | `run`, `tell`, replay: see dispatch/watch.py |

The first three are set when their storey is imported, replay when the first Program is made.
Watchers belong to a thread; all other hooks serve all threads."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Tape(NamedTuple):
    """Functions of the tape that lower storeys call."""

    record: Callable[..., Any]  # record(call, args, result)
    entry: type[Any]  # of a recorded call, whose slots replay fills
    numbers: Any  # the counter that numbers entries


class Hooks:
    """All hooks. Those of replay, in force until native/replay.c is loaded and after that in
    `compile.replay.in_python()`, replay nothing: all runs in Python."""

    tensor_class: type[Any]
    tape: Tape
    default_backend: Callable[..., Any]
    optimize: Callable[..., Any]  # optimize(...) -> a decorator that captures

    run: Callable[..., Any]  # run(primitive, args, attrs) -> the result, with no mode left
    compose: Callable[
        ..., Any
    ]  # compose((fn, scalars, name), args, named), see dispatch/compose.py
    pull: Callable[
        ..., Any
    ]  # pull(entry, cotangents, create_graph) -> [(parent, cotangent)] | None
    mark_needed: Callable[..., Any]  # mark_needed(pending, roots) -> which nodes are needed | None
    encode: Callable[..., Any]  # encode(pending, needed) -> the parts of a recording | None
    release: Callable[..., Any]  # release(nodes): computed, they let go of their operands
    events: Any  # the class of what writes a profile's events of replayed calls | None

    def replay_by(self, source: Any) -> None:
        """Replay as a module or class says."""
        for name in REPLAY:
            setattr(self, name, getattr(source, name))


REPLAY = ("run", "compose", "pull", "mark_needed", "encode", "release", "events")
hooks: Hooks = Hooks()


class PythonReplay:
    """Replays nothing and has Python do all: the slow clear twin of native/replay.c."""

    run: Callable[..., Any]  # set by dispatch/bind.py, as is
    state: Any  # the State of threads
    events = None

    @staticmethod
    def compose(
        what: tuple[Callable[..., Any], bool, str], args: tuple[Any, ...], named: dict[Any, Any]
    ) -> Any:
        now = PythonReplay.state.__dict__
        is_inner = now["function"] or not what[2]
        if is_inner:
            return what[0](*args, **named)
        now["function"] = what[2]
        try:
            return what[0](*args, **named)
        finally:
            now["function"] = ""

    @staticmethod
    def pull(entry: Any, cotangents: dict[Any, Any], create_graph: bool) -> None:
        return

    @staticmethod
    def mark_needed(pending: list[Any], roots: tuple[Any, ...]) -> None:
        return

    @staticmethod
    def encode(pending: list[Any], needed: bytes) -> None:
        return

    @staticmethod
    def release(nodes: list[Any]) -> None:
        for node in nodes:
            node.inputs = ()
