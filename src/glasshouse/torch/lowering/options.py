"""The options of `torch.compile(model, backend="glasshouse", options={…})`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from glasshouse.base import OptionError, check_known, having, suggest
from glasshouse.base.units import MemoryBudget, parse_budget
from glasshouse.compile.lowering.target import current_target
from glasshouse.dispatch import autocast, state

WHERE = "torch.compile(options=…)"
MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
LOWER = ("bfloat16", "float16")


class TorchOptions(NamedTuple):
    """The options of one torch.compile.

    strict         raise an error for a graph that cannot be compiled; else PyTorch runs it
    memory_budget  the most that the forward pass saves for the backward pass: bytes ("2GiB"), or a
                   fraction of the amount without a budget (0.5, "50%"); the rest is recomputed
    dtype          the dtype of float32 products and convolutions: "bfloat16" or "float16"
    threads        the threads of the Programs; by default as torch.set_num_threads says"""

    strict: bool = False
    memory_budget: MemoryBudget | None = None
    dtype: str | None = None
    threads: int = 0

    @property
    def modes(self) -> tuple[Any, ...]:
        """The modes that a graph is recorded under."""
        return () if self.dtype is None else (autocast(self.dtype),)


def checked_options(options: dict[Any, Any] | None) -> TorchOptions:
    """The options that a user gave.

    Raises: OptionError for one that there is not, and for a value that it cannot have
    Example:
        >>> checked_options({"memory_budget": "50%"}).memory_budget.part
        0.5
    """
    if not isinstance(options, Mapping | None):
        fix = 'Write options={"strict": True}, say.'
        raise OptionError(WHERE, "a dict", repr(options), fix)
    values = dict(options or {})
    for name in values:
        if name not in TorchOptions._fields:
            expected = f"one of {', '.join(TorchOptions._fields)}"
            raise OptionError(WHERE, expected, repr(name), suggest(name, TorchOptions._fields))
    if values.get("memory_budget") is not None:
        values["memory_budget"] = parse_budget(f"{WHERE} memory_budget", values["memory_budget"])
    if values.get("dtype") is not None:
        name = str(values["dtype"]).removeprefix("torch.")
        values["dtype"] = check_known(f"{WHERE} dtype", " or ".join(map(repr, LOWER)), name, LOWER)
    strict, threads = values.get("strict", False), values.get("threads", 0)
    if not isinstance(strict, bool):
        raise OptionError(f"{WHERE} strict", "True or False", repr(strict), "Write one of them.")
    if type(threads) is not int or threads < 0:
        fix = "Write 0 for as many as torch.set_num_threads says."
        raise OptionError(f"{WHERE} threads", "a whole number, 0 or more", repr(threads), fix)
    return TorchOptions(**values)


def check_mode(mode: str | None) -> None:
    """Accept inductor's modes, so that a program changes in one word; they have no effect here.

    Raises: OptionError for a name that inductor does not know
    """
    if mode is not None:
        check_known("torch.compile(mode=…)", "a mode of torch.compile", mode, MODES)


def target_of(
    stable: frozenset[int], free: frozenset[int], writes: frozenset[Any], apart: bool
) -> having:
    """A context for compiling Programs. They keep values that depend on `stable` inputs alone,
    choose the axis order of `free` outputs, and use the memory of outputs until these are written.
    They write an output into its leaf for the pairs in `writes`, if possible. Large intermediate
    values are set `apart`."""
    changes = {"stable_inputs": stable, "free_outputs": free, "lends_outputs": True}
    changes |= {"written_leaves": writes, "sets_apart": apart}
    target = current_target().extension(("torch", stable, free, writes, apart), **changes)
    return having(state, compile_target=target)
