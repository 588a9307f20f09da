"""Tensors without a shape, which lazy layers have until they see an input."""

from collections.abc import Sequence
from typing import Any, Self

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import ShapeError
from glasshouse.tensor import Tensor, empty


class Uninitialized(Tensor):
    """Base of UninitializedParameter and UninitializedBuffer: dtype and device, no shape yet."""

    becomes: type[Any] = Tensor

    @property
    def shape(self) -> Any:
        fix = "Call the module once, or materialize(shape)."
        raise ShapeError(type(self).__name__, "a shape", "a tensor that has none yet", fix)

    def materialize(
        self, shape: int | Sequence[int], device: str | None = None, dtype: DTypeLike | None = None
    ) -> None:
        """Give this tensor a shape, with no particular contents, and its final class."""
        like = {"dtype": self.dtype if dtype is None else dtype}
        with no_grad():
            self.rebind(empty(shape, **like, device=self.device if device is None else device))
        self.__class__ = self.becomes

    def copy_(self, source: Any) -> Tensor:
        """This tensor, with the shape and the contents of `source`."""
        self.materialize(source.shape)
        return self.copy_(source)

    def detach(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        make: Any = type(self)
        copy = make(dtype=self.dtype, device=self.device)
        memo[id(self)] = copy
        return copy.requires_grad_(self.requires_grad)

    def __reduce__(self) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
