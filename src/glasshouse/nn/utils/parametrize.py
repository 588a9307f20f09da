"""Parametrizations: a parameter that is a function of others, computed whenever it is read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, ShapeError, suggest, type_name
from glasshouse.dispatch import Value
from glasshouse.nn.containers import ModuleDict, ModuleList
from glasshouse.nn.module import Module, Parameter
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

cache: dict[tuple[int, str], Value] = {}
caching: list[int] = [0]  # how many `cached` contexts are open


@contextmanager
def cached() -> Iterator[None]:
    """A context in which each parametrized tensor is computed once.

    Example:
        >>> layer = gh.nn.utils.parametrizations.weight_norm(gh.nn.Linear(2, 2))
        >>> with cached():
        ...     layer.weight is layer.weight
        True
    """
    caching[0] += 1
    try:
        yield
    finally:
        caching[0] -= 1
        if not caching[0]:
            cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other to `original` (or
    `original0`, `original1` … where the first one takes several)."""

    def __init__(self, modules: list[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        inner = inverted(self, original)
        self.count: int = len(inner) if isinstance(inner, tuple) else 0  # 0: one, `original`
        values = inner if isinstance(inner, tuple) else (inner,)
        single = not self.count and isinstance(original, Parameter)
        for name, value in zip(self.names(), values, strict=True):
            if single:
                with no_grad():
                    original.rebind(value.detach())
                self.register_parameter(name, original)
            elif isinstance(original, Parameter):
                needs_grad = original.requires_grad and value.dtype.is_inexact
                self.register_parameter(name, Parameter(value.detach(), needs_grad))
            else:
                self.register_buffer(name, value)
        if not unsafe:
            check_like(self, original)

    def names(self) -> list[str]:
        """The attribute names of the original tensors."""
        return [f"original{i}" for i in range(self.count)] if self.count else ["original"]

    def originals(self) -> list[Any]:
        """The tensors that the first parametrization is applied to."""
        return [getattr(self, name) for name in self.names()]

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the parametrized tensor becomes `value`."""
        with no_grad():
            inner = inverted(self, value)
            values = inner if isinstance(inner, tuple) else (inner,)
            check_count(self, len(values))
            for original, new in zip(self.originals(), values, strict=True):
                original.rebind(new.detach())

    def forward(self) -> Tensor:
        first, *rest = self._modules.values()
        y = first(*self.originals())
        for parametrization in rest:
            y = parametrization(y)
        return y


def inverted(chain: Module, value: Tensor) -> Any:
    """Originals from which the parametrizations of `chain` compute `value`: a tensor, or several
    as a tuple. Applies each `right_inverse`, the last one first."""
    for parametrization in reversed(list(chain)):
        undo = getattr(parametrization, "right_inverse", None)
        if undo is None:
            continue
        if isinstance(value, tuple):
            expected = "several originals from the first right_inverse alone"
            got = f"some from the one after {type(parametrization).__name__}"
            raise OptionError("register_parametrization", expected, got, "Return one tensor there.")
        with no_grad():
            value = undo(value.detach())
        value = tuple(value) if isinstance(value, Sequence) else value
        for x in value if isinstance(value, tuple) else (value,):
            what = f"right_inverse of {type(parametrization).__name__}"
            check_type(what, x, Value, "a tensor, or a sequence of tensors", "Return that.")
    return value


def check_like(chain: ParametrizationList, original: Tensor) -> None:
    with no_grad():
        value = chain()
    check_type(
        "register_parametrization", value, Value, "parametrizations of tensors", "Return a tensor."
    )
    if value.dtype is not original.dtype or value.shape != original.shape:
        expected = f"a parametrization that keeps {original.dtype.name} {original.shape}"
        got = f"{value.dtype.name} {value.shape}"
        raise ShapeError("register_parametrization", expected, got, "Pass unsafe=True to allow it.")


def check_count(chain: ParametrizationList, count: int) -> None:
    if count != len(chain.names()):
        fix = "Return as many as at the registration."
        raise OptionError("right_inverse", f"{len(chain.names())} originals", count, fix)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """`module`, whose tensor `tensor_name` is from now on parametrization(original).
    The original is kept as `module.parametrizations.<tensor_name>.original`. If the parametrization
    has a method `right_inverse`, the original is that of the tensor, and assigning to the tensor
    assigns right_inverse of the value. Several are applied one after the other. Unless `unsafe`,
    dtype and shape have to stay.

    Raises: OptionError for a name that is not a parameter or buffer; ShapeError for another dtype
        or shape; DTypeError unless the parametrization is a Module.
    Source: standard; PyTorch's semantics.
    Example:
        >>> class Symmetric(gh.nn.Module):
        ...     def forward(self, x):
        ...         return (x + x.mT) / 2
        >>> layer = register_parametrization(gh.nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.mT).all())
        True
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'parametrizations.weight.original']
    """
    where = "register_parametrization"
    check_type(where, module, Module, "a Module with the tensor", "Pass a Module.")
    check_type(where, parametrization, Module, "a Module as parametrization", "Write one.")
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        append(module.parametrizations[tensor_name], parametrization, unsafe)
        return module
    members: Any = next((m for m in (module._parameters, module._buffers) if tensor_name in m), {})
    original = members.get(tensor_name)
    if original is None:
        names = [*module._parameters, *module._buffers]
        expected = f"the name of a parameter or buffer of {type(module).__name__}"
        raise OptionError(where, expected, repr(tensor_name), suggest(tensor_name, names))
    before = original.detach()
    try:
        chain = ParametrizationList([parametrization], original, unsafe)
    except Exception:
        with no_grad():
            original.rebind(before)
        raise
    del members[tensor_name]
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = chain
    show_as(module, tuple(module.parametrizations.keys()))
    return module


def append(chain: ParametrizationList, parametrization: Module, unsafe: bool) -> None:
    """Append a parametrization to those of a tensor."""
    with no_grad():
        value = chain()
    before = [original.detach() for original in chain.originals()]
    chain.append(parametrization)
    try:
        if hasattr(parametrization, "right_inverse"):
            chain.right_inverse(value)
        if not unsafe:
            check_like(chain, value)
    except Exception:
        del chain[-1]
        with no_grad():
            for original, old in zip(chain.originals(), before, strict=True):
                original.rebind(old)
        raise


class Parametrized:
    """Marks the classes that `show_as` makes; `before` is the module's own."""

    before: type[Any]
    names: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Tensor) -> None:
        if name in self.names:
            object.__setattr__(self, name, value)  # its property's
        else:
            super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuilt, (self.before, self.names), self.__dict__


