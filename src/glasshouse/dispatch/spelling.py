"""PyTorch's spelling beside the Array API's: the names of arguments, and the meaning of a call.

`dim` is `axis`, `keepdim` is `keepdims`. Where the two libraries mean different things by one name,
the spelling decides: `dim` and `keepdim`, and methods of a Tensor, are PyTorch's; `axis` and
`keepdims`, and functions, are the standard's. The meanings in PyTorch's spelling are in
tensor/torch_names/meanings.py."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from glasshouse.base.errors import OptionError

# PyTorch's name of an argument, and the names that it may have here.
OTHER_NAMES: dict[str, Any] = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "keepdim": ("keepdims",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "dim0": ("axis1",),
    "dim1": ("axis2",),
    "shifts": ("shift",),
    "diagonal": ("k",),
    "steps": ("num",),
    "in_dims": ("in_axes",),
    "out_dims": ("out_axes",),
}


# PyTorch's names of operands, their places, and the names that parameters there have here.
OPERANDS = {"input": (0, ("x", "x1")), "other": (1, ("x2", "y"))}


def named_as_here(
    where: str, own_names: dict[str, str], args: tuple[Any, ...], named: dict[Any, Any]
) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """The arguments under the names that they have here.

    Raises: OptionError for one that is given under both names, and for `out`.
    """
    if "out" in named:
        fix = "Write y = …, or y.copy_(…) to keep the handle."
        raise OptionError(where, "no argument out: results are new tensors", "out=…", fix)
    arguments = dict(named)
    for name, (place, _) in OPERANDS.items():
        if name in own_names and name in named and place == len(args):
            args = (*args, arguments.pop(name))
    for name in arguments.keys() & own_names.keys() - OPERANDS.keys():
        own_name = own_names[name]
        if own_name in named:
            got = f"{name}={named[name]!r} and {own_name}={named[own_name]!r}"
            raise OptionError(where, f"{own_name}, or {name} as PyTorch calls it", got, "Give one.")
        arguments[own_name] = arguments.pop(name)
    return args, arguments


def takes_names_of_pytorch(fn: Callable[..., Any]) -> Any:
    """`fn`, which takes its arguments also under the names that PyTorch has for them."""
    parameters = inspect.signature(fn).parameters
    own_names = {
        name: next(own_name for own_name in names if own_name in parameters)
        for name, names in OTHER_NAMES.items()
        if name not in parameters and not parameters.keys().isdisjoint(names)
    }
    own_names |= {
        name: name
        for name, (place, names) in OPERANDS.items()
        if name not in parameters and [*parameters, "", ""][place] in names
    }
    if "out" not in parameters:
        own_names["out"] = "out"

    @functools.wraps(fn)
    def call(*args, **named):
        if named and not own_names.keys().isdisjoint(named):
            args, named = named_as_here(fn.__name__, own_names, args, named)
        return fn(*args, **named)

    return call


STANDARD = {"axis", "axes", "keepdims"}
OF_PYTORCH = {"dim", "keepdim", "unbiased", "other"}


class TwoMeanings:
    """A function of the standard that means something else in PyTorch: which of the two a call is.
    `positions` is how many arguments the standard takes by position; more of them are PyTorch's,
    or are refused if `refuses`, since NumPy means something else by them."""

    def __init__(self, standard: Callable[..., Any], positions: int, refuses: bool) -> None:
        self.standard = standard
        self.positions = positions
        self.refuses = refuses
        self.of_pytorch: Callable[..., Any] = standard
        self.fix = ""

    def has_name_of_pytorch(self, named: dict[str, Any]) -> bool:
        """Whether arguments have PyTorch's names.

        Raises: OptionError for those that have names of both.
        """
        theirs, ours = OF_PYTORCH & named.keys(), STANDARD & named.keys()
        if theirs and ours:
            got = " and ".join(sorted(f"{name}=" for name in theirs | ours))
            raise OptionError(self.standard.__name__, "names of one library", got, self.fix)
        return bool(theirs)

    def function(self, *args: Any, **named: Any) -> Any:
        """The function of the namespace."""
        if named and self.has_name_of_pytorch(named):
            return self.of_pytorch(*args, **named)
        if len(args) <= self.positions or named and not STANDARD.isdisjoint(named):
            return self.standard(*args, **named)
        if self.refuses:
            got, where = f"{len(args)} arguments by position", self.standard.__name__
            raise OptionError(where, "the axis by its name", got, self.fix)
        return self.of_pytorch(*args, **named)

    def method(self, *args: Any, **named: Any) -> Any:
        """The method of Tensor."""
        if named and not self.has_name_of_pytorch(named) and not STANDARD.isdisjoint(named):
            return self.standard(*args, **named)
        return self.of_pytorch(*args, **named)


meanings: dict[str, TwoMeanings] = {}  # by the name of the function


def has_two_meanings(positions: int = 1, refuses: bool = False) -> Any:
    """A decorator for functions of the standard by whose name PyTorch means something else."""

    def decorate(standard: Callable[..., Any]) -> Any:
        meaning = meanings[standard.__name__] = TwoMeanings(standard, positions, refuses)

        @functools.wraps(standard)
        def call(*args, **named):
            return meaning.function(*args, **named)

        return call

    return decorate


def meaning_in_pytorch(fix: str) -> Any:
    """A decorator for PyTorch's version of a function of this name; returns the method of Tensor.
    `fix` names both spellings."""

    def decorate(of_pytorch: Callable[..., Any]) -> Any:
        meaning = meanings[of_pytorch.__name__]
        meaning.of_pytorch, meaning.fix = of_pytorch, fix

        @functools.wraps(of_pytorch)
        def call(self, *args, **named):
            return meaning.method(self, *args, **named)

        signature = inspect.signature(of_pytorch)
        own = inspect.signature(meaning.standard).parameters.values()
        extra = [
            p.replace(kind=p.KEYWORD_ONLY, default=None)
            for p in own
            if p.name not in signature.parameters and p.name in STANDARD
        ]
        parameters = list(signature.parameters.values())
        method: Any = call
        method.__signature__ = signature.replace(parameters=[*parameters, *extra])
        return method

    return decorate
