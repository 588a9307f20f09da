"""Observation of threads that start during a recording: their operators are reported too.

A TorchDispatchMode sees one thread, so operators of earlier threads are missing; the recording gets
the names of these threads."""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from glasshouse.base.errors import PACKAGE
from glasshouse.torch.patches.dynamo import skip_code

POOLS = "concurrent.futures.thread"
start: Callable[..., None] = threading.Thread.start
watched: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def starter(observe: Callable[[], Callable[[], None]]) -> Callable[..., Any]:
    """A replacement of `Thread.start`: it observes the new thread by `observe()` until it ends."""

    def told_start(thread: threading.Thread) -> None:
        run = thread.run

        def run_watched() -> None:
            end = observe()
            try:
                run()
            finally:
                end()

        thread.run = run_watched  # type: ignore[method-assign]
        watched.add(thread)
        try:
            start(thread)
        finally:
            if not thread.ident:  # it did not begin
                del thread.run

    skip_code(told_start.__code__)
    return told_start


def unwatched_threads() -> list[str]:
    """The names of earlier threads that may call operators."""
    others = set(threading.enumerate()) - set(watched) - {threading.current_thread()}
    frames = sys._current_frames()
    return sorted(t.name for t in others if may_call(frames.get(t.ident or 0)))


def may_call(frame: Any) -> bool:
    """Whether a thread with this frame may call operators: it runs code that imports PyTorch, or
    waits for work of a pool. Threads of consoles, progress bars and ours do neither."""
    while frame is not None:
        code, names = frame.f_code, frame.f_globals
        is_ours = code.co_filename.startswith(PACKAGE)
        if not is_ours and names.get("torch") is torch or names.get("__name__") == POOLS:
            return True
        frame = frame.f_back
    return False
