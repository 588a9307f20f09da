"""Layers whose weights have few bits, and how float weights are packed.

Weights stay packed (ops/packed); a product unpacks them, and kernels for few rows of inputs read
them as they lie. They are not trained, but adapters beside them are (`nn.lora`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.base.dtype import float32, uint8
from glasshouse.base.errors import IndexOutOfRangeError, OptionError, ShapeError
from glasshouse.dispatch.value import adopt, as_value, cast
from glasshouse.nn.checks import check_positive
from glasshouse.nn.functional.linear import check_padding_idx, linear, outside_of_table
from glasshouse.nn.linear import Embedding, Linear, TransposedLinear
from glasshouse.nn.module import Module, Parameter
from glasshouse.ops.checks import check_integers
from glasshouse.ops.index import gather
from glasshouse.ops.packed import BlockFormat, find_format, unpack
from glasshouse.tensor import Tensor
from glasshouse.tensor import where as choose

LARGEST_HALF = 65504.0  # of float16


def packed_rows(where: str, packed: Any, features: int, format: str) -> tuple[Tensor, BlockFormat]:
    """The bytes of a matrix, and their format, if they fit each other."""
    form, blocks = find_format(format), as_value(packed, where=where)
    expected = f"uint8 (rows, {features} / {form.numbers}, {form.nbytes}) for {form.name}"
    fits = blocks.ndim == 3 and blocks.dtype is uint8 and blocks.shape[2] == form.nbytes
    if not fits or blocks.shape[1] * form.numbers != features:
        got = f"{blocks.dtype} {blocks.shape}"
        raise ShapeError(where, expected, got, "Pass blocks of that format.")
    return blocks, form


class QuantizedLinear(Linear):
    """x Wᵀ + b, with W in blocks of few bits: `format` is int8:n (rows of n numbers with a scale),
    int4:n (groups of n with a scale and a shift), or one of ggml's, as Q4_1. `weight` unpacks W.

    Shapes: (..., in_features) -> (..., out_features); packed (out_features, blocks, bytes).
    Raises: ShapeError for other bytes, or another number of features; OptionError for another
        format.
    Source: Dettmers et al. 2022, arXiv:2208.07339 (rows); Shen et al. 2019, arXiv:1909.05840
        (groups).
    Example:
        >>> layer = gh.quantize(gh.nn.Sequential(gh.nn.Linear(64, 3)), "int4")[0]
        >>> layer.packed.shape, layer(gh.ones((2, 64))).shape
        ((3, 2, 20), (2, 3))
    """

    _shown: tuple[str, ...] = ("in_features", "out_features", "format", "bias")  # type: ignore[assignment]

    def __init__(self, packed: Any, in_features: int, format: str, bias: Any = None) -> None:
        Module.__init__(self)
        check_positive("QuantizedLinear", in_features=in_features)
        self.form: BlockFormat
        blocks, self.form = packed_rows("QuantizedLinear", packed, in_features, format)
        self.in_features = in_features
        self.out_features: int = blocks.shape[0]
        self.register_buffer("packed", blocks)
        self.register_parameter("bias", bias)

    @property
    def format(self) -> str:
        """The name of the format."""
        return self.form.name

    @property
    def weight(self) -> Tensor:
        """The weight in float32, unpacked."""
        return unpack(self.packed, self.form)

    def reset_parameters(self) -> None:
        """Refuse to draw values."""
        raise fixed("QuantizedLinear.reset_parameters")

    def forward(self, input: Any) -> Tensor:
        x = as_value(input, where="Linear")
        return linear(x, cast(self.weight, x.dtype), self.bias, _where="Linear")


class QuantizedEmbedding(Embedding):
    """The rows of a table in blocks of few bits that the indices name; see `QuantizedLinear` for
    the formats, and `Embedding`. Only the rows that are named are unpacked, to `result_dtype`.

    Shapes: (...) of integers in [0, num_embeddings) -> (..., embedding_dim).
    Raises: ShapeError for other bytes, IndexOutOfRangeError for an index outside the table.
    Source: as QuantizedLinear's.
    Example:
        >>> table = gh.quantize(gh.nn.Sequential(gh.nn.Embedding(5, 64)), "int8")[0]
        >>> table(gh.asarray([4, 0])).shape
        (2, 64)
    """

    def __init__(
        self, packed: Any, embedding_dim: int, format: str, padding_idx: int | None = None
    ) -> None:
        Module.__init__(self)
        check_positive("QuantizedEmbedding", embedding_dim=embedding_dim)
        self.form: BlockFormat
        blocks, self.form = packed_rows("QuantizedEmbedding", packed, embedding_dim, format)
        self.num_embeddings: int = blocks.shape[0]
        self.embedding_dim = embedding_dim
        self.padding_idx = check_padding_idx("QuantizedEmbedding", padding_idx, blocks.shape[0])
        self.register_buffer("packed", blocks)
        self.result_dtype = float32

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The table in float32, unpacked."""
        return unpack(self.packed, self.form)

    def reset_parameters(self) -> None:
        """Refuse to draw values."""
        raise fixed("QuantizedEmbedding.reset_parameters")

    def forward(self, input: Any) -> Tensor:
        index, rows = as_value(input, where="Embedding"), self.num_embeddings
        check_integers("Embedding", index, "Convert them with input.long().")
        try:
            blocks = gather(self.packed, choose(index < 0, index - rows, index), axis=0)
        except IndexOutOfRangeError:
            raise outside_of_table("Embedding", index, rows) from None
        return cast(unpack(blocks, self.form), self.result_dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, format={self.form.name}"


def fixed(where: str) -> OptionError:
    fix = "Take the model before it was quantised."
    return OptionError(where, "weights that are trained", "packed ones", fix)


# -- from float weights ------------------------------------------------------------------------


def pack(weight: Any, kind: str, group: int) -> tuple[np.ndarray, str]:
    """The bytes (rows, blocks, bytes of a block) of a float matrix, and the name of their format:
    int8 rows with a scale, int4 groups with a scale and a shift.

    Raises: OptionError for rows that do not divide into groups, or numbers that are too large.
    """
    rows = np.asarray(weight, np.float32)
    form = find_format(f"{kind}:{rows.shape[1] if kind == 'int8' else group}")
    if rows.shape[1] % form.numbers:
        expected = f"rows of whole groups of {form.numbers}"
        fix = 'Pass another group, "int8", or skip the layer.'
        raise OptionError("quantize", expected, f"rows of {rows.shape[1]}", fix)
    most = np.finfo(np.float32).max if kind == "int8" else LARGEST_HALF
    if not (np.abs(rows) <= most).all():
        raise OptionError("quantize", f"weights within ±{most:g}", "others", "Check the model.")
    x = rows.reshape(rows.shape[0], -1, form.numbers)
    if kind == "int8":
        scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
        codes = np.rint(x / np.where(scale == 0, 1, scale)).astype(np.int8).view(np.uint8)
        return np.concatenate([scale.view(np.uint8), codes], axis=-1), form.name
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale, low = ((high - low) / 15).astype(np.float16), low.astype(np.float16)
    steps = np.where(scale == 0, 1, scale).astype(np.float32)
    codes = np.clip(np.rint((x - low.astype(np.float32)) / steps), 0, 15).astype(np.uint8)
    first, second = np.split(codes, 2, axis=-1)
    parts = [scale.view(np.uint8), low.view(np.uint8), first | second << 4]
    return np.concatenate(parts, axis=-1), form.name


class Packing:
    """Packs the weights of layers, shared ones once. Tables, and layers that share their weights,
    have 8 bits: their rows are read one at a time, and their errors reach all layers."""

    def __init__(self, kind: str, group: int, tables: Sequence[Any]) -> None:
        self.kind = kind
        self.group = group
        self.tables: set[int] = {id(layer.weight) for layer in tables}
        self.packed: dict[int, tuple[Parameter, Tensor, str]] = {}

    def blocks(self, weight: Parameter, is_turned: bool) -> tuple[Tensor, str]:
        """The bytes of a weight and the name of their format."""
        if id(weight) not in self.packed:
            kind = "int8" if id(weight) in self.tables else self.kind
            array = weight.detach().numpy()
            array, name = pack(array.T if is_turned else array, kind, self.group)
            self.packed[id(weight)] = weight, adopt(array), name
        return self.packed[id(weight)][1:]

    def layer(self, layer: Any) -> Module:
        """The layer with packed weights that takes the place of a layer."""
        blocks, name = self.blocks(layer.weight, isinstance(layer, TransposedLinear))
        if isinstance(layer, Embedding):
            return QuantizedEmbedding(blocks, layer.embedding_dim, name, layer.padding_idx)
        return QuantizedLinear(blocks, layer.in_features, name, layer.bias)
