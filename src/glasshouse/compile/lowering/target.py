"""Targets of the compiler. A target has memory, a dialect of C, an ordered list of lowerers, a way
to build kernels and to run steps, and a clock.

Each thread has a target in use: `use_target` and `use_lowerer` change it for a while. Programs are
separate by target, in the process and on disk. `docs/how_to/write_a_target.md` builds one."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter_ns
from typing import Any

from glasshouse import memory
from glasshouse.base import OptionError, having, type_name
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.kernels.kernel_cache import CommonSizes, CompiledKernel, compile_kernels
from glasshouse.compile.lowering.lowerer import Lowerer, identity_of
from glasshouse.compile.steps.emitted import CKernel, Dialect
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch import state
from glasshouse.graph.graph import Graph


class Target:
    """Target for which Programs are compiled.

    lowerers  asked in order for each node; `fused` and the last one, `host`, take the rest
    fused     makes fused kernels of elementwise primitives, movement and reductions
    host      computes anything with the cards' references"""

    name: str
    dialect: Any
    threads: int

    stable_inputs: frozenset[int] = frozenset()  # of a recording: the same from run to run
    free_outputs: frozenset[int] = frozenset()  # of a recording: their axes lie in any order
    # Of a recording: (output, leaf) where that leaf's memory is to be the output's, if it can be.
    written_leaves: frozenset[tuple[int, int]] = frozenset()
    keeps_inputs = False  # whether stable inputs may be kept in a second layout
    lends_outputs = False  # whether values in between lie in outputs that are not yet written
    sets_apart = False  # whether large values in between have separate memory, while they live

    def __init__(
        self,
        name: str,
        lowerers: Any,
        fused: Lowerer,
        host: Lowerer,
        dialect: Any = None,
        passes: tuple[Any, ...] = (),
    ) -> None:
        self.name, self.dialect = name, dialect or Dialect()
        self.fused = fused
        self.host = host
        self.lowerers: list[Lowerer] = [*lowerers, fused, host]
        # Over graphs, after the compiler's: the target's own, then a user's.
        self.passes: tuple[Callable[[Graph], Graph], ...] = tuple(passes)
        self.extended: dict[Any, Target] = {}

    # -- the code it makes ----------------------------------------------------------------------

    def variant(self) -> Any:
        """Key that tells the target's Programs apart in this process, beside their recording."""
        base = (self.name, self.dialect, self.passes, *self.lowerers, *self.settings())
        options = (self.stable_inputs, self.free_outputs, self.written_leaves)
        return (*base, *options, self.lends_outputs, self.sets_apart)

    def settings(self) -> tuple[Any, ...]:
        """Settings that flags choose; none by default."""
        return ()

    def identity(self) -> str | None:
        """Dependencies of stored code beside its recording, the same in each process: None where
        that cannot be said, and code is not stored."""
        parts = [lowerer.identity() for lowerer in self.lowerers]
        parts += [identity_of(rewrite, "") for rewrite in self.passes]
        if None in parts:
            return None
        use = self.lends_outputs, self.sets_apart
        base = (self.name, self.dialect, os.cpu_count(), self.settings(), *use)
        if self.stable_inputs:
            parts.append(f"stable inputs {sorted(self.stable_inputs)}")
        if self.free_outputs:
            parts.append(f"free outputs {sorted(self.free_outputs)}")
        if self.written_leaves:
            parts.append(f"written leaves {sorted(self.written_leaves)}")
        return "\n".join([repr(base), toolchain.identity(), *map(str, parts)])

    def with_lowerer(self, lowerer: Lowerer) -> "Target":
        """This target with a lowerer before its others; the same object each time."""
        return self.extension(lowerer, lowerers=[lowerer, *self.lowerers])

    def with_pass(self, rewrite: Callable[[Graph], Graph]) -> "Target":
        """This target with a pass over graphs after the compiler's; the same object each time."""
        return self.extension(rewrite, passes=(*self.passes, rewrite))

    def extension(self, key: Any, **changes: Any) -> "Target":
        """Copy with other attributes, made once for a key."""
        extended = self.extended.get(key)
        if extended is None:
            extended = self.extended[key] = copy.copy(self)
            vars(extended).update(changes, extended={})
        return extended

    def lowerers_of(self, op: str) -> list[Lowerer]:
        """Lowerers that are made for a primitive."""
        return [lowerer for lowerer in self.lowerers if lowerer.ops and op in lowerer.ops]

    # -- running ---------------------------------------------------------------------------------

    def memory(self) -> Any:
        """Manager of its memory."""
        return memory.current()

    def now_ns(self) -> int:
        """Return the time, on the clock of the steps' ends."""
        return perf_counter_ns()

    def build(
        self, steps: list[tuple[CKernel, list[int]]], common: CommonSizes
    ) -> list[CompiledKernel]:
        """Compile the kernels of steps, each with its coded arguments; equal ones once. `common`
        are the sizes of Programs of the same structure.

        Raises: CompileError
        """
        return compile_kernels(steps, self.dialect, common)

    def __repr__(self) -> str:
        return f"<target {self.name}>"


