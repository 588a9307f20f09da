"""Modules that hold other modules or parameters: in a row, a list, a dictionary."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Self

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, type_name
from glasshouse.nn.module import Module, Parameter, indented
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Indexed(Module):
    """Base of Sequential, ModuleList and ParameterList: members named "0", "1", … in order."""

    def _members(self) -> dict[Any, Any]:
        return self._modules

    def _position(self, index) -> int:
        size, i = len(self), operator.index(index)
        if not -size <= i < size:
            expected = f"an index from {-size} to {size - 1}"
            fix = "Check the number of its members."
            raise IndexOutOfRangeError(type(self).__name__, expected, i, fix)
        return i % size

    def _add(self, name: str, value) -> None:
        if not isinstance(value, Module):
            got = f"{value!r} ({type_name(value)}) at {name!r}"
            fix = "Use a Module, e.g. nn.ReLU() for a function."
            raise DTypeError(type(self).__name__, "modules", got, fix)
        self.add_module(name, value)

    def _renumber(self, values) -> None:
        self._members().clear()
        for i, value in enumerate(values):
            self._add(str(i), value)

    def __len__(self) -> int:
        return len(self._members())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members().values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._like(list(self)[index])
        return list(self)[self._position(index)]

    def _like(self, values):
        make: Any = type(self)
        return make(values)

    def __setitem__(self, index: int, value: Module) -> None:
        setattr(self, list(self._members())[self._position(index)], value)

    def __delitem__(self, index: int | slice) -> None:
        values = list(self)
        del values[index if isinstance(index, slice) else self._position(index)]
        self._renumber(values)

    def append(self, value: Any) -> Self:
        """This container with `value` at its end."""
        self._add(str(len(self)), value)
        return self

    def extend(self, values: Any) -> Self:
        """This container with each of `values` at its end."""
        for value in values:
            self.append(value)
        return self

    def insert(self, index: int, value: Module) -> Self:
        """This container with `value` before position `index`."""
        values = list(self)
        values.insert(index, value)
        self._renumber(values)
        return self

    def pop(self, index: int = -1) -> Module:
        """The member at position `index`, which is taken out."""
        value = self[index]
        del self[index]
        return value

    __iadd__ = extend

    def __add__(self, values: Module) -> Module:
        return self._like([*self, *values])


class Sequential(Indexed):
    """Modules called one after the other, each on the result of the one before.
    Takes modules, or one dict of names to modules.

    Example:
        >>> Sequential(Module(), Module())
        Sequential(
          (0): Module()
          (1): Module()
        )
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = len(modules) == 1 and isinstance(modules[0], dict)
        pairs = modules[0].items() if named else ((str(i), m) for i, m in enumerate(modules))
        for name, module in pairs:
            self._add(name, module)

    def _like(self, values):
        return type(self)(*values)

    def forward(self, input: Tensor) -> Tensor:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Indexed):
    """A list of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        fix = "Pass a list of modules."
        check_type("ModuleList", modules or (), Iterable, "modules to be a list", fix)
        self.extend(modules or ())

    def _repr_children(self) -> list[str]:
        lines, start = [], 0
        for text, equal in groupby(map(repr, self)):
            count = len(list(equal))
            several = f"({start}-{start + count - 1}): {count} x {indented(text)}"
            lines.append(f"({start}): {indented(text)}" if count == 1 else several)
            start += count
        return lines


class ParameterList(Indexed):
    """A list of parameters, which belong to the module that holds it; tensors become Parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def _members(self) -> dict[Any, Any]:
        return self._parameters

    def _add(self, name: str, value) -> None:
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {described(p)}" for i, p in enumerate(self))


def described(p: Tensor) -> str:
    """A parameter in the repr of its container."""
    sizes = "x".join(map(str, p.shape))
    return f"Parameter containing: [{p.dtype} of size {sizes}]"


def of_members(method: Any, doc: str | None = None) -> Any:
    """A method of dict as a method of ModuleDict and ParameterDict, on their members."""

    def on_members(self, *args):
        return method(self._members(), *args)

    on_members.__doc__ = doc
    return on_members


class NamedMembers(Module):
    """Base of ModuleDict and ParameterDict: members by name, in order of insertion."""

    def _members(self) -> dict[Any, Any]:
        return self._modules

    def update(self, members: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add the members of a dict or of (name, member) pairs, replacing those of equal name."""
        for name, member in dict(members).items():
            self[name] = member

    keys: Any = of_members(dict.keys, "The names.")
    values: Any = of_members(dict.values, "The members.")
    items: Any = of_members(dict.items, "(name, member) pairs.")
    pop: Any = of_members(dict.pop, "The member of a name, taken out.")
    clear: Any = of_members(dict.clear, "Take all members out.")
    __len__: Any = of_members(dict.__len__)
    __iter__: Any = of_members(dict.__iter__)
    __contains__: Any = of_members(dict.__contains__)
    __delitem__: Any = of_members(dict.__delitem__)


class ModuleDict(NamedMembers):
    """A dictionary of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        return self.get_submodule(name)

    def __setitem__(self, name: str, module: Module) -> None:
        (setattr if name in self._modules else Module.add_module)(self, name, module)


class ParameterDict(NamedMembers):
    """A dictionary of parameters, which belong to the module that holds it; tensors become
    Parameters.

    Example:
        >>> table = ParameterDict({"scale": gh.ones(2)})
        >>> table["scale"].requires_grad, "shift" in table
        (True, False)
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def _members(self) -> dict[Any, Any]:
        return self._parameters

    def __getitem__(self, name: str) -> Tensor:
        return self.get_parameter(name)

    def __setitem__(self, name: str, value: Tensor) -> None:
        value = value if value is None or isinstance(value, Parameter) else Parameter(value)
        if name in self._parameters:
            setattr(self, name, value)
        else:
            self.register_parameter(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of a name, or `default`."""
        return self._parameters.get(name, default)

    def setdefault(self, name: str, default: Any = None) -> Tensor:
        """The parameter of a name, which is `default` if there was none."""
        if name not in self._parameters:
            self[name] = default
        return self._parameters[name]

    def copy(self) -> Module:
        """Another ParameterDict with the same parameters."""
        return type(self)(self._parameters)

    def fromkeys(self, names: str, default: Any = None) -> Module:
        """A ParameterDict with `default` under each of the names."""
        return type(self)(dict.fromkeys(names, default))

    def __or__(self, other: Any) -> Self:
        return type(self)({**self._parameters, **dict(other.items())})

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    popitem: Any = of_members(dict.popitem, "The last (name, parameter) pair, taken out.")
    __reversed__: Any = of_members(dict.__reversed__)

    def extra_repr(self) -> str:
        shown = (described(p) for p in self.values())
        return "\n".join(f"  ({name}): {text}" for name, text in zip(self, shown, strict=True))


class Container(Module):
    """Modules as attributes, without a forward.

    Example:
        >>> Container(first=Module())
        Container(
          (first): Module()
        )
    """

    def __init__(self, **modules: Any) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
