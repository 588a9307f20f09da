"""The state of modules: `state_dict` collects it, `load_state_dict` restores it."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.autograd import no_grad
from glasshouse.base.errors import CheckpointError, DeviceError
from glasshouse.dispatch import Value, cast
from glasshouse.dispatch.value import ArrayLike
from glasshouse.nn.uninitialized import Uninitialized
from glasshouse.ops.checks import check_type
from glasshouse.tensor import Tensor, asarray, from_dlpack

if TYPE_CHECKING:
    from glasshouse.nn.module import Module


EXTRA = "_extra_state"  # the name under which `get_extra_state` is saved


class IncompatibleKeys(NamedTuple):
    """Keys that `load_state_dict(strict=False)` could not match: missing and unexpected."""

    missing_keys: list[Any]
    unexpected_keys: list[Any]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        text = f"IncompatibleKeys({self.missing_keys=}, {self.unexpected_keys=})"
        return text.replace("self.", "")


class Stateful:
    """Saving and loading, for Module."""

    _modules: dict[Any, Any]
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    named_modules: Callable[..., Any]

    def share_memory(self) -> Any:
        """Not possible: values never change, so processes have nothing to share.

        Raises: DeviceError.
        """
        fix = "Send state_dict() to the other process."
        raise DeviceError("share_memory", "tensors of one process", "a wish to share them", fix)

    def get_extra_state(self) -> Any:
        """State to save beside parameters and buffers; subclasses define it together with
        `set_extra_state`."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a method get_extra_state; got none. Define it."
        )

    def set_extra_state(self, state: Any) -> None:
        """Restore the result of `get_extra_state`; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a method set_extra_state; got none. Define it."
        )

    def state_dict(
        self,
        destination: Any = None,
        *,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[Any, Any]:
        """Parameters and persistent buffers by dotted name, in the order of PyTorch's.
        The tensors are snapshots, off the tape; `keep_vars` gives the parameters themselves. They
        are put into `destination` if it is given."""
        state = {} if destination is None else destination
        for hook in self._hooks("_state_dict_pre_hooks"):
            hook(self, prefix, keep_vars)
        for name, x in self._own_state(prefix):
            state[name] = x if keep_vars else x.detach()
        if has_extra_state(self):
            state[prefix + EXTRA] = self.get_extra_state()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._hooks("_state_dict_hooks"):
            hook(self, state, prefix, {})
        return state

    def _hooks(self, kind: str) -> tuple[Any, ...]:
        return tuple(self.__dict__.get(kind, {}).values())

    def _own_state(self, prefix: str):
        """(name, tensor) of this module's own parameters and persistent buffers."""
        for name, x in chain(self._parameters.items(), self._buffers.items()):
            if x is not None and name not in self._non_persistent_buffers_set:
                yield prefix + name, x

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """The names that did not match (none, if strict), after loading all that do. Values
        (tensors, arrays, tensors of other libraries) take the module's dtypes, or replace the
        module's tensors if `assign`. All is checked before anything changes.

        Raises: CheckpointError for a tensor of another shape, and, if strict, for missing or
            unexpected names.
        """
        where, fix = f"{type(self).__name__}.load_state_dict", "Pass what state_dict() returned."
        tensors = dict(check_type(where, state_dict, Mapping, "tensors by name", fix))
        modules = list(self.named_modules(remove_duplicate=False))
        missing, unexpected, wrong = self._call_load_pre_hooks(modules, tensors, strict)
        current, owners = {}, {}
        for path, module in modules:
            for name, x in module._own_state(prefix_of(path)):
                current[name], owners[name] = x, module
        extra = {prefix_of(path) + EXTRA: m for path, m in modules if has_extra_state(m)}
        expected = [*current, *extra]
        missing += [name for name in expected if name not in tensors]
        unexpected += [name for name in tensors if name not in current and name not in extra]
        loaded: dict[Any, Any] = {}
        for name, x in current.items():
            if name in tensors:
                check_loaded(name, x, tensors[name], loaded, wrong, assign)
        if wrong or (strict and (missing or unexpected)):
            raise load_error(where, missing, unexpected, wrong, strict)
        with no_grad():
            for name, value in loaded.items():
                put(owners[name], last_part(name), current[name], value, assign)
        for name, module in extra.items():
            if name in tensors:
                module.set_extra_state(tensors[name])
        keys = IncompatibleKeys(missing, unexpected)
        for _, module in reversed(modules):
            for hook in module._hooks("_load_state_dict_post_hooks"):
                hook(module, keys)
        return keys

    def _call_load_pre_hooks(self, modules, tensors: dict[Any, Any], strict: bool):
        """(missing, unexpected, wrong) as the hooks before loading leave them."""
        missing: list[Any] = []
        unexpected: list[Any] = []
        wrong: list[Any] = []
        for path, module in modules:
            for hook in module._hooks("_load_state_dict_pre_hooks"):
                prefix = prefix_of(path)
                hook(module, tensors, prefix, {}, strict, missing, unexpected, wrong)
        return missing, unexpected, wrong


def has_extra_state(module: Any) -> bool:
    return type(module).get_extra_state is not Stateful.get_extra_state


def prefix_of(path: str) -> str:
    return f"{path}." if path else ""


def last_part(name: str) -> str:
    return name.rpartition(".")[2]


def check_loaded(
    name: str,
    target: Any,
    source: ArrayLike,
    loaded: dict[Any, Any],
    wrong: list[Any],
    assign: bool,
) -> None:
    try:
        value = source if isinstance(source, Value) else copy_of(source)
        if isinstance(value, Uninitialized):
            if not isinstance(target, Uninitialized):
                wrong.append(f"{name} without a shape, not {target.shape}")
        elif not isinstance(target, Uninitialized) and value.shape != target.shape:
            wrong.append(f"{name} of shape {value.shape}, not {target.shape}")
        else:
            loaded[name] = value.detach() if assign else cast(value.detach(), target.dtype)
    except (TypeError, ValueError) as error:
        wrong.append(f"{name} ({error})")


def put(module: "Module", name: str, target: Tensor, value: Tensor, assign: bool) -> None:
    """Write a value into a module's tensor, or put it in its place."""
    if not assign:
        target.copy_(value)
    elif name in module._parameters:
        module._parameters[name] = type(target)(value, target.requires_grad)
    else:
        module._buffers[name] = value


def copy_of(source: Any) -> Tensor:
    if hasattr(source, "__dlpack__") and not hasattr(source, "__array_interface__"):
        source = from_dlpack(source)
    return asarray(source, copy=True)


def load_error(
    where: str, missing: list[str], unexpected: list[str], wrong: list[str], strict: bool
) -> CheckpointError:
    kinds = {"missing": missing, "unexpected": unexpected} if strict else {}
    kinds["mismatched"] = wrong
    parts = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)
    hint = "" if wrong else " or pass strict=False"
    fix = f"Load the state of an equal module{hint}."
    return CheckpointError(where, "the names and shapes of this module", parts, fix)
