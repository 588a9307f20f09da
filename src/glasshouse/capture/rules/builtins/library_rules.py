"""Rules of functions of the standard library and of NumPy: rule(tracer, fn, args, kwargs, then)."""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshouse.capture.guards.program import GuardCheck
from glasshouse.capture.rules.constants import all_foldable, fold
from glasshouse.capture.values.plain import SCALARS
from glasshouse.capture.values.var import Break, Kwargs, ValueSource

if TYPE_CHECKING:
    from glasshouse.capture.trace.tracer import CaptureTracer
    from glasshouse.capture.values.var import Var


# NumPy's functions that return a number for constants.
OF_CONSTANTS: set[Any] = {
    np.prod,
    np.sum,
    np.mean,
    np.max,
    np.min,
    np.argmax,
    np.argmin,
    np.all,
    np.any,
    np.clip,
    np.round,
    np.std,
    np.var,
    np.median,
}
DISPATCHER: type[Any] = type(np.prod)  # NumPy's functions are objects of it


def is_of_numbers(t: "CaptureTracer", f: Any, args: "list[Var]", kwargs: Kwargs) -> bool:
    """Whether a call of NumPy returns the same number each time."""
    if isinstance(f, np.ufunc):
        return all(type(x.value) in SCALARS for x in args) and not kwargs
    return type(f) is DISPATCHER and f in OF_CONSTANTS and all_foldable(t, args, kwargs)


def fold_numbers(
    t: "CaptureTracer", fn: "Var", args: "list[Var]", kwargs: Kwargs, then: Any
) -> Any:
    """Fold such a call to its number."""
    t.concretize(fn)
    try:
        with np.errstate(all="raise"):
            return fold(t, fn, fn.value, args, kwargs, then)
    except FloatingPointError:  # each call warns of it
        raise Break(f"call of {fn.value.__name__}", fn, args) from None


def on_log(level: int) -> Any:
    """The rule of a logging method: nothing is done while its logger drops the level."""

    def rule(t, fn, args, kwargs, then):
        if not args or not keeps_back(args[0].value, level):
            raise Break(f"logging.{fn.value.__qualname__} is not captured", fn, args, kwargs)
        logger, source = args[0].value, args[0].origin
        if not isinstance(source, ValueSource):
            source = t.guards.source("const", None, logger, logger.name)
        text = f"keeps back {logging.getLevelName(level)}"
        t.guards.add("call", source, GuardCheck(keeps_back, level, text))
        return t.give(then, None)

    return rule


def keeps_back(logger: Any, level: int) -> bool:
    """Whether something is a logger that drops messages of a level."""
    return type(logger) is logging.Logger and not logger.isEnabledFor(level)


RULES = {
    logging.Logger.debug: on_log(logging.DEBUG),
    logging.Logger.info: on_log(logging.INFO),
    logging.Logger.warning: on_log(logging.WARNING),
    logging.Logger.error: on_log(logging.ERROR),
    logging.Logger.critical: on_log(logging.CRITICAL),
}
