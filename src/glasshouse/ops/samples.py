"""Sample operands of cards, written short."""

from glasshouse.dispatch.primitive import Arr, ErrorSample, Sample


def operands(given) -> tuple:
    """Shapes as sample operands; others as they are."""
    return tuple(Arr(x) if isinstance(x, tuple) else x for x in given)


def sample(*given, **attrs) -> Sample:
    """A sample of these operands (shapes, or operands as they are) and attrs."""
    return Sample(operands(given), attrs)


def refusal(error: type, text: str, *given, on: str = "float32", **attrs) -> ErrorSample:
    """A sample that a card refuses, with the error and a part of its text; `on`: in which dtype."""
    return ErrorSample(operands(given), attrs, error, text, on)
