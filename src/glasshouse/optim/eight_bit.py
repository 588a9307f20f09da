"""Optimizer state in 8 bits: blockwise dynamic quantisation.

A block of 256 elements is divided by its largest; each is then one of 256 numbers. Those have from
0 to 6 bits of fraction (7 without sign), fewer the smaller they are, and span seven powers of ten
(eight)."""

import math
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError
from glasshouse.dispatch.value import cast, reshape
from glasshouse.ops.elementwise import maximum, minimum
from glasshouse.optim.adam import Adam, AdamW
from glasshouse.optim.optimizer import Optimizer
from glasshouse.optim.rules import SGD
from glasshouse.optim.signs import Lion
from glasshouse.tensor import Tensor, asarray, floor, pad, where
from glasshouse.tensor import max as max_

BLOCK = 256  # elements that share a scale; Dettmers et al. take 2048 on GPUs, and 256 in later work
SMALLEST = 4096  # elements of a tensor that is quantised; below, 32 bits cost nothing


def decades(signed: bool) -> range:
    """The exponents e of the numbers: code 2^e + j, for j from 0 to 2^e - 1, stands for

        (0.1 + 0.9 * (j + 1/2) / 2^e) * 10^(e - top), top the last exponent

    of the block's largest element; code 0 for 0, the last code for 1, and with sign those from 128
    on for the negative ones."""
    return range(7 if signed else 8)


def blocks_of(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // BLOCK)


def encode(x: Tensor, signed: bool = True) -> tuple[Any, ...]:
    """(codes, scales) of a tensor.

    Shapes: (...) -> (blocks, 256), (blocks, 1).
    Dtypes: floating -> uint8, float32.
    Source: Dettmers et al. 2022, arXiv:2110.02861, sec. 2 and 3.
    """
    flat = reshape(cast(x, asarray(0.0).dtype), (x.size,))
    missing = blocks_of(x.shape) * BLOCK - x.size
    flat = pad(flat, (0, missing)) if missing else flat
    rows = reshape(flat, (blocks_of(x.shape), BLOCK))
    sizes = abs(rows)
    scale = max_(sizes, axis=1, keepdims=True)
    y = sizes * where(scale > 0, 1 / where(scale > 0, scale, 1.0), 0.0)
    top = decades(signed)[-1]
    width, inverse = y * 0 + 1.0, y * 0 + 10.0**top
    for e in range(top):
        is_above = y > 10.0 ** (e - top)
        width = where(is_above, 2.0 ** (e + 1), width)
        inverse = where(is_above, 10.0 ** (top - 1 - e), inverse)
    place = floor((y * inverse - 0.1) * (width / 0.9))
    codes = minimum(width + maximum(place, y * 0), width * 2 - 1)
    least = (
        0.275 * 10.0**-top if signed else 0.0
    )  # half of the smallest number; a square is never 0
    codes = where(y > least, codes, 0.0)
    codes = codes + where(rows < 0, 128.0, 0.0) if signed else codes
    return cast(codes, asarray(np.uint8(0)).dtype), scale


def decode(codes: Tensor, scale: Tensor, shape: Any, dtype: Any, signed: bool = True) -> Tensor:
    """The tensor of a shape and dtype that these codes stand for.

    Shapes: (blocks, 256), (blocks, 1) -> shape.
    """
    codes = cast(codes, scale.dtype)
    is_negative = codes > 127.5
    codes = where(is_negative, codes - 128.0, codes) if signed else codes
    slope, offset = codes * 0, codes * 0
    for e in decades(signed):  # in each, a line: no look-up, which would be one by one
        unit, width = 10.0 ** (e - decades(signed)[-1]), 2.0**e
        is_above = codes > width - 0.5  # one comparison, where >= is two
        slope = where(is_above, 0.9 * unit / width, slope)
        offset = where(is_above, (0.45 / width - 0.8) * unit, offset)
    is_last = codes > 2.0 ** len(decades(signed)) - 1.5
    sizes = where(is_last, 1.0, codes * slope + offset)
    rows = (where(is_negative, -sizes, sizes) if signed else sizes) * scale
    flat = reshape(rows, (codes.size,))
    flat = flat if codes.size == math.prod(shape) else flat[: math.prod(shape)]
    return cast(reshape(flat, shape), dtype)


class EightBitState(Optimizer):
    """Keeps the state of another rule in 8 bits, for parameters of 4096 elements or more: put it
    before the rule among the base classes. Each step decodes, updates and encodes; moments that are
    never negative have all bits for their size.

    Raises: DTypeError for complex parameters.
    Source: Dettmers et al. 2022, arXiv:2110.02861.
    """

    takes_complex = False
    never_negative: tuple[str, ...] = ()

    def is_signed(self, name: str) -> bool:
        return name not in self.never_negative

    def update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if p.size < SMALLEST:
            super().update(p, grad, group)
            return
        state = dict(self.state.get(p, ()))
        for name in [name for name in state if f"{name}_scale" in state]:
            codes, scale = state[name], state.pop(f"{name}_scale")
            state[name] = decode(codes, scale, p.shape, p.dtype, self.is_signed(name))
        if state:
            self.state[p] = state
        super().update(p, grad, group)
        entries = dict(self.state.get(p, ()))
        for name, x in tuple(entries.items()):
            if isinstance(x, Tensor) and x.shape == p.shape:
                entries[name], entries[f"{name}_scale"] = encode(x, self.is_signed(name))
        if entries:
            self.state[p] = entries

    def with_scales(self, shapes: dict[Any, Any], shape: tuple[int, ...]) -> dict[Any, Any]:
        """The shapes of a state of which entries of the parameter's shape are in 8 bits."""
        if math.prod(shape) < SMALLEST:
            return shapes
        blocks = blocks_of(shape)
        codes = {name: (blocks, BLOCK) if s == shape else s for name, s in shapes.items()}
        scales = {f"{name}_scale": (blocks, 1) for name, s in shapes.items() if s == shape}
        return {**codes, **scales}

    def state_shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return self.with_scales(super().state_shapes(shape), shape)

    def optional_shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return self.with_scales(super().optional_shapes(shape), shape)

    def checked_entry(
        self, number: int, p: Tensor, name: str, entry: Tensor | int, shape: tuple[int, ...]
    ) -> Any:
        value = super().checked_entry(number, p, name, entry, shape)
        if shape != (blocks_of(p.shape), BLOCK) or p.size < SMALLEST:
            return value
        if np.asarray(entry).dtype != np.uint8:
            expected = f"{name!r} of parameter {number} as uint8 codes"
            fix = "Load it into the optimizer it came from."
            raise CheckpointError(self.where, expected, np.asarray(entry).dtype.name, fix)
        return asarray(entry).detach()


class SGD8bit(EightBitState, SGD):
    """SGD whose momentum is kept in 8 bits."""


class Adam8bit(EightBitState, Adam):
    """Adam whose moments are kept in 8 bits."""


class AdamW8bit(EightBitState, AdamW):
    """AdamW whose moments are kept in 8 bits: 2 bytes for each element of a parameter instead of 8.

    Example:
        >>> p = gh.ones(4096).requires_grad_()
        >>> opt = AdamW8bit([p], lr=0.1)
        >>> p.sum().backward()
        >>> opt.step()
        >>> opt.state[p]["exp_avg"].dtype.name, opt.state[p]["exp_avg_scale"].shape
        ('uint8', (16, 1))
    """


class Lion8bit(EightBitState, Lion):
    """Lion whose momentum is kept in 8 bits."""