class DefaultTarget:
    """Target for which Programs are compiled where no other is in use; set by `targets`."""

    target: Target


def current_target() -> Target:
    """Return the target for which this thread compiles Programs."""
    return state.compile_target or DefaultTarget.target


def with_stable_inputs(numbers: frozenset[int]) -> Any:
    """Inside, Programs keep the results of steps that read these inputs alone; not for a target
    that was chosen, which may write Programs down."""
    if not numbers or state.compile_target is not None:
        return nullcontext()
    target = current_target().extension(("stable", numbers), stable_inputs=numbers)
    return having(state, compile_target=target)


def target_for(threads: int) -> Any:
    """Inside, Programs are for so many threads: oneDNN's primitives depend on the number."""
    target = current_target()
    return having(state, compile_target=target.extension(("threads", threads), threads=threads))


@contextmanager
def use_target(target: Target) -> Iterator[Any]:
    """Inside, Programs are compiled for this target; earlier recordings are computed first.

    Raises: OptionError for an object that is no target
    """
    if not isinstance(target, Target):
        raise OptionError("use_target", "a Target", type_name(target), "Make one of Target(…).")
    backends.current().evaluate()
    with having(state, compile_target=target):
        yield target
        backends.current().evaluate()


@contextmanager
def use_lowerer(lowerer: Lowerer) -> Iterator[Any]:
    """Inside, this lowerer is asked before those of the target in use.

    Raises: OptionError for an object that is no lowerer
    """
    if not isinstance(lowerer, Lowerer):
        fix = "Pass an instance of a subclass of glasshouse.targets.Lowerer."
        raise OptionError("use_lowerer", "a Lowerer", type_name(lowerer), fix)
    with use_target(current_target().with_lowerer(lowerer)) as target:
        yield target


@contextmanager
def use_pass(rewrite: Callable[[Graph], Graph]) -> Iterator[Any]:
    """Inside, graphs are rewritten by this function too, after the compiler's own passes.

    Raises: OptionError for an object that is no function
    """
    if not callable(rewrite):
        fix = "Pass a function from a Graph to a Graph."
        raise OptionError("use_pass", "a function", type_name(rewrite), fix)
    with use_target(current_target().with_pass(rewrite)) as target:
        yield target


class deterministic(having):
    """From now on, or inside, results are the same bits: with "batch", those of a row alone, among
    others and at another place, in one chunk or in several. Products then add up each element in an
    order of its own, and no sum is cut by the number of rows; None is the usual way again. It holds
    for products, norms, attention and elementwise functions of the default backend on one
    processor, not for convolutions.

    Raises: OptionError for another mode.
    Example:
        >>> x, w = gh.random.normal((9, 40)), gh.random.normal((40, 5))
        >>> with gh.deterministic("batch"):
        ...     bool((x[3:4] @ w == (x @ w)[3:4]).all())
        True
    """

    def __init__(self, mode: str | None = "batch") -> None:
        fix = 'Pass "batch" or None.'
        if mode not in ("batch", None):
            raise OptionError("deterministic", '"batch" or None', repr(mode), fix)
        backends.current().evaluate()
        super().__init__(flags, deterministic=mode or "")

    def __exit__(self, *exc_info: object) -> None:
        backends.current().evaluate()
        super().__exit__(*exc_info)
