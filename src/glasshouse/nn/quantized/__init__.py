"""Layers of few bits: packed weights, products of integers, calibration, training with rounding.

`packed` has weights of 8 and 4 bits that products unpack, `integers` layers whose inputs have 8
bits too. `training` rounds while a model is trained, `calibration` finds the ranges of inputs. A
model enters `quantize` (`convert`); the same model leaves, with other layers. Read `packed`, then
`integers`."""

from glasshouse.nn.quantized.convert import quantize
from glasshouse.nn.quantized.integers import *
from glasshouse.nn.quantized.packed import QuantizedEmbedding, QuantizedLinear
from glasshouse.nn.quantized.training import round_in_training
