"""The torch backend: payloads are torch tensors, each card one or a few calls of torch's kernels.

torch has no (or few) kernels for uint16 and uint32: such operands are widened to int64 and the
result narrowed again. Other dtypes (uint64, some 16-bit types) run on the card's reference."""

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from glasshouse.base import DeviceError, IndexOutOfRangeError, LinAlgError, Spec, by_name
from glasshouse.dispatch import TensorBackend, primitives
from glasshouse.ops.movement import infer_pad, placed
from glasshouse.ops.random import INCREMENTS, MULTIPLIERS, ROUNDS
from glasshouse.ops.window import window_counts, window_positions

TO_TORCH = {dtype: getattr(torch, name) for name, dtype in by_name.items()}
FROM_TORCH = {theirs: ours for ours, theirs in TO_TORCH.items()}
NARROW = (torch.uint16, torch.uint32)  # widened to int64
CONVOLUTIONS: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
WORD = 0xFFFFFFFF
CAUSES = (torch.OutOfMemoryError, torch.linalg.LinAlgError)  # of failures that are no gaps


def over_axes(reduction: Any) -> Any:
    return lambda self, x, *, axes: reduction(x, dim=axes) if axes else x


def along_axis(position: Any) -> Any:
    as_number = {torch.bool: torch.uint8}
    return lambda self, x, *, axis: position(x.to(as_number.get(x.dtype, x.dtype)), axis)


