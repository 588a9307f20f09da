"""`x.at[i]`: new tensors that differ from x in some places. x itself stays as it is."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import int64
from glasshouse.dispatch.value import ArrayLike, reshape
from glasshouse.ops.checks import check_option
from glasshouse.ops.create import iota
from glasshouse.tensor.handle import Tensor
from glasshouse.tensor.standard import elementwise
from glasshouse.tensor.standard.index import add_at, contents, getitem, setitem
from glasshouse.tensor.torch_names.scatter import reduced_at

OPTIONS = ("mode", "fill_value", "indices_are_sorted", "unique_indices",
           "wrap_negative_indices")  # fmt: skip
MODES = (None, "promise_in_bounds")


class Updates:
    """The updates of a tensor at an index, of which each gives a new tensor. Where an index names
    a place twice, both updates count, but for `set` (one of them), `power` and `apply` (once).
    `indices_are_sorted` and `unique_indices` have no effect.

    Raises: IndexOutOfRangeError for an index out of range, OptionError for a `mode` that allows it.
    Source: Bradbury et al., JAX, 2018 (ndarray.at).
    """

    def __init__(self, x: Tensor, key: Any) -> None:
        self.x = x
        self.key = key

    def set(self, values: ArrayLike, **options: Any) -> Tensor:
        """x with `values` there.

        Example:
            >>> gh.zeros(3).at[1].set(5.0).tolist()
            [0.0, 5.0, 0.0]
        """
        check_options(options)
        return setitem(self.x, self.key, values)

    def add(self, values: ArrayLike, **options: Any) -> Tensor:
        """x with `values` added there.

        Example:
            >>> gh.zeros(3).at[gh.tensor([1, 1])].add(5.0).tolist()
            [0.0, 10.0, 0.0]
        """
        check_options(options)
        return add_at(self.x, self.key, values)

    def subtract(self, values: ArrayLike, **options: Any) -> Tensor:
        """x with `values` subtracted there."""
        return self.add(elementwise.negative(contents_of("subtract", values, self.x)), **options)

    def multiply(self, values: ArrayLike, **options: Any) -> Tensor:
        """x multiplied by `values` there.

        Example:
            >>> gh.ones(3).at[1:].multiply(2.0).tolist()
            [1.0, 2.0, 2.0]
        """
        return self.joined("multiply", "prod", values, options)

    def divide(self, values: ArrayLike, **options: Any) -> Tensor:
        """x divided by `values` there."""
        ones = self.x * 0 + 1
        return self.x / Updates(ones, self.key).multiply(values, **options)

    def power(self, values: ArrayLike, **options: Any) -> Tensor:
        """x to the power of `values` there."""
        check_options(options)
        part = getitem(self.x, self.key)
        return setitem(self.x, self.key, elementwise.pow(part, values))

    def min(self, values: ArrayLike, **options: Any) -> Tensor:
        """x, or `values` there if they are less."""
        return self.joined("min", "amin", values, options)

    def max(self, values: ArrayLike, **options: Any) -> Tensor:
        """x, or `values` there if they are greater."""
        return self.joined("max", "amax", values, options)

    def apply(self, func: Callable[[Tensor], Tensor], **options: Any) -> Tensor:
        """x with `func` applied there."""
        check_options(options)
        return setitem(self.x, self.key, func(getitem(self.x, self.key)))

    def get(self, **options: Any) -> Tensor:
        """The part of x there: x[i]."""
        check_options(options)
        return getitem(self.x, self.key)

    def joined(self, where: str, how: str, values: ArrayLike, options: Any) -> Tensor:
        """x with values joined to it, each as often as it is named."""
        check_options(options)
        x = self.x
        numbers = reshape(iota(size=x.size, dtype=int64), x.shape)
        places = getitem(numbers, self.key)
        updates = contents(where, values, x, places.shape)
        flat, size = reshape(x, (x.size,)), (places.size,)
        joined = reduced_at(
            where, flat, reshape(places, size), reshape(updates, size), how, with_x=True
        )
        return reshape(joined, x.shape)


def contents_of(where: str, values: ArrayLike, x: Tensor) -> Tensor:
    """Values in the dtype of x, in their own shape."""
    shape = getattr(values, "shape", None)
    return contents(where, values, x, () if shape is None else tuple(shape))


def check_options(options: dict[str, Any]) -> None:
    """Raise OptionError for a mode that allows indices out of range, or an unknown option."""
    for name, value in options.items():
        check_option("at", "option", name, OPTIONS)
        if name == "mode":
            check_option("at", "mode", value, MODES)


class UpdatePlaces:
    """`x.at`, to be indexed."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __getitem__(self, key: Any) -> Updates:
        return Updates(self.x, key)
