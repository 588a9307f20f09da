"""`x.data`: the contents of a tensor, off the tape, to read and to write through.

Values never alias, so this handle holds none of its own: it looks its tensor's up whenever it is
read, and hands the tensor every value that it is given."""

from typing import Any, Self

from glasshouse.base import DTypeError, ShapeError, type_name
from glasshouse.dispatch import Value
from glasshouse.tensor.handle import Tensor


class DetachedView(Tensor):
    """A handle on the contents of `base`, without its place on the tape.

    Example:
        >>> weight = Tensor([1.0, 2.0]).requires_grad_()
        >>> weight.data -= 0.5
        >>> weight.tolist(), weight.requires_grad
        ([0.5, 1.5], True)
    """

    base: Tensor

    def __new__(cls, base: Tensor) -> Self:
        view = object.__new__(cls)
        view.base = base.base if isinstance(base, DetachedView) else base
        return view

    @property
    def payload(self) -> Any:
        payload, mode = self.base.payload, self.base.mode
        return payload if mode is None else payload.detach()

    @payload.setter
    def payload(self, payload: Any) -> None:
        self.base.payload = payload

    @property
    def backend(self) -> Any:
        return self.base.backend

    @backend.setter
    def backend(self, backend: Any) -> None:
        self.base.backend = backend

    @property
    def spec(self) -> Any:  # type: ignore[override]
        return self.base.spec

    @property
    def mode(self) -> Any:
        return self.base.mode

    @property
    def cut_from(self) -> Any:
        """The tensors that it is a part of; see parts.py."""
        return self.base.cut_from

    @cut_from.setter
    def cut_from(self, links: Any) -> None:
        self.base.cut_from = links

    @property
    def tangents(self) -> Any:
        """Tangents of forward mode: zeros, for a detached view has none."""
        return self.mode.zeros

    def rebind(self, value: Any) -> None:
        """Make the tensor that this view shows hold `value`; no tape sees it."""
        value, base = value.detach(), self.base
        base.payload, base.spec, base.backend = value.payload, value.spec, value.backend

    def __repr__(self) -> str:
        return repr(self.detach())

    def __reduce__(self) -> Any:
        return self.detach().__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.detach().clone()


def replace_contents(tensor: Tensor, value: Any) -> None:
    """`tensor.data = value`."""
    if not isinstance(value, Value):
        fix = "Convert with gh.asarray, or write tensor.data.copy_(value)."
        raise DTypeError("data", "a tensor", type_name(value), fix)
    if value.shape != tensor.shape:
        fix = "Make a new tensor (or Parameter) for another shape."
        raise ShapeError("data", f"a tensor of shape {tensor.shape}", value.shape, fix)
    if value.dtype is not tensor.dtype:
        fix = f"Cast it with .to(gh.{tensor.dtype.name}), or write tensor.data.copy_(value)."
        raise DTypeError("data", f"a tensor of dtype {tensor.dtype.name}", value.dtype.name, fix)
    DetachedView(tensor).write("data", value)


DATA = property(
    DetachedView,
    replace_contents,
    doc="""The contents, off the tape: what is written here is written to this tensor, unrecorded.
    Assigning a tensor replaces the contents; it has to have the same shape and dtype.""",
)