class TorchBackend(TensorBackend):
    """One method per card; `device` is "cpu", "cuda" or "cuda:1"."""

    max: Any
    min: Any
    any: Any
    all: Any
    argmax: Any
    argmin: Any

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
            expected = "device 'cpu', or 'cuda' where there is one"
            raise DeviceError("torch", expected, repr(device), "Use 'torch'.")
        super().__init__(device)

    def kernel(self, name: str) -> Any:
        """The method for a card, with narrow unsigned integers widened and gaps filled."""
        card, reference = primitives[name], self.fallback(name)
        method = getattr(self, name, reference)
        moves = card.kind in ("movement", "create", "random") or name == "cast"

        def run(*data, **attrs):
            wide = not moves and any(x.dtype in NARROW for x in data)
            if not moves and any(x.dtype is torch.uint64 for x in data):
                return reference(*data, **attrs)
            operands = [x.to(torch.int64) if wide and x.dtype in NARROW else x for x in data]
            try:
                with torch.no_grad():
                    out = method(*operands, **attrs)
            except CAUSES:
                raise
            except RuntimeError:  # the call is right, for its card took it: PyTorch lacks it
                return reference(*data, **attrs)
            return self.narrowed(card, data, attrs, out) if wide else out

        return run

    def narrowed(self, card: Any, data: Any, attrs: Any, out: Any) -> Any:
        specs = card.infer(*map(self.spec_of, data), **attrs)
        if card.num_outputs == 1:
            return out.to(TO_TORCH[specs.dtype])
        return tuple(y.to(TO_TORCH[s.dtype]) for y, s in zip(out, specs, strict=True))

    def to_numpy(self, data: Any) -> Any:
        data = data.detach().cpu()
        if data.dtype is torch.bfloat16:
            return data.view(torch.int16).numpy().view(by_name["bfloat16"].np)
        return data.resolve_conj().numpy()

    def from_numpy(self, array: Any) -> Any:
        array = np.asarray(array)
        if array.dtype.name == "bfloat16":
            return self.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if not array.flags.writeable or any(step < 0 for step in array.strides):
            array = array.copy()
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return torch.from_numpy(array).to(self.device)

    def sync(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def spec_of(self, data: Any) -> Spec:
        return Spec(tuple(data.shape), FROM_TORCH[data.dtype])

    def constant(self, *, value: Any) -> Any:
        return self.from_numpy(value)

    def full(self, *, shape: Any, value: Any, dtype: Any) -> Any:
        return self.from_numpy(np.asarray(value).astype(dtype.np)).expand(shape)

    def iota(self, *, size: Any, dtype: Any) -> Any:
        return torch.arange(size, device=self.device).to(TO_TORCH[dtype])

    def random_bits(self, key: Any, *, shape: Any) -> Any:
        """Philox4x32-10 in int64 arithmetic, where products of 32-bit words are taken in halves."""
        count = -(-math.prod(shape) // 4)
        words = [key[..., i, None].to(torch.int64) for i in range(4)]
        block = torch.arange(count, device=self.device)
        c0, c1, c2, c3 = block & WORD, block >> 32, words[2], words[3]
        k0, k1 = words[:2]
        for _ in range(ROUNDS):
            high0, low0 = wide_product(c0, int(MULTIPLIERS[0]))
            high1, low1 = wide_product(c2, int(MULTIPLIERS[1]))
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = (k0 + int(INCREMENTS[0])) & WORD, (k1 + int(INCREMENTS[1])) & WORD
        lead = torch.broadcast_shapes(*(c.shape for c in (c0, c1, c2, c3)))
        blocks = torch.stack([c.expand(lead) for c in (c0, c1, c2, c3)], dim=-1)
        flat = blocks.reshape((*key.shape[:-1], 4 * count))[..., : math.prod(shape)]
        return flat.reshape((*key.shape[:-1], *shape)).to(torch.uint32)

    def div(self, x: Any, y: Any) -> Any:
        inexact = x.dtype.is_floating_point or x.dtype.is_complex
        return torch.div(x, y) if inexact else or_zero(torch.floor_divide, x, y)

    def remainder(self, x: Any, y: Any) -> Any:
        inexact = x.dtype.is_floating_point
        return torch.remainder(x, y) if inexact else or_zero(torch.remainder, x, y)

    def bitcast(self, x: Any, *, dtype: Any) -> Any:
        if x.dtype.is_complex and not dtype.is_complex:
            return torch.view_as_real(x.resolve_conj())
        if dtype.is_complex and not x.dtype.is_complex:
            return torch.view_as_complex(x.contiguous())
        return x.contiguous().view(TO_TORCH[dtype])

    def sum(self, x: Any, *, axes: Any) -> Any:
        return torch.sum(x, dim=axes, dtype=x.dtype) if axes else x

    def prod(self, x: Any, *, axes: Any) -> Any:
        for axis in reversed(axes):
            x = torch.prod(x, dim=axis, dtype=x.dtype)
        return x

    max, min, any, all = map(over_axes, (torch.amax, torch.amin, torch.any, torch.all))
    argmax, argmin = map(along_axis, (torch.argmax, torch.argmin))

    def cumsum(self, x: Any, *, axis: Any, reverse: Any) -> Any:
        if reverse:
            return self.cumsum(x.flip(axis), axis=axis, reverse=False).flip(axis)
        return torch.cumsum(x, dim=axis, dtype=x.dtype)

    def pad(self, x: Any, *, widths: Any, value: Any) -> Any:
        shape = infer_pad(self.spec_of(x), widths=widths, value=value).shape
        out = torch.full(shape, value, dtype=x.dtype, device=x.device)
        out[placed(tuple(x.shape), widths)] = x
        return out

    def gather(self, x: Any, indices: Any, *, axis: Any) -> Any:
        places = checked("gather", indices, x.shape[axis]).reshape(-1)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return x.index_select(axis, places).reshape(shape)

    def scatter_add(self, x: Any, indices: Any, updates: Any, *, axis: Any) -> Any:
        places = checked("scatter_add", indices, x.shape[axis]).reshape(-1)
        rows = updates.reshape(*x.shape[:axis], places.numel(), *x.shape[axis + 1 :])
        if x.dtype.itemsize == 2 and x.dtype.is_floating_point:
            return x.float().index_add(axis, places, rows.float()).to(x.dtype)
        return x.index_add(axis, places, rows)

    def scatter_set(self, x: Any, indices: Any, updates: Any, *, axis: Any) -> Any:
        """Finds the last update of each place first, so that the order of writing is no matter."""
        places = checked("scatter_set", indices, x.shape[axis]).reshape(-1)
        rows = updates.reshape(*x.shape[:axis], places.numel(), *x.shape[axis + 1 :])
        order = torch.arange(places.numel(), device=x.device)
        last = torch.full((x.shape[axis],), -1, device=x.device)
        last.scatter_reduce_(0, places, order, "amax")
        targets = (last >= 0).nonzero().reshape(-1)
        out = x.clone(memory_format=torch.contiguous_format)
        return out.index_copy_(axis, targets, rows.index_select(axis, last[targets]))

    def conv(self, x: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: Any) -> Any:
        x, even = even_padding(x, padding)
        if x.ndim - 2 not in CONVOLUTIONS or not x.numel():
            raise NotImplementedError("convolution of this rank or of nothing")
        return CONVOLUTIONS[x.ndim - 2](x, w, None, stride, even, dilation, groups)

    def conv_data_grad(
        self, g: Any, w: Any, *, shape: Any, stride: Any, padding: Any, dilation: Any, groups: Any
    ) -> Any:
        x = g.new_empty((g.shape[0], w.shape[1] * groups, *grown(shape, padding)))
        dx = conv_backward(g, x, w, stride, dilation, groups, mask=(True, False, False))[0]
        inside = (slice(low, low + size) for size, (low, _high) in zip(shape, padding, strict=True))
        return dx[(slice(None), slice(None), *inside)]

    def conv_weight_grad(
        self, x: Any, g: Any, *, shape: Any, stride: Any, padding: Any, dilation: Any, groups: Any
    ) -> Any:
        w = g.new_empty((g.shape[1], x.shape[1] // groups, *shape))
        padded = functional.pad(x, torch_padding(padding))
        return conv_backward(g, padded, w, stride, dilation, groups, mask=(False, True, False))[1]

    def fold(self, w: Any, *, shape: Any, stride: Any, dilation: Any) -> Any:
        d = len(shape)
        size, counts = tuple(w.shape[-d:]), tuple(w.shape[-2 * d : -d])
        out = w.new_zeros((*w.shape[: -2 * d], *shape))
        flat = w.reshape(*w.shape[:-d], math.prod(size))
        for i, place in enumerate(window_positions(counts, size, stride, dilation)):
            out[place] += flat[..., i]
        return out

    def window_select(
        self, x: Any, keys: Any, *, size: Any, stride: Any, dilation: Any, padding: Any
    ) -> Any:
        d = len(size)
        chosen = chosen_in_windows(keys, size, stride, dilation, padding)
        return window_view(x, size, stride, dilation).flatten(-d).gather(-1, chosen)[..., 0]

    def window_scatter(
        self, g: Any, keys: Any, *, size: Any, stride: Any, dilation: Any, padding: Any
    ) -> Any:
        d = len(size)
        options = {"stride": stride, "dilation": dilation}
        chosen = chosen_in_windows(keys, size, **options, padding=padding)
        spread = g.new_zeros((*chosen.shape[:-1], math.prod(size)))
        spread.scatter_(-1, chosen, g[..., None])
        return self.fold(spread.unflatten(-1, size), shape=keys.shape[-d:], **options)

    def sort(self, x: Any, *, axis: Any, descending: Any) -> Any:
        return tuple(torch.sort(x, dim=axis, descending=descending, stable=True))

    def top_k(self, x: Any, *, k: Any) -> Any:
        values, order = self.sort(x, axis=x.ndim - 1, descending=True)
        return values[..., :k], order[..., :k]

    def cholesky(self, a: Any) -> Any:
        lower, info = torch.linalg.cholesky_ex(hermitian(a))
        if info.any():
            got = f"matrices of shape {tuple(a.shape)} that are not"
            fix = "Look for NaN, or add a multiple of the identity."
            raise LinAlgError("cholesky", "positive definite matrices", got, fix)
        return lower

    def lu(self, a: Any) -> Any:
        packed, swaps = torch.linalg.lu_factor_ex(a)[:2]
        matrix = torch.lu_unpack(packed, swaps, unpack_data=False)[0]
        return packed, matrix.real.argmax(-2) if a.dtype.is_complex else matrix.argmax(-2)

    def triangular_solve(
        self, a: Any, b: Any, *, lower: Any, transpose: Any, unit_diagonal: Any
    ) -> Any:
        a, lower = (a.mT, not lower) if transpose else (a, lower)
        return torch.linalg.solve_triangular(a, b, upper=not lower, unitriangular=unit_diagonal)


# Cards that are one function of torch: by its name, or by their own and its name.
SAME = (
    "neg abs floor round exp expm1 log log1p sqrt sin cos tanh erf add sub mul pow maximum "
    "minimum atan2 bitwise_and bitwise_or bitwise_xor where matmul"
)
RENAMED = {"equal": "eq", "less": "lt", "shift_right": "bitwise_right_shift"}
# Cards that are one expression.
ONE_LINERS: dict[str, Any] = {
    "cast": lambda x, *, dtype: x.to(TO_TORCH[dtype]),
    "reshape": lambda x, *, shape: x.reshape(shape),
    "permute": lambda x, *, axes: x.permute(axes),
    "expand": lambda x, *, shape: x.expand(shape),
    "slice": lambda x, *, starts, stops, steps: x[tuple(map(slice, starts, stops, steps))],
    "flip": lambda x, *, axes: x.flip(axes),
    "concatenate": lambda *xs, axis: torch.cat(xs, dim=axis),
    "windows": lambda x, *, size, stride, dilation: window_view(x, size, stride, dilation),
    "qr": lambda a, *, mode: tuple(torch.linalg.qr(a, mode=mode)),
    "eigh": lambda a: factors("eigh", torch.linalg.eigh, hermitian(a)),
    "svd": lambda a, *, full_matrices: factors("svd", torch.linalg.svd, a, full_matrices),
}
named: dict[str, str] = {name: name for name in SAME.split()} | RENAMED
methods: dict[str, Any] = {
    ours: getattr(torch, theirs) for ours, theirs in named.items()
} | ONE_LINERS
for card, function in methods.items():
    setattr(TorchBackend, card, staticmethod(function))


def wide_product(x: Any, multiplier: int) -> Any:
    """The upper and lower 32 bits of x · multiplier, of 32-bit words held in int64."""
    low, high = x * (multiplier & 0xFFFF), x * (multiplier >> 16)  # each below 2**48
    return (high + (low >> 16)) >> 16, (low + ((high & 0xFFFF) << 16)) & WORD


def or_zero(divide: Any, x: Any, y: Any) -> Any:
    zero = y == 0
    return torch.where(zero, 0, divide(x, y + zero.to(y.dtype)))


def checked(where: str, indices: Any, size: int) -> Any:
    indices = indices.to(torch.int64)
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        expected = f"indices from {-size} to {size - 1}"
        fix = f"The axis has {size} elements."
        raise IndexOutOfRangeError(where, expected, indices[wrong][0].item(), fix)
    return torch.where(indices < 0, indices + size, indices)


def torch_padding(padding: Any) -> list[int]:
    """(low, high) pairs in torch's order: the last axis first."""
    return [width for pair in reversed(padding) for width in pair]


def even_padding(x: Any, padding: Any) -> Any:
    """(x, padding that is equal on both sides), x padded here where the sides differ."""
    if all(low == high for low, high in padding):
        return x, [low for low, _high in padding]
    return functional.pad(x, torch_padding(padding)), [0] * len(padding)


def grown(shape: Any, padding: Any) -> Any:
    return [size + low + high for size, (low, high) in zip(shape, padding, strict=True)]


def conv_backward(
    g: Any, x: Any, w: Any, stride: Any, dilation: Any, groups: Any, *, mask: Any
) -> Any:
    if x.ndim - 2 not in CONVOLUTIONS or not (g.numel() and x.numel()) or g.dtype.is_complex:
        raise NotImplementedError("convolution gradient of this rank, dtype or of nothing")
    zeros, backward = [0] * len(stride), torch.ops.aten.convolution_backward
    return backward(g, x, w, None, stride, zeros, dilation, False, zeros, groups, mask)


def window_view(x: Any, size: Any, stride: Any, dilation: Any) -> Any:
    """All windows of x (..., *S) as a view (..., *O, *size)."""
    d = len(size)
    counts = window_counts("windows", tuple(x.shape[-d:]), size, stride, dilation)
    steps = x.stride()[-d:]
    outer = [step * s for step, s in zip(steps, stride, strict=True)]
    inner = [step * s for step, s in zip(steps, dilation, strict=True)]
    shape = (*x.shape[:-d], *counts, *size)
    return x.as_strided(shape, (*x.stride()[:-d], *outer, *inner))


def chosen_in_windows(keys: Any, size: Any, stride: Any, dilation: Any, padding: Any) -> Any:
    """The position of the largest key in each window (..., *O, 1), as the card chooses it."""
    d = len(size)
    keys = keys.to(torch.uint8) if keys.dtype is torch.bool else keys
    view = window_view(keys, size, stride, dilation).flatten(-d)
    if not any(map(any, padding)):
        return view.argmax(-1, keepdim=True)
    sizes = zip(keys.shape[-d:], padding, strict=True)
    inside = torch.zeros(keys.shape[-d:], dtype=torch.bool)
    inside[tuple(slice(low, n - high) for n, (low, high) in sizes)] = True
    inside = window_view(inside, size, stride, dilation).flatten(-d)
    real = torch.where(inside, view, least(view.dtype))
    hits = inside & ((real == real.amax(-1, keepdim=True)) | (real != real))
    return hits.int().argmax(-1, keepdim=True)


def least(dtype: Any) -> Any:
    """The number below all others of a dtype."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def factors(where: str, factor: Any, a: Any, *options: Any) -> tuple[Any, ...]:
    try:
        return tuple(factor(a, *options))
    except torch.linalg.LinAlgError as error:
        got = f"matrices of shape {tuple(a.shape)} that do not ({error})"
        fix = "Look for NaN and infinities."
        raise LinAlgError(where, "matrices that converge", got, fix) from error


def hermitian(a: Any) -> Any:
    return (a + a.mH) / 2
