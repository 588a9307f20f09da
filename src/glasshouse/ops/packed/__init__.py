"""Weights of few bits: how they lie in bytes, and how numbers are made of them."""

from glasshouse.ops.packed.formats import FORMATS, BlockFormat, composition, find_format, unpack
