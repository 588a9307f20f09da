"""The frames of the user's program that run, and the exceptions that they handle."""

import sys
from typing import Any

from glasshouse.capture.bytecode.instructions import DecodedCode
from glasshouse.capture.bytecode.tracebacks import is_polyfill
from glasshouse.capture.frames.frame import CaptureFrame
from glasshouse.capture.values.var import Var


class FrameStack(list[CaptureFrame]):
    """The frames, innermost last."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: Any = sys.exc_info()[1]  # the error being handled at the call
        self.began_handling = False  # whether a resume function handles it from the beginning
        self.raised: Var | None = None
        self.failed_after_return = False  # whether the failed instruction had done part of its work

    @property
    def line(self) -> tuple[str, int] | None:
        """The user's line that runs."""
        for f in reversed(self):
            if not f.trusted:
                return f.root.co_filename, f.code.instructions[f.at].line
        return None

    def user_line(self) -> str:
        """The innermost line that is not the library's."""
        line = self.line
        return f"{line[0]}:{line[1]}" if line else ""

    def in_library(self) -> bool:
        """Whether code of a library runs; a polyfill counts as its caller."""
        users = (f for f in reversed(self) if not is_polyfill(f.root))
        return next(users, self[-1]).trusted

    def site(self) -> tuple[DecodedCode, int]:
        """The site of the running instruction, which may be left to Python from now on."""
        return site_in(self)

    def handled_in(self, k: int) -> Var | None:
        """The exception that is being handled in frame `k` or its callers."""
        inner = (f.handled[-1] for f in reversed(self[: k + 1]) if f.handled)
        return next(inner, None)

    def handled_now(self) -> BaseException | None:
        """The exception that is being handled at the present place of the user's program."""
        var = self.handled_in(len(self))
        return self.outside if var is None else var.value


def site_in(frames: list[CaptureFrame]) -> tuple[DecodedCode, int]:
    """The present site of the user's program; a polyfill counts as its caller."""
    users = (f for f in reversed(frames) if not is_polyfill(f.root))
    f = next(users, frames[-1])
    return f.code, f.at
