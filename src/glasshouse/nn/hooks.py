"""Hooks: functions that modules call before and after forward, backward, saving and loading.

Those of one module are in tables of that module; those of all modules are in `global_hooks`, and
are called first."""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from glasshouse.autograd import Function
from glasshouse.dispatch import Value
from glasshouse.nn.checks import check_callable
from glasshouse.tensor import Tensor
from glasshouse.tensor.handle import Hook

if TYPE_CHECKING:
    from glasshouse.nn.module import Module


__all__ = ["register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook",
           "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
           "register_module_parameter_registration_hook"]  # fmt: skip

CALL_KINDS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
REGISTRATIONS = ("parameter", "buffer", "module")
global_hooks: dict[str, OrderedDict[Any, Any]] = {
    kind: OrderedDict() for kind in (*CALL_KINDS, *REGISTRATIONS)
}
call_hooks: OrderedDict[Any, Any] = (
    OrderedDict()
)  # hooks in `global_hooks` that calls of modules look for


class CallHook(NamedTuple):
    """A hook of forward or backward with its options."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class GlobalHook(Hook):
    """Removes a hook of all modules."""

    def __init__(self, kind: str, hook: Any) -> None:
        super().__init__(global_hooks[kind], hook)
        if kind in CALL_KINDS:
            call_hooks[self] = hook

    def remove(self) -> None:
        """Stop calling the hook."""
        super().remove()
        call_hooks.pop(self, None)


def hooks_of(module: "Module", kind: str) -> tuple[Any, ...]:
    return *global_hooks[kind].values(), *module.__dict__[kind].values()


def called(
    module: "Module", forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> Any:
    """The result of forward between the hooks of the module and those of all modules."""
    for hook in hooks_of(module, "_forward_pre_hooks"):
        args, kwargs = with_replaced(hook, module, args, kwargs)
    backward = None
    if backward_hooks(module):
        backward = BackwardHooks(module)
        args = backward.marked_inputs(args)
    after = list(hooks_of(module, "_forward_hooks"))
    try:
        result = forward(*args, **kwargs)
        while after:
            hook = after.pop(0)
            extra = (kwargs,) if hook.with_kwargs else ()
            returned = hook.function(module, args, *extra, result)
            result = result if returned is None else returned
    except Exception:
        call_always(module, after, args, kwargs)
        raise
    return result if backward is None else backward.marked_result(result)


def with_replaced(
    hook: CallHook, module: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> tuple[tuple[Tensor, ...], dict[Any, Any]]:
    """The arguments as a hook before forward leaves them."""
    if hook.with_kwargs:
        return hook.function(module, args, kwargs) or (args, kwargs)
    returned = hook.function(module, args)
    if returned is None:
        return args, kwargs
    return (returned if isinstance(returned, tuple) else (returned,)), kwargs


def call_always(
    module: Any, hooks: list[CallHook], args: tuple[Any, ...], kwargs: dict[Any, Any]
) -> None:
    """Call those hooks after a forward that raised which are to be called always."""
    for hook in hooks:
        if hook.always_call:
            extra = (kwargs,) if hook.with_kwargs else ()
            try:
                hook.function(module, args, *extra, None)
            except Exception as error:
                warnings.warn(
                    f"a forward hook of {type(module).__name__} raised after forward did: {error}",
                    stacklevel=2,
                )


def backward_hooks(module: "Module") -> bool:
    return any(hooks_of(module, kind) for kind in ("_backward_pre_hooks", "_backward_hooks"))


class Marker(Function):
    """Tensors unchanged, whose gradients `observe(gradients)` sees and may replace."""

    @staticmethod
    def forward(ctx: Any, observe: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.observe = observe
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *ctx.observe(gradients)


class BackwardHooks:
    """The hooks around the backward pass of one call of a module: the gradients of its results are
    seen first, then those of its inputs."""

    def __init__(self, module: "Module") -> None:
        self.module = module
        self.grad_output: tuple[Any, ...] | None = None
        self.inputs: int = 0
        self.tracked: list[int] = []

    def marked_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = len(args)
        args, self.tracked = mark_tracked(args, self.see_inputs)
        return args

    def marked_result(self, result: Any) -> Any:
        several = isinstance(result, (tuple, list))
        values = tuple(result) if several else (result,)
        places: list[int] = []

        def see(gradients):
            return self.see_results(gradients, places, len(values))

        values, marked_places = mark_tracked(values, see)
        places.extend(marked_places)
        if not several:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def see_results(
        self, gradients: tuple[Tensor, ...], places: list[int], count: int
    ) -> tuple[Tensor, ...]:
        self.grad_output = fill_gaps(gradients, places, count)
        for hook in hooks_of(self.module, "_backward_pre_hooks"):
            returned = hook.function(self.module, self.grad_output)
            if returned is not None:
                self.grad_output = returned if isinstance(returned, tuple) else (returned,)
        if not self.tracked:
            self.call_hooks((None,) * self.inputs)
        return tuple(self.grad_output[i] for i in places)

    def see_inputs(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self.grad_output is None:  # a backward pass that did not come through the results
            return gradients
        replaced = self.call_hooks(fill_gaps(gradients, self.tracked, self.inputs))
        self.grad_output = None
        return tuple(replaced[i] for i in self.tracked)

    def call_hooks(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in hooks_of(self.module, "_backward_hooks"):
            returned = hook.function(self.module, grad_input, self.grad_output)
            if returned is not None:
                grad_input = returned if isinstance(returned, tuple) else (returned,)
        return grad_input


def mark_tracked(
    values: tuple[Any, ...], observe: Callable[..., Any]
) -> tuple[tuple[Any, ...], list[int]]:
    """The values, the tracked ones passed through a Marker, and the places of those."""
    places = [i for i, x in enumerate(values) if isinstance(x, Value) and x.tape_entry is not None]
    marked_values = list(values)
    if places:
        for i, x in zip(places, Marker.apply(observe, *(values[i] for i in places)), strict=True):
            marked_values[i] = x
    return tuple(marked_values), places


def fill_gaps(gradients: tuple[Tensor, ...], places: list[int], count: int) -> tuple[Any, ...]:
    """Gradients at their places, None elsewhere."""
    by_place = dict(zip(places, gradients, strict=True))
    return tuple(by_place.get(i) for i in range(count))


class Hooked:
    """The registration of hooks, for Module. Each returns a handle whose `remove()` ends it."""

    def _add_hook(self, kind: str, where: str, hook, prepend: bool = False, options=None) -> Hook:
        check_callable(where, "hook", hook)
        table = self.__dict__.setdefault(kind, OrderedDict())
        return Hook(table, hook if options is None else CallHook(hook, *options), prepend)

    def register_forward_pre_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Hook:
        """Call `hook(module, args)` before forward; its result replaces the arguments.
        With `with_kwargs`: `hook(module, args, kwargs)`, which returns None or (args, kwargs)."""
        where = "register_forward_pre_hook"
        return self._add_hook("_forward_pre_hooks", where, hook, prepend, (with_kwargs,))

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Hook:
        """Call `hook(module, args, result)` after forward; its result replaces forward's.
        With `with_kwargs`: `hook(module, args, kwargs, result)`. With `always_call` also if forward
        raises; the result is None then."""
        where, options = "register_forward_hook", (with_kwargs, always_call)
        return self._add_hook("_forward_hooks", where, hook, prepend, options)

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> Hook:
        """Call `hook(module, grad_output)` when the gradients of the results are known; its result
        replaces them."""
        where = "register_full_backward_pre_hook"
        return self._add_hook("_backward_pre_hooks", where, hook, prepend, ())

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> Hook:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the positional inputs
        are known; its result replaces them. Both are tuples, with None for values without a
        gradient.

        Example:
            >>> layer, got = gh.nn.Linear(2, 1), []
            >>> handle = layer.register_full_backward_hook(lambda m, gi, go: got.append(go[0]))
            >>> layer(gh.ones((3, 2))).sum().backward()
            >>> got[0].tolist()
            [[1.0], [1.0], [1.0]]
        """
        return self._add_hook("_backward_hooks", "register_full_backward_hook", hook, prepend, ())

    register_backward_hook = register_full_backward_hook

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call `hook(module, prefix, keep_vars)` before the module's state is collected."""
        return self._add_hook("_state_dict_pre_hooks", "register_state_dict_pre_hook", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call `hook(module, state_dict, prefix, local_metadata)` after it; it may change the
        dict."""
        return self._add_hook("_state_dict_hooks", "register_state_dict_post_hook", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before state is loaded; it may change the dict, which is a
        copy, and the lists."""
        where = "register_load_state_dict_pre_hook"
        return self._add_hook("_load_state_dict_pre_hooks", where, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Hook:
        """Call `hook(module, incompatible_keys)` after state was loaded; it may change the lists
        of names."""
        where = "register_load_state_dict_post_hook"
        return self._add_hook("_load_state_dict_post_hooks", where, hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Hook:
    """Call `hook(module, args)` before forward of every module; returns its handle."""
    check_callable("register_module_forward_pre_hook", "hook", hook)
    return GlobalHook("_forward_pre_hooks", CallHook(hook))


def register_module_forward_hook(
    hook: Any, *, with_kwargs: bool = False, always_call: bool = False
) -> Hook:
    """Call `hook(module, args, result)` after forward of every module; returns its handle.

    Example:
        >>> handle = register_module_forward_hook(lambda module, args, y: print(module))
        >>> _ = gh.nn.ReLU()(gh.ones(2))
        ReLU()
        >>> handle.remove()
    """
    check_callable("register_module_forward_hook", "hook", hook)
    return GlobalHook("_forward_hooks", CallHook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Hook:
    """Call `hook(module, grad_output)` in the backward pass of every module; returns its handle."""
    check_callable("register_module_full_backward_pre_hook", "hook", hook)
    return GlobalHook("_backward_pre_hooks", CallHook(hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Hook:
    """Call `hook(module, grad_input, grad_output)` in the backward pass of every module; returns
    its handle."""
    check_callable("register_module_full_backward_hook", "hook", hook)
    return GlobalHook("_backward_hooks", CallHook(hook))


def registration_hook(kind: str) -> Any:
    """The function that registers hooks on members of one kind."""
    where = f"register_module_{kind}_registration_hook"

    def register(hook) -> Hook:
        check_callable(where, "hook", hook)
        return GlobalHook(kind, hook)

    register.__name__ = register.__qualname__ = where
    register.__doc__ = (
        f"Call `hook(module, name, {kind})` whenever a {kind} becomes a member; what it returns "
        "replaces it. Returns its handle."
    )
    return register


register_module_parameter_registration_hook: Any = registration_hook("parameter")
register_module_buffer_registration_hook: Any = registration_hook("buffer")
register_module_module_registration_hook: Any = registration_hook("module")
