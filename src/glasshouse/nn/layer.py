"""Layers declared in a line: modules made from a function and the names of its options."""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

from glasshouse.dispatch.value import ArrayLike
from glasshouse.nn.checks import wrong_arguments
from glasshouse.nn.functional.axes import AXES, RESULTS
from glasshouse.nn.module import Module
from glasshouse.tensor import Tensor


class FunctionModule(Module):
    """A function as a module, without `forward`; its options are attributes of the same names."""

    function: ClassVar[Callable[..., Any]] = staticmethod(lambda input: input)
    options: tuple[str, ...] = ()
    argument_names: tuple[str, ...] = ()  # options of the function, and `training` if it takes it
    shown: tuple[str, ...] | None = None  # options in the repr; all of them unless given
    tensors: tuple[str, ...] = ()  # options that are buffers

    def __init__(self, options: dict[Any, Any]) -> None:
        super().__init__()
        for name, value in options.items():
            (self.register_buffer if name in self.tensors else self.__setattr__)(name, value)

    def chosen(self) -> dict[Any, Any]:
        return {name: getattr(self, name) for name in self.argument_names}

    def extra_repr(self) -> str:
        names = self.options if self.shown is None else self.shown
        values = {name: getattr(self, name) for name in names}
        if values.get("inplace") is False:
            del values["inplace"]
        return ", ".join(f"{name}={value!r}" for name, value in values.items())


class Layer(FunctionModule):
    """A function of one input as a module."""

    def forward(self, input: ArrayLike) -> Tensor:
        return self.function(input, **self.chosen())


def with_unusual(shown: str, values: dict[Any, Any], defaults: dict[Any, Any]) -> str:
    """`shown`, followed by the values that differ from their defaults."""
    unusual = [f"{n}={values[n]}" for n, usual in defaults.items() if values.get(n, usual) != usual]
    return ", ".join([shown, *unusual])


def layer(
    name: str,
    function: Callable[..., Any],
    options: str | None = None,
    base: Any = Layer,
    **members: Any,
) -> type[Any]:
    """The class `name` of modules that apply `function`; its arguments are the function's options.
    `options` lists those it takes, in its own order; those after a * are keyword-only."""
    declared = signature(function).parameters
    free, _, named = (" ".join(list(declared)[1:]) if options is None else options).partition("*")
    parameters = [declared[n].replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for n in free.split()]
    parameters += [declared[n].replace(kind=Parameter.KEYWORD_ONLY) for n in named.split()]
    accepted = Signature(parameters)

    def __init__(self, *args, **kwargs):
        try:
            bound = accepted.bind(*args, **kwargs)
        except TypeError as error:
            raise wrong_arguments(name, accepted, args, kwargs, error) from None
        bound.apply_defaults()
        base.__init__(self, bound.arguments)

    self_parameter = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = Signature([self_parameter, *parameters])  # type: ignore[attr-defined]
    summary = (function.__doc__ or "").strip().partition("\n")[0]
    about: dict[str, Any] = {
        "__doc__": f"`functional.{function.__name__}` as a layer: {summary}",
        "__module__": "glasshouse.nn",
        "__init__": __init__,
        "function": staticmethod(function),
        "options": tuple(accepted.parameters),
    }
    about["argument_names"] = about["options"] + ("training",) * ("training" in declared)
    return type(name, (base,), about | members)


def by_axes(base: type[Any]) -> list[type[Any]]:
    """The classes `base`1d, 2d and 3d. The docstring of `base`, which becomes theirs, has {n}
    for the number of spatial axes, {s} for their names and {t} for those of the result."""
    about = base.__doc__ or ""
    return [
        type(
            f"{base.__name__}{n}d",
            (base,),
            {
                "__doc__": about.format(n=n, s=AXES[n], t=RESULTS[n]),
                "__module__": "glasshouse.nn",
                "n": n,
            },
        )
        for n in AXES
    ]
