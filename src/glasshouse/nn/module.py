"""Module: the base class of layers and models, and Parameter, the tensor that is trained."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from time import perf_counter_ns
from typing import Any, Self

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, bfloat16, float16, float32, float64, suggest, type_name
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import DTypeError, MemberError
from glasshouse.dispatch import Value, as_value, cast, hooks, scope_of, state, tell, watchers
from glasshouse.nn.checks import check_arguments, check_callable, check_flags, is_taken
from glasshouse.nn.hooks import CALL_KINDS, Hooked, call_hooks, called, global_hooks
from glasshouse.nn.state import Stateful
from glasshouse.tensor import Tensor, empty
from glasshouse.tensor.destination import named_targets

MEMBERS = ("_parameters", "_buffers", "_modules")


class Parameter(Tensor):
    """A trainable tensor: as an attribute of a Module it belongs to `parameters()`.
    `requires_grad` is True unless given, where the dtype can have gradients.

    Example:
        >>> Parameter([1.0, 2.0]).requires_grad
        True
    """

    def __new__(cls, data: Any = None, requires_grad: bool | None = None) -> Self:
        tensor = Tensor.__new__(cls, as_value(data))
        needs_grad = tensor.dtype.is_inexact if requires_grad is None else requires_grad
        tensor.tape_entry = None
        return tensor.requires_grad_(needs_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class ModuleBuffer(Tensor):
    """A tensor that is kept but not trained: as an attribute of a Module it belongs to `buffers()`,
    and to `state_dict()` if `persistent`.

    Example:
        >>> module = Module()
        >>> module.scale = ModuleBuffer(gh.ones(2))
        >>> list(module.state_dict())
        ['scale']
    """

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Self:
        tensor = Tensor.__new__(cls, as_value(data))
        tensor.tape_entry = None
        tensor.persistent = persistent
        return tensor


def conversion(dtype: Any) -> Any:
    def method(self):
        return self.to(dtype)

    method.__doc__ = f"This module in {dtype.name}."
    return method


class Module(Hooked, Stateful):
    """Base class of layers and models.
    Attributes that are Parameters or Modules are found by `parameters()`, `state_dict()`, `to()`
    and so on, under their dotted names. A subclass calls `super().__init__()` first and defines
    `forward`.

    Example:
        >>> class Double(Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(3)
        6
    """

    training: bool
    float: Any
    double: Any
    half: Any
    bfloat16: Any

    _shown_first: tuple[str, ...] = ()  # attributes in the repr: values alone, …
    _shown: tuple[str, ...] = ()  # … and those with their names

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:
            check_flags(cls, args, kwargs)
        return super().__new__(cls)

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            **{kind: OrderedDict() for kind in CALL_KINDS},
        )

    # -- calling ---------------------------------------------------------------------------
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of a call; subclasses define it."""
        name = type(self).__name__
        raise NotImplementedError(f"{name}: expected a method forward; got none. Define it.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = state.scope
        state.scope = scope = scope_of(self, outer)
        begin_ns = perf_counter_ns() if watchers else 0
        try:
            if call_hooks or self._is_hooked():
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except TypeError:
            check_arguments(type(self).__name__, self.forward, args, kwargs)
            raise
        finally:
            state.scope = outer
            if begin_ns:
                tell("module", scope, begin_ns)

    def _call_with_hooks(self, args, kwargs):
        return called(self, self.forward, args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Capture forward: `gh.optimize(*args, **kwargs)` of it takes its place.

        Example:
            >>> layer = gh.nn.Linear(2, 3)
            >>> layer.compile()
            >>> layer(gh.ones((1, 2))).shape
            (1, 3)
        """
        forward = hooks.optimize(*args, **kwargs)(self.forward)
        self.forward = forward  # type: ignore[method-assign]  # of this module alone

    def _is_hooked(self) -> bool:
        before = self._forward_pre_hooks or self._backward_pre_hooks
        return bool(before or self._forward_hooks or self._backward_hooks)

    # -- attributes ------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        for kind in MEMBERS:
            members = self.__dict__.get(kind, ())
            if name in members:
                return members[name]
        fix = ""
        if not name.startswith("__"):  # protocols ask for special names: they are not misspelled
            fix = suggest(name, [n for n in self.__dir__() if not n.startswith("_")])
        where = type(self).__name__
        raise MemberError(where, "an attribute", repr(name), fix, name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        for kind, cls in TAKEN.items():
            if isinstance(value, cls):
                if kind == "buffer":
                    self._keep(name, value.persistent)
                return self._register(kind, name, value, replace=True)
        for kind in KINDS:
            members = self.__dict__.get(f"_{kind}s", ())
            if name in members:
                self._check_member(name, value, kind)
                members[name] = value
                return None
        return object.__setattr__(self, name, value)

    def _check_member(self, name: str, value, kind: str) -> None:
        cls = KINDS[kind]
        if value is not None and not isinstance(value, cls):
            expected = f"a {cls.__name__} or None for {kind} {name!r}"
            fix = "Wrap the value, or delete the attribute first."
            raise DTypeError(type(self).__name__, expected, type_name(value), fix)

    def __delattr__(self, name: str) -> None:
        for kind in MEMBERS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        members = (self.__dict__.get(kind, ()) for kind in MEMBERS)
        return sorted({*object.__dir__(self), *chain(*members)})

    def _register(self, kind: str, name, value, replace: bool = False) -> None:
        where = f"{type(self).__name__}.register_{kind}"
        if "_modules" not in self.__dict__:
            fix = "Call it first in __init__."
            raise MemberError(where, "super().__init__() to have run", f"{name!r} before it", fix)
        if not isinstance(name, str) or not name or "." in name:
            raise OptionError(where, "a name without dots", repr(name), "Change it.")
        members = self.__dict__[f"_{kind}s"]
        if not replace and name not in members and is_taken(self, name):
            raise OptionError(where, "a new name", f"{name!r}, an attribute", "Choose another.")
        self._check_member(name, value, kind)
        for hook in tuple(global_hooks[kind].values()):
            returned = hook(self, name, value)
            value = value if returned is None else returned
        for other in (self.__dict__, self._parameters, self._buffers, self._modules):
            if other is not members:
                other.pop(name, None)
        members[name] = value

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Make `param` (a Parameter or None) an attribute that is trained and saved."""
        self._register("parameter", name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Make `tensor` (or None) an attribute that moves with the module and is not trained;
        `persistent` ones are part of the state_dict."""
        self._register("buffer", name, tensor)
        self._keep(name, persistent)

    def _keep(self, name: str, persistent: bool) -> None:
        left_out = self._non_persistent_buffers_set
        (left_out.discard if persistent else left_out.add)(name)

    def add_module(self, name: str, module: Any) -> None:
        """Make `module` (or None) a child under `name`."""
        self._register("module", name, module)

    register_module = add_module

    # -- walking ---------------------------------------------------------------------------
    def named_children(self) -> "Iterator[tuple[str, Module]]":
        """(name, module) of each direct child, a shared one once."""
        visited = {None}
        for name, module in self._modules.items():
            if module not in visited:
                visited.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """The direct children."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Any:
        """(dotted name, module) of this module ("") and all below it, a shared one once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self) -> Iterator[Any]:
        """This module and all below it."""
        return (module for _, module in self.named_modules())

    def _named_members(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool):
        visited = set()
        every = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in every if recurse else [(prefix, self)]:
            for name, member in module.__dict__[kind].items():
                if member is not None and not (remove_duplicate and id(member) in visited):
                    visited.add(id(member))
                    yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Any]:
        """(dotted name, Parameter) of this module and those below, a shared one once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """The Parameters of this module and those below, a shared one once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Any]:
        """(dotted name, buffer) of this module and those below, a shared one once."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """The buffers of this module and those below."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> "Module":
        """The module at the dotted name `target` ("": this one).

        Raises: AttributeError.
        """
        module = self
        for name in target.split(".") if target else ():
            if name not in module._modules:
                expected = "a child module"
                fix = suggest(name, module._modules)
                raise MemberError(type(module).__name__, expected, f"{name!r} of {target!r}", fix)
            module = module._modules[name]
        return module

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Put `module` at the dotted name `target`; if `strict`, only where there is one already.

        Raises: AttributeError where its parent, or if strict itself, is missing.
        Example:
            >>> net = gh.nn.Sequential(gh.nn.Linear(2, 2), gh.nn.ReLU())
            >>> net.set_submodule("1", gh.nn.Tanh())
            >>> net[1]
            Tanh()
        """
        if not target:
            raise OptionError("set_submodule", "the name of a child", "''", "Name one.")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict:
            parent.get_submodule(name)
        parent._register("module", name, module, replace=True)

    def get_parameter(self, target: str) -> Parameter:
        """The Parameter at the dotted name `target`."""
        return self._get_member("_parameters", target)

    def get_buffer(self, target: str) -> Any:
        """The buffer at the dotted name `target`."""
        return self._get_member("_buffers", target)

    def _get_member(self, kind: str, target: str):
        path, _, name = target.rpartition(".")
        members = self.get_submodule(path).__dict__[kind]
        if members.get(name) is None:
            fix = suggest(name, members)
            raise MemberError(type(self).__name__, f"one of its {kind[1:]}", repr(target), fix)
        return members[name]

    # -- changing --------------------------------------------------------------------------
    def apply(self, fn: Callable[..., Any]) -> Self:
        """This module, after `fn(module)` for each module below it and then for itself."""
        check_callable(f"{type(self).__name__}.apply", "fn", fn)
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """This module in training mode (or not): Dropout, BatchNorm … behave accordingly."""
        if not isinstance(mode, bool):
            raise OptionError("train", "True or False", repr(mode), "Pass a bool.")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """This module in evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """This module, with gradients of all its parameters switched on (or off)."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or fill them with zeros)."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else (p.grad * 0).detach()

    def to(
        self,
        *targets: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        non_blocking: bool = False,
    ) -> Any:
        """This module, with parameters and buffers in another dtype (floating ones only), on
        another device, or like a tensor given as target.

        Raises: DTypeError for a dtype that is not inexact, DeviceError for a device that there is
            not; the module is unchanged then.
        """
        destinations = [target for target in targets if target is not None]
        dtype, device = named_targets(destinations, dtype, device)
        if dtype is not None and not dtype.is_inexact:
            expected = "a floating or complex dtype"
            fix = "Convert single tensors with tensor.to."
            raise DTypeError(f"{type(self).__name__}.to", expected, dtype.name, fix)

        def convert(tensor):
            moved = tensor if device is None else tensor.to(device=device)
            return moved if dtype is None or not moved.dtype.is_inexact else cast(moved, dtype)

        return self._convert(convert)

    def _convert(self, convert):
        """This module with each tensor replaced by `convert` of it, in place and all or none."""
        with no_grad():
            tensors = [*self.parameters(), *self.buffers()]
            converted = [convert(t) for t in tensors]
            grads = [None if t.grad is None else convert(t.grad) for t in tensors]
            for tensor, value, grad in zip(tensors, converted, grads, strict=True):
                if value is not tensor:
                    tensor.rebind(value)
                    tensor.grad = grad
        return self

    float, double, half, bfloat16 = map(conversion, (float32, float64, float16, bfloat16))

    def type(self, dst_type: str) -> Any:
        """This module, with parameters and buffers in another dtype (floating ones only)."""
        return self.to(dst_type)

    def cpu(self) -> Any:
        """This module in host memory."""
        return self._convert(lambda t: t.cpu())

    def cuda(self, device: str | None = None) -> Any:
        """This module on a CUDA device; raises DeviceError where the backend has none."""
        return self._convert(lambda t: t.cuda(device))

    def to_empty(self, *, device: str | None = None, recurse: bool = True) -> Self:
        """This module on another device, with parameters and buffers of no particular contents."""
        members = (*self.parameters(recurse), *self.buffers(recurse))
        with no_grad():
            for x in members:
                x.rebind(empty(x.shape, dtype=x.dtype, device=device))
        return self

    # -- printing --------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """Text between the parentheses of the repr; subclasses define it, or list attributes."""
        values = {n: getattr(self, n) for n in self._shown}
        if "bias" in values:
            values["bias"] = values["bias"] is not None
        first = [str(getattr(self, name)) for name in self._shown_first]
        return ", ".join([*first, *(f"{name}={value}" for name, value in values.items())])

    def _repr_children(self) -> list[str]:
        return [f"({name}): {indented(repr(m))}" for name, m in self._modules.items()]

    def __repr__(self) -> str:
        extra, children = self.extra_repr(), self._repr_children()
        if not children and "\n" not in extra:
            return f"{type(self).__name__}({extra})"
        lines = "\n  ".join([*filter(None, extra.split("\n")), *children])
        return f"{type(self).__name__}(\n  {lines}\n)"


KINDS: dict[str, Any] = {"parameter": Parameter, "module": Module, "buffer": Value}  # of members …
TAKEN: dict[Any, Any] = KINDS | {
    "buffer": ModuleBuffer
}  # … and what becomes one when it is set as an attribute


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


@contextmanager
def swap_tensors(module: Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Inside, `module` has the given tensors in place of its parameters and buffers."""
    places: dict[str, tuple[Any, str]] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            for name in members:
                places.setdefault(f"{path}.{name}" if path else name, (members, name))
    for name in tensors:
        if name not in places:
            fix = suggest(name, places)
            raise OptionError("functional_call", "names of parameters and buffers", repr(name), fix)
    before = {name: places[name][0][places[name][1]] for name in tensors}
    ids = {id(old): tensors[name] for name, old in before.items() if old is not None}
    changed = [(m, n, m[n]) for m, n in places.values() if id(m[n]) in ids]
    try:
        for members, name, old in changed:
            members[name] = ids[id(old)]
        yield
    finally:
        for members, name, old in changed:
            members[name] = old


def functional_call(
    module: Module, tensors: Mapping[str, Any], args: Any = (), kwargs: Any = None
) -> Tensor:
    """module(*args, **kwargs), computed with `tensors` (dotted name → tensor) instead of its own.
    A parameter shared under several names is replaced under all of them. With it gh.grad, vmap …
    see a model as a function of its parameters.

    Raises: OptionError for an unknown name.
    """
    args = args if isinstance(args, tuple) else (args,)
    with swap_tensors(module, tensors):
        return module(*args, **(kwargs or {}))
