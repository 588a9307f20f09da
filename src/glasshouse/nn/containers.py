"""Modules that hold other modules or parameters: in a row, a list, a dictionary."""

import operator
from itertools import groupby

from glasshouse.base.errors import DTypeError, IndexOutOfRangeError, type_name
from glasshouse.nn.module import Module, Parameter, indented


class Indexed(Module):
    """What Sequential, ModuleList and ParameterList share: members named "0", "1", … in order."""

    def _members(self) -> dict:
        return self._modules

    def _position(self, index) -> int:
        size, i = len(self), operator.index(index)
        if not -size <= i < size:
            raise IndexOutOfRangeError(
                type(self).__name__,
                f"an index from {-size} to {size - 1}",
                i,
                "Check the number of its members.",
            )
        return i % size

    def _add(self, name: str, value) -> None:
        if not isinstance(value, Module):
            raise DTypeError(
                type(self).__name__,
                "modules",
                f"{value!r} ({type_name(value)}) at {name!r}",
                "Use a Module, e.g. nn.ReLU() for a function.",
            )
        self.add_module(name, value)

    def _renumber(self, values) -> None:
        self._members().clear()
        for i, value in enumerate(values):
            self._add(str(i), value)

    def __len__(self):
        return len(self._members())

    def __iter__(self):
        return iter(self._members().values())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._like(list(self)[index])
        return list(self)[self._position(index)]

    def _like(self, values):
        return type(self)(values)

    def __setitem__(self, index, value) -> None:
        setattr(self, list(self._members())[self._position(index)], value)

    def __delitem__(self, index) -> None:
        values = list(self)
        del values[index if isinstance(index, slice) else self._position(index)]
        self._renumber(values)

    def append(self, value):
        """This container with `value` at its end."""
        self._add(str(len(self)), value)
        return self

    def extend(self, values):
        """This container with each of `values` at its end."""
        for value in values:
            self.append(value)
        return self

    def insert(self, index: int, value):
        """This container with `value` before position `index`."""
        values = list(self)
        values.insert(index, value)
        self._renumber(values)
        return self

    __iadd__ = extend

    def __add__(self, values):
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

    def __init__(self, *modules):
        super().__init__()
        named = len(modules) == 1 and isinstance(modules[0], dict)
        pairs = modules[0].items() if named else ((str(i), m) for i, m in enumerate(modules))
        for name, module in pairs:
            self._add(name, module)

    def _like(self, values):
        return type(self)(*values)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Indexed):
    """A list of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules=None):
        super().__init__()
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

    def __init__(self, values=None):
        super().__init__()
        self.extend(values or ())

    def _members(self) -> dict:
        return self._parameters

    def _add(self, name: str, value) -> None:
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))

    def extra_repr(self) -> str:
        sizes = ["x".join(map(str, p.shape)) for p in self]
        shown = [f"Parameter containing: [{p.dtype} of size {s}]" for p, s in zip(self, sizes)]
        return "\n".join(f"({i}): {text}" for i, text in enumerate(shown))


def of_modules(method, doc: str | None = None):
    """A method of dict as a method of ModuleDict, on its modules."""

    def own(self, *args):
        return method(self._modules, *args)

    own.__doc__ = doc
    return own


class ModuleDict(Module):
    """A dictionary of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def update(self, modules) -> None:
        """Add the modules of a dict or of (name, module) pairs, replacing those of equal name."""
        for name, module in dict(modules).items():
            self[name] = module

    def __getitem__(self, name: str):
        return self.get_submodule(name)

    def __setitem__(self, name: str, module) -> None:
        (setattr if name in self._modules else Module.add_module)(self, name, module)

    keys = of_modules(dict.keys, "The names.")
    values = of_modules(dict.values, "The modules.")
    items = of_modules(dict.items, "(name, module) pairs.")
    pop = of_modules(dict.pop, "The module of a name, taken out.")
    clear = of_modules(dict.clear, "Take all modules out.")
    __len__ = of_modules(dict.__len__)
    __iter__ = of_modules(dict.__iter__)
    __contains__ = of_modules(dict.__contains__)
    __delitem__ = of_modules(dict.__delitem__)
