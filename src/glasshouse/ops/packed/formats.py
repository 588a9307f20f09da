"""Formats of weights of few bits. A row of a matrix lies in blocks of some bytes each: scales,
which all numbers of the block share, and codes of 4 to 8 bits.

`unpack` makes numbers of blocks, as a composition of cards; kernels of the targets that read blocks
themselves look for it in graphs. Sources: ggml's formats (Q8_0 and so on), as GGUF files hold them;
int8 and int4 are ours, with the same parts."""

import functools
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import OptionError, ShapeError, Spec
from glasshouse.base.dtype import float16, float32, int8, uint8, uint16, uint32
from glasshouse.base.errors import suggest
from glasshouse.dispatch import Value, bind, broadcast_to, cast, primitives, reshape
from glasshouse.dispatch.value import section
from glasshouse.ops.body import Body, traced
from glasshouse.ops.custom import DerivativeRule, custom

BITS_16, BITS_32 = (uint16, float16), (uint32, float32)


class BlockFormat(NamedTuple):
    """Numbers in a block, its bytes, and the function that makes (..., numbers) of (..., bytes).

    bits    of a code
    header  bytes before the codes: a scale, then a shift if `is_shifted`
    zero    the code that stands for 0
    group   numbers that share a scale, where a block has several scales; None elsewhere"""

    name: str
    numbers: int
    nbytes: int
    unpack: Callable[[Any, "BlockFormat"], Any]
    bits: int
    header: int = 2
    zero: int = 0
    is_shifted: bool = False
    group: int | None = None


def unpack(blocks: Any, form: BlockFormat) -> Any:
    """The numbers of blocks, in float32.

    Shapes: (..., blocks, bytes) of uint8 -> (..., blocks · numbers).
    Raises: ShapeError for blocks of another size.
    """
    if blocks.ndim < 2 or blocks.shape[-1] != form.nbytes or blocks.dtype is not uint8:
        got = f"{blocks.dtype} {blocks.shape}"
        expected = f"uint8 (..., blocks, {form.nbytes})"
        raise ShapeError("unpack", expected, got, f"Pass blocks of {form.name}.")
    body, rule = body_of(form.name, blocks.spec)
    return custom(blocks, body=body, rule=rule)[0]


def composition(blocks: Any, form: BlockFormat) -> Any:
    """The numbers of blocks, composed of cards: the definition of `unpack`."""
    numbers = form.unpack(blocks, form)
    return reshape(numbers, (*blocks.shape[:-2], blocks.shape[-2] * form.numbers))


class Unpacking(DerivativeRule):
    """Bytes have no derivatives. Where no Program is compiled, NumPy unpacks them in fewer passes
    than the cards' references would, and to the same numbers."""

    def __init__(self, form: BlockFormat) -> None:
        self.form = form

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        """None: bytes have no cotangent."""
        return [None]

    def push(self, tangents: Any, operands: Any) -> Any:
        """None: bytes have no tangent."""
        return [None]

    def batched(self, batched: Any, outputs: Any, size: int) -> Any:
        """This rule, which holds for any axes before the blocks."""
        return self

    def compute(self, body: Body, *operands: np.ndarray) -> list[Any]:
        """The numbers of blocks as arrays."""
        (blocks,) = operands
        form, shape = self.form, blocks.shape[:-1]
        if form.group:
            return body.compute([blocks])
        codes, half = blocks[..., form.header :], form.numbers // 2
        wide = form.header == 4 and not form.is_shifted
        heads = np.ascontiguousarray(blocks[..., : form.header])
        heads = heads.view(np.float32 if wide else np.float16).astype(np.float32)
        if form.bits == 8:
            x = codes.view(np.int8).astype(np.float32)
        else:
            x = np.empty((*shape, form.numbers), np.float32)
            x[..., :half], x[..., half:] = codes & 15, codes >> 4
            if form.zero:
                x -= form.zero  # exact
        x *= heads[..., :1]
        if form.is_shifted:
            x += heads[..., 1:]
        return [x.reshape(*shape[:-1], shape[-1] * form.numbers)]


@functools.lru_cache(maxsize=512)
def body_of(name: str, blocks: Spec) -> tuple[Body, Unpacking]:
    """The calls that unpack blocks, and the rule beside them."""
    form = find_format(name)
    tracer, inputs, numbers = traced(lambda x: composition(x, form), [blocks], is_closed=True)
    return tracer.body([x.payload for x in inputs], [tracer.number_of(numbers)]), rule_of(name)


@functools.cache
def rule_of(name: str) -> Unpacking:
    """The rule of a format: one object for all its calls."""
    return Unpacking(find_format(name))


# -- parts of blocks ---------------------------------------------------------------------------


def part(blocks: Value, start: int, *sizes: int) -> Value:
    """The bytes from `start` on, as axes of these sizes."""
    piece = section(blocks, blocks.ndim - 1, start, start + prod(sizes))
    return reshape(piece, (*blocks.shape[:-1], *sizes))


def floats(blocks: Value, start: int, kind: tuple[Any, Any] = BITS_16) -> Value:
    """The number (..., 1) that lies at `start`, the lowest byte first."""
    bits, dtype = kind
    word: Any = None
    for at in reversed(range(start, start + dtype.itemsize)):
        byte = cast(section(blocks, blocks.ndim - 1, at, at + 1), bits)
        word = byte if word is None else word * 16 * 16 | byte  # small factors, which graphs know
    return cast(bind(primitives["bitcast"], (word,), {"dtype": dtype}), float32)


