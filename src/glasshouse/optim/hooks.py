"""User functions that an optimizer calls around its steps, saving and loading."""

from collections import OrderedDict
from typing import Any

from glasshouse.base import DTypeError, OptionError, type_name
from glasshouse.tensor.handle import Hook


def registering(kind: str, signature: str, doc: str) -> Any:
    """The method that registers hooks of a kind."""

    def register(self, hook, prepend: bool = False) -> Hook:
        if not callable(hook):
            got = f"{hook!r} ({type_name(hook)})"
            raise DTypeError(f"register_{kind}_hook", "a function", got, f"Pass {signature}.")
        return Hook(self.hooks.setdefault(kind, OrderedDict()), hook, prepend)

    register.__name__ = register.__qualname__ = f"register_{kind}_hook"
    register.__doc__ = f"Call `{signature}` {doc}; what comes back has `remove()`."
    return register


class OptimizerHooks:
    """Hooks of optimizers, with PyTorch's names and order of arguments."""

    hooks: dict[str, OrderedDict[Any, Any]]

    register_step_pre_hook: Any = registering(
        "step_pre",
        "hook(optimizer, args, kwargs)",
        "before each step; it returns None, or other (args, kwargs)",
    )
    register_step_post_hook: Any = registering(
        "step_post", "hook(optimizer, args, kwargs)", "after each step"
    )
    register_state_dict_pre_hook: Any = registering(
        "state_dict_pre", "hook(optimizer)", "before `state_dict` is made"
    )
    register_state_dict_post_hook: Any = registering(
        "state_dict_post",
        "hook(optimizer, state_dict)",
        "on what `state_dict` made; it returns None, or another",
    )
    register_load_state_dict_pre_hook: Any = registering(
        "load_state_dict_pre",
        "hook(optimizer, state_dict)",
        "on a shallow copy of what is to be loaded; it returns None, or another",
    )
    register_load_state_dict_post_hook: Any = registering(
        "load_state_dict_post", "hook(optimizer)", "after a state was loaded"
    )

    def hooks_of(self, kind: str) -> tuple[Any, ...]:
        return tuple(self.hooks.get(kind, {}).values())

    def passed_through(self, kind: str, value: Any) -> Any:
        """Pass a value through the hooks of a kind: each may return another."""
        for hook in self.hooks_of(kind):
            returned = hook(self, value)
            value = value if returned is None else returned
        return value

    def arguments_of_step(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> tuple[Any, ...]:
        """The arguments of a step, as the hooks before it leave them."""
        for hook in self.hooks_of("step_pre"):
            returned = hook(self, args, kwargs)
            if returned is None:
                continue
            if not isinstance(returned, tuple) or len(returned) != 2:
                expected = "a hook before it to return None or (args, kwargs)"
                raise OptionError("step", expected, type_name(returned), "Return both.")
            args, kwargs = returned
        return args, kwargs
