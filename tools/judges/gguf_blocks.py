"""Copies of a Llama's GGUF file whose weights are floats, or blocks of Q4_K or Q6_K."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.interop import open_gguf

ALIGNMENT = 32  # of tensors in a GGUF file


def rewrite(path: Path, target: Path, kind: str) -> None:
    """Write a GGUF file with the same metadata, and the same weights in float32, or in blocks."""
    file, data = open_gguf(path), path.read_bytes()
    fit = Widening(file) if kind != "F32" else None
    for name, value in (fit.numbers if fit else {}).items():
        key = struct.pack("<Q", len(name)) + name.encode()
        at = data.index(key) + len(key) + 4
        data = data[:at] + value + data[at + 4 :]
    names = [name.encode() for name in file]
    begin = data.index(struct.pack("<Q", len(names[0])) + names[0])  # of the places
    places, at = b"", 0
    for name, place in zip(names, file.places.values(), strict=True):
        shape = fit.shape(place.shape) if fit else place.shape
        code, numbers, nbytes = KINDS[kind if len(shape) > 1 else "F32"]
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        places += struct.pack("<Q", len(name)) + name + sizes + struct.pack("<IQ", code, at)
        at += -(-math.prod(shape) // numbers * nbytes // ALIGNMENT) * ALIGNMENT
    head = data[:begin] + places
    with target.open("wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for x in file.values():
            weights = x.astype("float32").numpy()
            weights = fit.wide(weights) if fit else weights
            blocks = weights if weights.ndim == 1 else PACKED[kind](weights)
            out.write(blocks.tobytes() + bytes(-blocks.nbytes % ALIGNMENT))


class Widening:
    """A Llama with more features, all of them zeros: the rows of its matrices are whole blocks.
    Norms divide by the mean over more features, for which weights and epsilon allow."""

    def __init__(self, file: Any) -> None:
        names = ("embedding_length", "attention.head_count", "attention.head_count_kv")
        width, heads, shared = (file.metadata[f"llama.{name}"] for name in names)
        new = -(-width // 256) * 256
        size = width // heads
        more = (new, new // size, new // size * shared // heads)
        epsilon = "llama.attention.layer_norm_rms_epsilon"
        self.part = width / new
        self.sizes = {width: new, shared * size: more[2] * size}
        pairs = zip(names, more, strict=True)
        self.numbers = {f"llama.{name}": struct.pack("<I", n) for name, n in pairs}
        self.numbers[epsilon] = struct.pack("<f", file.metadata[epsilon] * self.part)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.sizes.get(n, n) for n in shape)

    def wide(self, x: np.ndarray) -> np.ndarray:
        wide = np.zeros(self.shape(x.shape), np.float32)
        wide[tuple(slice(n) for n in x.shape)] = x * (self.part**0.5 if x.ndim == 1 else 1)
        return wide


def divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.divide(x, y, out=np.zeros(np.broadcast_shapes(x.shape, y.shape), "f"), where=y != 0)


def q4_k(x: np.ndarray) -> np.ndarray:
    """Blocks of 256 numbers in groups of 32, each with a scale and a least number of 6 bits."""
    x = x.reshape(-1, 8, 32)
    low = np.minimum(x.min(-1), 0)
    scale = (x.max(-1) - low) / 15
    halves = np.stack([scale.max(-1), -low.min(-1)], -1) / 63
    halves = halves.astype("<f2")
    d, least = halves.astype("f").T[:, :, None]
    s, m = np.rint(divided(scale, d)).astype("u1"), np.rint(divided(-low, least)).astype("u1")
    s, m = np.minimum(s, 63), np.minimum(m, 63)
    codes = divided(x + (least * m)[..., None], (d * s)[..., None])
    codes = np.clip(np.rint(codes), 0, 15).astype("u1").reshape(-1, 4, 2, 32)
    six = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6,
                          s[:, 4:] & 15 | m[:, 4:] << 4], -1)  # fmt: skip
    four = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([halves.view("u1"), six, four], -1)


def q6_k(x: np.ndarray) -> np.ndarray:
    """Blocks of 256 numbers in groups of 16, each with a scale of 8 bits."""
    x = x.reshape(-1, 16, 16)
    scale = np.abs(x).max(-1) / 31
    half = (scale.max(-1, keepdims=True) / 127).astype("<f2")
    s = np.minimum(np.rint(divided(scale, half.astype("f"))), 127).astype("i1")
    codes = divided(x, (half.astype("f") * s)[..., None])
    codes = (np.clip(np.rint(codes), -32, 31) + 32).astype("u1").reshape(-1, 2, 4, 32)
    low = (codes[:, :, :2] & 15 | codes[:, :, 2:] << 4).reshape(-1, 128)
    high = codes >> 4
    high = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return np.concatenate([low, high.reshape(-1, 64), s.view("u1"), half.view("u1")], -1)


KINDS = {"F32": (0, 1, 4), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210)}  # code, numbers, bytes
PACKED = {"F32": np.asarray, "Q4_K": q4_k, "Q6_K": q6_k}
