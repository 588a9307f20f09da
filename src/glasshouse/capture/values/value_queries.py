"""Questions to a front end about the values in its tensors: truths, checks, numbers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glasshouse.capture.values.var import Var

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer


class ValueQueries:
    """A front end that knows no values of tensors: operations that need one break the graph."""

    def truth(self, tracer: "CaptureTracer", var: Var) -> bool | None:
        """bool() of a tensor if it is the same in each call; else None."""
        return tracer.do(bool, var.value) if self.is_invariant(tracer, var) else None

    def checked(
        self, tracer: "CaptureTracer", var: Var, is_error: Callable[[bool], bool]
    ) -> bool | None:
        """bool() of a tensor if the other truth is an error: the graph raises if a later call has
        that, and Python then runs the function. None if the graph cannot check."""
        return None

    def truth_where_finite(self, tracer: "CaptureTracer", var: Var) -> bool | None:
        """The truth where numbers are finite, if it depends only on whether they are finite, or are
        NaN; else None."""
        return None

    def is_hidden(self, var: Var) -> bool:
        """Whether a value is a number that a tensor holds, which only a run knows."""
        return False

    def number_of(self, tracer: "CaptureTracer", fn: type[Any], var: Var) -> Var | None:
        """int() or float() of a tensor, or of a number that one holds; None for other values."""
        return None

    def of_held_numbers(
        self, tracer: "CaptureTracer", fn: Callable[..., Any], args: list[Var]
    ) -> Var | None:
        """The result of a function of numbers that tensors hold; None where there are none."""
        return None

    def is_failed_check(self, error: Exception) -> bool:
        """Whether a graph raised this because a value of `checked` has changed."""
        return False

    def is_invariant(self, tracer: "CaptureTracer", var: Var) -> bool:
        """Whether a tensor has the same values in each call."""
        return False
