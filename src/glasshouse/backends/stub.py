"""The backend that computes nothing: a payload is the spec of the array that would be there.

A whole program runs on it (forward, backward, optimizer) in no time and no memory, as long as it
asks for no contents. It is also the backend to copy: fill in the methods, then add one method per
card that you compute yourself, called with payloads and the card's attrs, e.g.

    def add(self, x, y): ...
    def sum(self, x, *, axes): ..."""

from collections.abc import Callable
from typing import Any

from glasshouse.base import BackendError, Spec, from_numpy_dtype
from glasshouse.dispatch import TensorBackend, primitives


class StubBackend(TensorBackend):
    """Payloads are Specs."""

    name = "stub"

    def from_numpy(self, array: Any) -> Spec:
        return Spec(array.shape, from_numpy_dtype(array.dtype))

    def to_numpy(self, data: Spec) -> Any:
        """The contents of a payload; this backend has none."""
        fix = "Compute on another backend: with gh.backends.use('numpy')."
        raise BackendError("stub", "no need for contents", f"a request for those of {data}", fix)

    def spec_of(self, data: Spec) -> Spec:
        return data

    def sync(self) -> None:
        """Return when all work is done; here at once."""

    def fallback(self, name: str) -> Callable[..., Any]:
        """The function for a card that has no method: here its infer, which gives the spec."""
        return primitives[name].infer
