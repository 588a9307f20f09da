"""Settings and counters of capture."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glasshouse.base.errors import OptionError, check_known, type_name

DEFAULTS: dict[str, Any] = {
    "cache_limit": 16, "dynamic": False, "max_instructions": 2_000_000, "repro_dir": "",
    "raise_compiler_errors": False, "raise_internal_errors": False, "print_graphs": False,
    "print_guards": False, "print_bytecode": False, "print_recompiles": False,
    "is_compiling": True,
}  # fmt: skip


class CaptureConfig:
    """Settings of capture; an unknown name is an error.

    cache_limit: the most entries of one function for one object (self); 16 times as many for all
    objects. Further kinds of calls run uncaptured.
    dynamic: numbers and sizes vary from the start;
    max_instructions: of one trace; repro_dir: a folder for scripts that reproduce errors of the
    compiler ("" for none); raise_compiler_errors, raise_internal_errors: instead of falling back;
    print_graphs, print_guards, print_bytecode, print_recompiles: messages during a capture;
    is_compiling: the value of torch.compiler.is_compiling() in captured code other than
    PyTorch's."""

    def __init__(self) -> None:
        self.__dict__.update(allowed={}, disallowed={}, disabled={}, constant_results=set())
        self.restore()

    def restore(self) -> None:
        """Reset every setting to its default."""
        self.__dict__.update(DEFAULTS)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(DEFAULTS[check_known("capture.config", "a setting", name, DEFAULTS)])
        if type(value) is not kind:
            expected = f"{name} to be a {kind.__name__}"
            raise OptionError("capture.config", expected, type_name(value), "Give one.")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        check_known("capture.config", "a setting", name, DEFAULTS)

    @contextmanager
    def override(self, **settings: Any) -> Iterator[Any]:
        """Context with these settings."""
        before = {name: getattr(self, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(self, name, value)
            yield self
        finally:
            self.__dict__.update(before)

    def __repr__(self) -> str:
        return f"CaptureConfig({', '.join(f'{k}={self.__dict__[k]!r}' for k in DEFAULTS)})"


config: CaptureConfig = CaptureConfig()


class CaptureCounters(dict[Any, Any]):
    """Counts of events since the last reset; missing ones are 0."""

    def __missing__(self, name: str) -> int:
        return 0

    def add(self, name: str, count: int = 1) -> None:
        self[name] = self[name] + count


counters: CaptureCounters = CaptureCounters()