def parametrized_class(before: type[Any], names: tuple[str, ...]) -> type[Any]:
    """A class of modules of the class `before` in which these tensors are computed."""
    members = {name: parametrized_property(name) for name in names}
    about: dict[str, Any] = {"__module__": before.__module__, "__doc__": before.__doc__}
    about |= {"before": before, "names": names}
    return type(f"Parametrized{before.__name__}", (Parametrized, before), about | members)


def parametrized_property(name: str) -> property:
    def read(self):
        if not caching[0]:
            return self.parametrizations[name]()
        key = id(self), name
        if key not in cache:
            cache[key] = self.parametrizations[name]()
        return cache[key]

    def write(self, value) -> None:
        cache.pop((id(self), name), None)
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def show_as(module: Module, names: tuple[str, ...]) -> None:
    """Give a module the class in which these tensors are computed; its own if there are none."""
    before = type_before_parametrizations(module)
    object.__setattr__(module, "__class__", parametrized_class(before, names) if names else before)


def rebuilt(before: type[Any], names: tuple[str, ...]) -> Module:
    """A parametrized module as copies and pickles begin."""
    cls: Any = parametrized_class(before, names)
    return cls.__new__(cls)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module (or its tensor of this name) is parametrized."""
    if not isinstance(module, Parametrized):
        return False
    return tensor_name is None or tensor_name in module.names


def type_before_parametrizations(module: Module) -> type[Any]:
    """The class that a module had before it was parametrized.

    Example:
        >>> type_before_parametrizations(gh.nn.ReLU()).__name__
        'ReLU'
    """
    return module.before if isinstance(module, Parametrized) else type(module)


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """`module` with the tensor as a plain parameter (or buffer) again: with its present value if
    `leave_parametrized`, else with the original.

    Raises: OptionError for a tensor that is not parametrized, or whose one original there is not.
    """
    where = "remove_parametrizations"
    if not is_parametrized(module, tensor_name):
        fix = suggest(tensor_name, getattr(module, "names", ()))
        raise OptionError(where, "the name of a parametrized tensor", repr(tensor_name), fix)
    chain = module.parametrizations[tensor_name]
    first = chain.originals()[0]
    if not leave_parametrized and chain.count:
        got = f"{chain.count} of {tensor_name!r}"
        raise OptionError(where, "one original", got, "Pass leave_parametrized=True.")
    tensor = first
    if leave_parametrized:
        with no_grad():
            value = chain().detach()
            fits = not chain.count and value.dtype is first.dtype
            tensor = first if fits else type(first)(value)
            tensor.rebind(value)
    del module.parametrizations[tensor_name]
    show_as(module, tuple(module.parametrizations.keys()))
    if not module.parametrizations:
        del module.parametrizations
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, tensor)
    else:
        module.register_buffer(tensor_name, tensor)
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """`to_module` with the parametrizations of the other one, and the tensors below them.

    Raises: DTypeError unless the parametrized tensor is a parameter or buffer of both.
    """
    where = "transfer_parametrizations_and_params"
    if not is_parametrized(from_module):
        return to_module
    names = from_module.names if tensor_name is None else (tensor_name,)
    for name in names:
        if not hasattr(to_module, name):
            got = f"one without {name!r}"
            raise DTypeError(where, f"a module like {type_name(from_module)}", got, "Check it.")
        chain = from_module.parametrizations[name]
        if not is_parametrized(to_module, name):
            for parametrization in chain:
                register_parametrization(to_module, name, parametrization, unsafe=True)
        target_chain = to_module.parametrizations[name]
        for inner, value in zip(target_chain.originals(), chain.originals(), strict=True):
            with no_grad():
                inner.rebind(value.detach())
    return to_module
