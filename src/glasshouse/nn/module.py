"""Module: the base class of layers and models, and Parameter, the tensor that is trained."""

from collections import OrderedDict
from contextlib import contextmanager
from itertools import chain
from time import perf_counter_ns
from typing import NamedTuple

from glasshouse.autograd import no_grad
from glasshouse.base import OptionError, suggest, type_name
from glasshouse.base.dtype import bfloat16, float16, float32, float64
from glasshouse.base.errors import CheckpointError, DTypeError, MemberError
from glasshouse.dispatch import Value, cast, scope_of, state, tell, watchers
from glasshouse.nn.checks import check_callable
from glasshouse.tensor import Tensor, asarray, from_dlpack
from glasshouse.tensor.handle import Hook, named_targets

MEMBERS = ("_parameters", "_buffers", "_modules")


class Parameter(Tensor):
    """A trainable tensor: as an attribute of a Module it belongs to `parameters()`.
    `requires_grad` is True unless given, where the dtype can have gradients.

    Example:
        >>> Parameter([1.0, 2.0]).requires_grad
        True
    """

    def __new__(cls, data=None, requires_grad=None):
        tensor = Tensor.__new__(cls, data)
        wanted = tensor.dtype.is_inexact if requires_grad is None else requires_grad
        tensor.tape_entry = None
        return tensor.requires_grad_(wanted)

    def __repr__(self):
        return f"Parameter containing:\n{super().__repr__()}"


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict(strict=False)` left out."""

    missing_keys: list
    unexpected_keys: list

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        text = f"IncompatibleKeys({self.missing_keys=}, {self.unexpected_keys=})"
        return text.replace("self.", "")


def conversion(dtype):
    def method(self):
        return self.to(dtype)

    method.__doc__ = f"This module in {dtype.name}."
    return method


class Module:
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
    _shown_first: tuple[str, ...] = ()  # attributes in the repr: values alone, …
    _shown: tuple[str, ...] = ()  # … and those with their names

    def __init__(self):
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _forward_pre_hooks=OrderedDict(),
            _forward_hooks=OrderedDict(),
        )

    # -- calling ---------------------------------------------------------------------------
    def forward(self, *args, **kwargs):
        """What the module computes; subclasses define it."""
        name = type(self).__name__
        raise NotImplementedError(f"{name}: expected a method forward; got none. Define it.")

    def __call__(self, *args, **kwargs):
        outer = state.scope
        state.scope = scope = scope_of(self, outer)
        begin_ns = perf_counter_ns() if watchers else 0
        try:
            if self._forward_pre_hooks or self._forward_hooks:
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            state.scope = outer
            if begin_ns:
                tell("module", scope, begin_ns)

    def _call_with_hooks(self, args, kwargs):
        for hook, with_kwargs in tuple(self._forward_pre_hooks.values()):
            returned = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if returned is not None and with_kwargs:
                args, kwargs = returned
            elif returned is not None:
                args = returned if isinstance(returned, tuple) else (returned,)
        result = self.forward(*args, **kwargs)
        for hook, with_kwargs in tuple(self._forward_hooks.values()):
            extra = (kwargs,) if with_kwargs else ()
            returned = hook(self, args, *extra, result)
            result = result if returned is None else returned
        return result

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False) -> Hook:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments.
        With `with_kwargs`: `hook(module, args, kwargs)`, which returns None or (args, kwargs)."""
        check_callable("register_forward_pre_hook", "hook", hook)
        return Hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False) -> Hook:
        """Call `hook(module, args, result)` after forward; what it returns replaces the result.
        With `with_kwargs`: `hook(module, args, kwargs, result)`."""
        check_callable("register_forward_hook", "hook", hook)
        return Hook(self._forward_hooks, (hook, with_kwargs), prepend)

    # -- attributes ------------------------------------------------------------------------
    def __getattr__(self, name: str):
        for kind in MEMBERS:
            members = self.__dict__.get(kind, ())
            if name in members:
                return members[name]
        public_names = [n for n in self.__dir__() if not n.startswith("_")]
        raise MemberError(
            type(self).__name__,
            "an attribute",
            repr(name),
            suggest(name, public_names),
            name=name,
            obj=self,
        )

    def __setattr__(self, name: str, value) -> None:
        for kind, cls in KINDS.items():
            if kind != "buffer" and isinstance(value, cls):
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
            raise DTypeError(
                type(self).__name__,
                f"a {cls.__name__} or None for {kind} {name!r}",
                type_name(value),
                "Wrap the value, or delete the attribute first.",
            )

    def __delattr__(self, name: str) -> None:
        for kind in MEMBERS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        members = (self.__dict__.get(kind, ()) for kind in MEMBERS)
        return sorted({*object.__dir__(self), *chain(*members)})

    def _register(self, kind: str, name, value, replace: bool = False) -> None:
        where = f"{type(self).__name__}.register_{kind}"
        if "_modules" not in self.__dict__:
            raise MemberError(
                where,
                "super().__init__() to have run",
                f"{name!r} before it",
                "Call it first in __init__.",
            )
        if not isinstance(name, str) or not name or "." in name:
            raise OptionError(where, "a name without dots", repr(name), "Change it.")
        members = self.__dict__[f"_{kind}s"]
        if not replace and name not in members and hasattr(self, name):
            raise OptionError(where, "a new name", f"{name!r}, an attribute", "Choose another.")
        self._check_member(name, value, kind)
        for other in (self.__dict__, self._parameters, self._buffers, self._modules):
            if other is not members:
                other.pop(name, None)
        members[name] = value

    def register_parameter(self, name: str, param) -> None:
        """Make `param` (a Parameter or None) an attribute that is trained and saved."""
        self._register("parameter", name, param)

    def register_buffer(self, name: str, tensor, persistent: bool = True) -> None:
        """Make `tensor` (or None) an attribute that moves with the module and is not trained;
        `persistent` ones are part of the state_dict."""
        self._register("buffer", name, tensor)
        left_out = self._non_persistent_buffers_set
        (left_out.discard if persistent else left_out.add)(name)

    def add_module(self, name: str, module) -> None:
        """Make `module` (or None) a child under `name`."""
        self._register("module", name, module)

    register_module = add_module

    # -- walking ---------------------------------------------------------------------------
    def named_children(self):
        """(name, module) of each direct child, a shared one once."""
        visited = {None}
        for name, module in self._modules.items():
            if module not in visited:
                visited.add(module)
                yield name, module

    def children(self):
        """The direct children."""
        return (module for _, module in self.named_children())

    def named_modules(self, memo=None, prefix: str = "", remove_duplicate: bool = True):
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

    def modules(self):
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
    ):
        """(dotted name, Parameter) of this module and those below, a shared one once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True):
        """The Parameters of this module and those below, a shared one once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        """(dotted name, buffer) of this module and those below, a shared one once."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True):
        """The buffers of this module and those below."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> "Module":
        """The module at the dotted name `target` ("": this one).

        Raises: AttributeError.
        """
        module = self
        for name in target.split(".") if target else ():
            if name not in module._modules:
                raise MemberError(
                    type(module).__name__,
                    "a child module",
                    f"{name!r} of {target!r}",
                    suggest(name, module._modules),
                )
            module = module._modules[name]
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The Parameter at the dotted name `target`."""
        return self._get_member("_parameters", target)

    def get_buffer(self, target: str):
        """The buffer at the dotted name `target`."""
        return self._get_member("_buffers", target)

    def _get_member(self, kind: str, target: str):
        path, _, name = target.rpartition(".")
        members = self.get_submodule(path).__dict__[kind]
        if members.get(name) is None:
            raise MemberError(
                type(self).__name__, f"one of its {kind[1:]}", repr(target), suggest(name, members)
            )
        return members[name]

    # -- changing --------------------------------------------------------------------------
    def apply(self, fn):
        """This module, after `fn(module)` for each module below it and then for itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True):
        """This module in training mode (or not): Dropout, BatchNorm … behave accordingly."""
        if not isinstance(mode, bool):
            raise OptionError("train", "True or False", repr(mode), "Pass a bool.")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """This module in evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True):
        """This module, with gradients of all its parameters switched on (or off)."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or fill them with zeros)."""
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else (p.grad * 0).detach()

    def to(self, *targets, dtype=None, device=None):
        """This module, with parameters and buffers in another dtype (floating ones only), on
        another device, or like a tensor given as target.

        Raises: DTypeError for a dtype that is not inexact, DeviceError for a device that there is
            not; the module is unchanged then.
        """
        given = [target for target in targets if target is not None]
        dtype, device = named_targets(given, dtype, device)
        if dtype is not None and not dtype.is_inexact:
            raise DTypeError(
                f"{type(self).__name__}.to",
                "a floating or complex dtype",
                dtype.name,
                "Convert single tensors with tensor.to.",
            )

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

    def cpu(self):
        """This module in host memory."""
        return self._convert(lambda t: t.cpu())

    # -- saving ----------------------------------------------------------------------------
    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict:
        """Parameters and persistent buffers by dotted name, in the order of PyTorch's.
        The tensors are snapshots, off the tape; `keep_vars` gives the parameters themselves."""
        named_state = self._named_state(prefix)
        return {name: value if keep_vars else value.detach() for name, value in named_state}

    def _named_state(self, prefix: str):
        for name, x in chain(self._parameters.items(), self._buffers.items()):
            if x is not None and name not in self._non_persistent_buffers_set:
                yield prefix + name, x
        for name, module in self._modules.items():
            if module is not None:
                yield from module._named_state(f"{prefix}{name}.")

    def load_state_dict(self, state_dict, strict: bool = True) -> IncompatibleKeys:
        """The names that did not match (none, if strict), after loading all that do. Values
        (tensors, arrays, tensors of other libraries) take the module's dtypes. All is checked
        before anything changes.

        Raises: CheckpointError for a tensor of another shape, and, if strict, for missing or
            unexpected names.
        """
        own, loaded, wrong = dict(self._named_state("")), {}, []
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        for name in own:
            if name in state_dict:
                self._check_loaded(name, own[name], state_dict[name], loaded, wrong)
        if wrong or (strict and (missing or unexpected)):
            where = f"{type(self).__name__}.load_state_dict"
            raise load_error(where, missing, unexpected, wrong, strict)
        with no_grad():
            for name, value in loaded.items():
                own[name].copy_(value)
        return IncompatibleKeys(missing, unexpected)

    def _check_loaded(self, name: str, own, given, loaded: dict, wrong: list) -> None:
        try:
            value = given if isinstance(given, Value) else adopted(given)
            if value.shape != own.shape:
                wrong.append(f"{name} of shape {value.shape}, not {own.shape}")
            else:
                loaded[name] = cast(value.detach(), own.dtype)
        except (TypeError, ValueError) as error:
            wrong.append(f"{name} ({error})")

    # -- printing --------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """What the repr shows between the parentheses; subclasses define it, or list attributes."""
        values = {n: getattr(self, n) for n in self._shown}
        if "bias" in values:
            values["bias"] = values["bias"] is not None
        first = [str(getattr(self, name)) for name in self._shown_first]
        return ", ".join([*first, *(f"{name}={value}" for name, value in values.items())])

    def _repr_children(self) -> list[str]:
        return [f"({name}): {indented(repr(m))}" for name, m in self._modules.items()]

    def __repr__(self):
        extra, children = self.extra_repr(), self._repr_children()
        if not children and "\n" not in extra:
            return f"{type(self).__name__}({extra})"
        lines = "\n  ".join([*filter(None, extra.split("\n")), *children])
        return f"{type(self).__name__}(\n  {lines}\n)"


KINDS = {"parameter": Parameter, "module": Module, "buffer": Value}  # of members


def adopted(given) -> Value:
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array_interface__"):
        given = from_dlpack(given)
    return asarray(given, copy=True)


def load_error(where: str, missing, unexpected, wrong, strict: bool) -> CheckpointError:
    kinds = {"missing": missing, "unexpected": unexpected} if strict else {}
    kinds["mismatched"] = wrong
    parts = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)
    hint = "" if wrong else " or pass strict=False"
    return CheckpointError(
        where,
        "the names and shapes of this module",
        parts,
        f"Load the state of an equal module{hint}.",
    )


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


@contextmanager
def swapped(module: Module, tensors: dict):
    """Inside, `module` has the given tensors in place of its parameters and buffers."""
    places = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for members in (part._parameters, part._buffers):
            for name in members:
                places.setdefault(f"{path}.{name}" if path else name, (members, name))
    for name in tensors:
        if name not in places:
            raise OptionError(
                "functional_call",
                "names of parameters and buffers",
                repr(name),
                suggest(name, places),
            )
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


def functional_call(module: Module, tensors: dict, args=(), kwargs=None):
    """module(*args, **kwargs), computed with `tensors` (dotted name → tensor) in place of its own.
    A parameter shared under several names is replaced under all of them. With it gh.grad, vmap …
    see a model as a function of its parameters.

    Raises: OptionError for an unknown name.
    """
    args = args if isinstance(args, tuple) else (args,)
    with swapped(module, tensors):
        return module(*args, **(kwargs or {}))
