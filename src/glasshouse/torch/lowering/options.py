"""The options of `torch.compile(model, backend="glasshouse", options={…})`."""

from collections.abc import Mapping
from typing import NamedTuple

from glasshouse.base import OptionError, check_known, having, suggest
from glasshouse.base.units import MemoryBudget, parse_budget
from glasshouse.compile.lowering.target import current_target
from glasshouse.dispatch import autocast, state

WHERE = "torch.compile(options=…)"
MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
LOWER = ("bfloat16", "float16")


class TorchOptions(NamedTuple):
    """The options of one torch.compile.

    strict         a graph that cannot be compiled is an error, and not left to PyTorch
    memory_budget  what the forward pass may keep for the backward pass: bytes ("2GiB"), or a part
                   of what it would keep (0.5, "50%"); the rest is computed again
    dtype          that float32 products and convolutions are computed in: "bfloat16" or "float16"
    threads        that the Programs use; by default as many as torch.set_num_threads says"""

    strict: bool = False
    memory_budget: MemoryBudget | None = None
    dtype: str | None = None
    threads: int = 0

    @property
    def modes(self) -> tuple:
        """The modes that a graph is recorded under."""
        return () if self.dtype is None else (autocast(self.dtype),)


def checked_options(options: dict | None) -> TorchOptions:
    """The options that a user gave.

    Raises: OptionError for one that there is not, and for a value that it cannot have
    Example:
        >>> checked_options({"memory_budget": "50%"}).memory_budget.part
        0.5
    """
    if not isinstance(options, Mapping | None):
        fix = 'Write options={"strict": True}, say.'
        raise OptionError(WHERE, "a dict", repr(options), fix)
    given = dict(options or {})
    for name in given:
        if name not in TorchOptions._fields:
            expected = f"one of {', '.join(TorchOptions._fields)}"
            raise OptionError(WHERE, expected, repr(name), suggest(name, TorchOptions._fields))
    if given.get("memory_budget") is not None:
        given["memory_budget"] = parse_budget(f"{WHERE} memory_budget", given["memory_budget"])
    if given.get("dtype") is not None:
        name = str(given["dtype"]).removeprefix("torch.")
        given["dtype"] = check_known(f"{WHERE} dtype", " or ".join(map(repr, LOWER)), name, LOWER)
    strict, threads = given.get("strict", False), given.get("threads", 0)
    if not isinstance(strict, bool):
        raise OptionError(f"{WHERE} strict", "True or False", repr(strict), "Write one of them.")
    if type(threads) is not int or threads < 0:
        fix = "Write 0 for as many as torch.set_num_threads says."
        raise OptionError(f"{WHERE} threads", "a whole number, 0 or more", repr(threads), fix)
    return TorchOptions(**given)


def check_mode(mode: str | None) -> None:
    """Inductor's modes are taken, so that a program changes in one word; they mean nothing here.

    Raises: OptionError for a name that inductor does not know
    """
    if mode is not None:
        check_known("torch.compile(mode=…)", "a mode of torch.compile", mode, MODES)


def target_of(stable: frozenset[int], free: frozenset[int], written: frozenset, apart: bool):
    """Inside, Programs keep what they make of the `stable` inputs alone, have `free` outputs in
    whatever order of axes they are made, write outputs to the leaves with which they are in
    `written`, where that can be, and use the memory of outputs until these are written; large
    values in between are set `apart`."""
    changes = {"stable_inputs": stable, "free_outputs": free, "lends_outputs": True}
    changes |= {"written_leaves": written, "sets_apart": apart}
    target = current_target().extension(("torch", stable, free, written, apart), **changes)
    return having(state, compile_target=target)
