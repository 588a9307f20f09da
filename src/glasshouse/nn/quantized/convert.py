"""`quantize`, which puts layers of few bits in the place of others."""

from collections.abc import Iterable, Sequence
from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.nn.linear import Embedding, Linear, TransposedLinear
from glasshouse.nn.module import Module
from glasshouse.nn.quantized import integers
from glasshouse.nn.quantized.calibration import Range, input_ranges
from glasshouse.nn.quantized.integers import Int8Linear
from glasshouse.nn.quantized.packed import Packing
from glasshouse.nn.quantized.selection import find_layers, replace_module
from glasshouse.ops.checks import check_option, check_type

PACKED, INTEGERS = ("int8", "int4"), ("int8_dynamic", "int8_static")


def quantize(
    model: Any,
    scheme: str = "int8",
    *,
    group: int = 32,
    skip: Sequence[str] = (),
    calibrate: Iterable[Any] | None = None,
    per_row: bool = True,
) -> Any:
    """The model, with layers of few bits in place of others:

    "int8"          Linear layers and Embeddings with packed weights: 8 bits, a scale for each row
    "int4"          4 bits, a scale and a shift for each `group` of a row; tables keep 8 bits
    "int8_dynamic"  Linear and convolution layers that compute with inputs and weights of 8 bits;
                    each call measures a scale for each row (without `per_row`: for the call)
    "int8_static"   the same, with the scale that the batches of `calibrate` show, or training with
                    `nn.round_in_training`. A batch is an input; a tuple or dict has several

    Layers whose dotted names match a pattern of `skip` stay as they are. Weights are rounded to
    the nearest.

    Raises: OptionError for another scheme, a group that does not divide rows, weights or inputs
        that are not finite, "int8_static" without batches; nothing is changed then.
    Source: as QuantizedLinear's and Int8Linear's.
    Example:
        >>> net = gh.nn.Sequential(gh.nn.Linear(64, 8), gh.nn.ReLU(), gh.nn.Linear(8, 2))
        >>> gh.quantize(net, "int8_static", skip=["2"], calibrate=[gh.ones((4, 64))])[0]
        Int8Linear(in_features=64, out_features=8, bias=True, static)
    """
    where = "quantize"
    check_type(where, model, Module, "a Module", "Pass the model.")
    check_option(where, "scheme", scheme, (*PACKED, *INTEGERS))
    if type(group) is not int or group < 2 or group % 2:
        raise OptionError(where, "a group of an even number", repr(group), "Pass 32 or 64.")
    if calibrate is not None and scheme != "int8_static":
        fix = 'Pass "int8_static", or leave calibrate out.'
        raise OptionError(where, f"no batches for {scheme!r}", "calibrate", fix)
    if scheme in PACKED:
        named_layers, layers = pack_layers(model, scheme, group, skip)
    else:
        named_layers = find_layers(where, model, skip)
        kinds = {id(layer): (name, layer) for name, layer in named_layers}
        ranges = input_ranges(model, kinds, calibrate) if scheme == "int8_static" else {}
        layers = {
            key: integer_layer(layer, ranges.get(key), per_row) for key, (_, layer) in kinds.items()
        }
    for name, module in named_layers:
        replace_module(model, name, layers[id(module)])
    return model


def pack_layers(model: Module, scheme: str, group: int, skip: Sequence[str]) -> Any:
    """(names and layers, the layers that take their places by id) for packed weights."""
    kinds = (Linear, TransposedLinear, Embedding)
    named_layers = find_layers("quantize", model, skip, kinds)
    fits = [(n, m) for n, m in named_layers if not isinstance(m, Embedding) or m.max_norm is None]
    packing = Packing(scheme, group, [m for _, m in fits if isinstance(m, Embedding)])
    return fits, {id(module): packing.layer(module) for _, module in fits}


def integer_layer(layer: Any, inputs: Range | None, per_row: bool) -> Module:
    """The layer of bytes that takes the place of a layer."""
    if isinstance(layer, (Linear, TransposedLinear)):
        weight = layer.weight.detach().numpy()
        weight = weight.T if isinstance(layer, TransposedLinear) else weight
        return Int8Linear(weight, layer.bias, inputs, per_row=per_row)
    kind = getattr(integers, f"Int8Conv{layer.n}d")
    return kind(layer, inputs)
