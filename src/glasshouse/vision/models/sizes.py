"""Models of published sizes: a class with some of its options set, under a name of its own."""

from collections.abc import Callable
from typing import Any, TypeVar

Model = TypeVar("Model")


def sized(
    name: str, build: Callable[..., Model], *values: Any, **sizes: Any
) -> Callable[..., Model]:
    """A function `name` of (num_classes, **options): `build` with these values and sizes, of which
    options replace those of the same name."""

    def model(num_classes: int = 1000, **options: Any) -> Model:
        return build(*values, **{"num_classes": num_classes, **sizes, **options})

    shown = ", ".join(f"{key}={value!r}" for key, value in sizes.items())
    model.__name__ = model.__qualname__ = name
    model.__module__ = build.__module__
    model.__doc__ = f"{build.__name__} of the published size {name}: {shown}."
    return model


def divisible(channels: float, by: int = 8) -> int:
    """The multiple of `by` nearest to this number of channels, at most a tenth below it.

    Source: Howard et al. 2017, MobileNets, arXiv:1704.04861, in its authors' code.
    """
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded
