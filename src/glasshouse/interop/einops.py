"""einops on our tensors: `einops.rearrange`, `reduce`, `repeat`, `einsum`, `pack` and `unpack`."""

from glasshouse.tensor import (
    Tensor,
    arange,
    asarray,
    concat,
    einsum,
    expand_dims,
    permute_dims,
    stack,
    tile,
)


def register_einops() -> None:
    """Show einops how to reshape and reduce our tensors; from then on its functions take them.

    Raises: ImportError without einops.
    Source: Rogozhnikov 2022, Einops: clear and reliable tensor manipulations with Einstein-like
        notation.
    Example:
        >>> register_einops()  # doctest: +SKIP
        >>> einops.rearrange(gh.ones((2, 3)), "a b -> (a b)").shape  # doctest: +SKIP
        (6,)
    """
    from einops._backends import AbstractBackend, _loaded_backends

    if "glasshouse" in _loaded_backends:
        return

    class EinopsBackend(AbstractBackend):
        """Adapter that einops needs for a library of tensors, beside their own methods."""

        framework_name = "glasshouse"

        def is_appropriate_type(self, tensor):
            return isinstance(tensor, Tensor)

        def from_numpy(self, x):
            return asarray(x)

        def to_numpy(self, x):
            return x.numpy()

        def arange(self, start, stop):
            return arange(start, stop)

        def transpose(self, x, axes):
            return permute_dims(x, axes)

        def stack_on_zeroth_dimension(self, tensors):
            return stack(tensors)

        def add_axis(self, x, new_position):
            return expand_dims(x, new_position)

        def tile(self, x, repeats):
            return tile(x, repeats)

        def concat(self, tensors, axis: int):
            return concat(tensors, axis)

        def is_float_type(self, x):
            return x.dtype.is_floating

        def einsum(self, pattern, *x):
            return einsum(pattern, *x)

    _loaded_backends["glasshouse"] = EinopsBackend()