def codes(x: Value, bits: int, count: int) -> Value:
    """Codes of `bits` bits, of which a byte has `count`, the lowest first, in an axis before the
    last: (..., n) -> (..., count, n)."""
    steps = bind(primitives["iota"], (), {"size": count, "dtype": uint8}) * bits
    x = broadcast_to(
        reshape(x, (*x.shape[:-1], 1, x.shape[-1])), (*x.shape[:-1], count, x.shape[-1])
    )
    steps = broadcast_to(reshape(steps, (count, 1)), x.shape)
    return x >> steps & (1 << bits) - 1


def spread(x: Value, shape: Any) -> Value:
    """x (..., 1), or with axes of 1, for each number of `shape`."""
    axes = (*x.shape, *(1,) * (len(shape) - x.ndim))
    return broadcast_to(reshape(x, axes), tuple(shape))


# -- the formats -------------------------------------------------------------------------------


def unpack_bytes(blocks: Value, form: BlockFormat) -> Any:
    """scale · code, a code being a signed byte."""
    signed = bind(
        primitives["bitcast"], (part(blocks, form.header, form.numbers),), {"dtype": int8}
    )
    scale = floats(blocks, 0, BITS_16 if form.header == 2 else BITS_32)
    return cast(signed, float32) * broadcast_to(scale, signed.shape)


def unpack_nibbles(blocks: Value, form: BlockFormat) -> Any:
    """scale · (code - zero), or scale · code + shift. A byte has a code of the block's first half
    in its low bits, and one of the second half."""
    x = cast(codes(part(blocks, form.header, form.numbers // 2), 4, 2), float32)
    scale = spread(floats(blocks, 0), x.shape)
    if form.is_shifted:
        return x * scale + spread(floats(blocks, 2), x.shape)
    return (x - form.zero) * scale


def unpack_q4_k(blocks: Value, form: BlockFormat) -> Any:
    """Eight groups of 32, each with a scale and a shift of 6 bits, which two numbers scale."""
    low, high, both = (part(blocks, 4 + 4 * i, 4) for i in range(3))
    later = both & 15 | (low >> 6) << 4, both >> 4 | (high >> 6) << 4
    factors = [
        cast(bind(primitives["concatenate"], pair, {"axis": blocks.ndim - 1}), float32)
        for pair in ((low & 63, later[0]), (high & 63, later[1]))
    ]
    scale, shift = (f * broadcast_to(floats(blocks, 2 * i), f.shape) for i, f in enumerate(factors))
    x = cast(codes(part(blocks, 16, 4, 32), 4, 2), float32)  # (..., 4, 2, 32)
    scale, shift = (reshape(f, (*f.shape[:-1], 4, 2)) for f in (scale, shift))
    return x * spread(scale, x.shape) - spread(shift, x.shape)


def unpack_q6_k(blocks: Value, form: BlockFormat) -> Any:
    """Two halves of 128. Low 4 bits and high 2 bits of a code lie apart; 16 numbers share a scale
    of 8 bits, which one number scales."""
    low = codes(part(blocks, 0, 2, 64), 4, 2)  # (..., 2, 2, 64)
    high = codes(part(blocks, 128, 2, 32), 2, 4)  # (..., 2, 4, 32)
    low, high = (reshape(x, (*blocks.shape[:-1], 256)) for x in (low, high))
    x = cast(low | high << 4, float32) - 32
    scales = bind(primitives["bitcast"], (part(blocks, 192, 16),), {"dtype": int8})
    scales = cast(scales, float32) * broadcast_to(floats(blocks, 208), scales.shape)
    x = reshape(x, (*blocks.shape[:-1], 16, 16))
    return x * spread(scales, x.shape)


Q8_0 = BlockFormat("Q8_0", 32, 34, unpack_bytes, 8)
Q4_0 = BlockFormat("Q4_0", 32, 18, unpack_nibbles, 4, zero=8)
Q4_1 = BlockFormat("Q4_1", 32, 20, unpack_nibbles, 4, header=4, is_shifted=True)
Q4_K = BlockFormat("Q4_K", 256, 144, unpack_q4_k, 4, header=16, is_shifted=True, group=32)
Q6_K = BlockFormat("Q6_K", 256, 210, unpack_q6_k, 6, header=0, zero=32, group=16)
FORMATS = {form.name: form for form in (Q8_0, Q4_0, Q4_1, Q4_K, Q6_K)}


def int8_rows(features: int) -> BlockFormat:
    """A row with one scale in float32, and a code of 8 bits for each number."""
    return BlockFormat(f"int8:{features}", features, 4 + features, unpack_bytes, 8, header=4)


def int4_groups(group: int) -> BlockFormat:
    """Groups with a scale and a shift, and a code of 4 bits for each number; groups of 32 are
    blocks of Q4_1."""
    nbytes = 4 + group // 2
    return BlockFormat(f"int4:{group}", group, nbytes, unpack_nibbles, 4, header=4, is_shifted=True)


def find_format(name: str) -> BlockFormat:
    """The format of a name: one of FORMATS, or int8 or int4 with the numbers of a block, as in
    int4:64.

    Raises: OptionError for another name.
    """
    kind, _, count = name.partition(":")
    sized = {"int8": int8_rows, "int4": int4_groups}
    if name in FORMATS:
        return FORMATS[name]
    if kind in sized and count.isdecimal() and int(count) > 0:
        return sized[kind](int(count))
    raise OptionError("find_format", "a format", repr(name), suggest(name, FORMATS))
