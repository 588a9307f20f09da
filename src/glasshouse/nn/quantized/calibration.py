"""The ranges of layers' inputs: from batches that a model reads, or from training with rounding."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError, type_name
from glasshouse.dispatch import Value
from glasshouse.nn.module import Module
from glasshouse.nn.quantized.training import InputRounding
from glasshouse.tensor import maximum, minimum
from glasshouse.tensor.standard import reduce

Range = tuple[float, float]


class RangeHook:
    """Notes the extremes of the first argument of a layer's calls."""

    def __init__(self) -> None:
        self.ends: Any = None

    def __call__(self, layer: Module, args: tuple[Any, ...]) -> None:
        x = args[0]
        low, high = (f(x.detach()) for f in (reduce.min, reduce.max))
        if self.ends is not None:
            low, high = minimum(low, self.ends[0]), maximum(high, self.ends[1])
        self.ends = low, high


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """A context in which a model is in evaluation mode, and no gradients are recorded."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def input_ranges(
    model: Any, layers: Mapping[int, tuple[str, Module]], calibrate: Any
) -> dict[int, Range]:
    """The range of each layer's inputs, by the layer's id: over the batches, or as training with
    rounding found them where there are none. `layers`: (name, layer) by id.

    Raises: OptionError where there is nothing to measure, or a layer saw no inputs, or not finite
        ones.
    """
    if calibrate is None:
        children: dict[int, Any] = {
            key: getattr(m, "input_rounding", None) for key, (_, m) in layers.items()
        }
        if not all(isinstance(child, InputRounding) for child in children.values()):
            fix = "Pass some batches of inputs, or gh.nn.round_in_training before training."
            raise OptionError("quantize", '"int8_static" with calibrate=batches', "None", fix)
        ends: dict[int, Any] = {
            key: (child.low, child.high) if bool(child.has_seen) else None
            for key, child in children.items()
        }
    else:
        ends = ends_of_batches(model, layers, calibrate)
    result = {}
    for key, (name, _) in layers.items():
        if ends[key] is None:
            fix = f"Call it while calibrating, or pass skip=[{name!r}]."
            raise OptionError("quantize", f"inputs of layer {name!r}", "none in any batch", fix)
        low, high = (float(np.asarray(end.numpy(), np.float64)) for end in ends[key])
        if not np.isfinite([low, high]).all():
            expected = f"finite inputs of layer {name!r}"
            raise OptionError("quantize", expected, f"{low} to {high}", "Check the batches.")
        result[key] = low, high
    return result


def ends_of_batches(model: Any, layers: Mapping[int, Any], batches: Any) -> dict[int, Any]:
    """The extremes of each layer's inputs while the model reads the batches; None for no calls."""
    if isinstance(batches, (Value, str, Mapping)) or not isinstance(batches, Iterable):
        expected, got = "calibrate: an iterable of batches", type_name(batches)
        raise OptionError("quantize", expected, got, "Pass a list of batches, also for one.")
    ranges = {key: RangeHook() for key in layers}
    handles = [m.register_forward_pre_hook(ranges[key]) for key, (_, m) in layers.items()]
    count = 0
    try:
        with evaluating(model):
            for batch in batches:
                count += 1
                if isinstance(batch, Mapping):
                    model(**batch)
                else:
                    model(*batch if isinstance(batch, (tuple, list)) else (batch,))
    finally:
        for handle in handles:
            handle.remove()
    if not count:
        raise OptionError("quantize", "calibrate: at least one batch", "none", "Pass some batches.")
    return {key: hook.ends for key, hook in ranges.items()}
