"""Embeddings of bags of indices, and of large vocabularies."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.dispatch.value import ArrayLike, as_value, reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_positive, refuse_sparse
from glasshouse.nn.containers import ModuleList, Sequential
from glasshouse.nn.functional.embedding import MODES, embedding_bag
from glasshouse.nn.functional.linear import check_padding_idx
from glasshouse.nn.layer import with_unusual
from glasshouse.nn.linear import Embedding, Linear
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_integers, check_option
from glasshouse.tensor import Tensor, clip
from glasshouse.tensor import where as choose


class EmbeddingBag(Embedding):
    """The sum, mean or maximum of the rows of a table, initially normal, that each bag of indices
    names; see `functional.embedding_bag`. Row padding_idx starts as 0 and is left out.

    Shapes: (B, L), or (M,) with offsets (B,) -> (B, embedding_dim).
    Raises: as functional.embedding_bag.
    Source: Joulin et al. 2017, arXiv:1607.01759.
    Example:
        >>> EmbeddingBag(10, 3, mode="sum")(gh.asarray([1, 2, 4, 5]), gh.asarray([0, 3])).shape
        (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        check_option("EmbeddingBag", "mode", mode, MODES)
        refuse_sparse("EmbeddingBag", sparse)
        check_padding_idx("EmbeddingBag", padding_idx, num_embeddings)
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq)
        super().__init__(
            num_embeddings, embedding_dim, *options, _weight=_weight, device=device, dtype=dtype
        )
        self.mode = mode
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(  # type: ignore[override]  # in PyTorch's order
        cls,
        embeddings: ArrayLike,
        freeze: bool = True,
        max_norm: Any = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: Any = False,
        padding_idx: Any = None,
    ) -> Module:
        """An EmbeddingBag whose table is `embeddings` (V, D), not trained if `freeze`."""
        table = as_value(embeddings, where="EmbeddingBag.from_pretrained")
        if table.ndim != 2:
            where = "EmbeddingBag.from_pretrained"
            raise ShapeError(where, "a table (V, D)", table.shape, "Reshape it.")
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, table)
        rows, size = table.shape
        bag = cls(rows, size, *options, include_last_offset, padding_idx)
        bag.weight.requires_grad_(not freeze)
        return bag

    def forward(
        self,
        input: ArrayLike,
        offsets: ArrayLike | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False)
        options += (per_sample_weights, self.include_last_offset, self.padding_idx)
        return embedding_bag(input, self.weight, offsets, *options, _where="EmbeddingBag")

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        options = {"max_norm": None, "norm_type": 2, "scale_grad_by_freq": False}
        return (
            with_unusual(shown, vars(self), options)
            + f", mode={self.mode!r}"
            + ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}")
        )


class AdaptiveEmbedding(Module):
    """Rows of a vocabulary that is sorted by falling frequency: the clusters between `cutoffs` have
    tables of embedding_dim, embedding_dim / div_value, embedding_dim / div_value² … features, each
    with a projection to embedding_dim. Every cluster is looked up for every index, so that a
    captured step does not depend on the indices.

    Shapes: (...) of integers in [0, num_embeddings) -> (..., embedding_dim).
    Raises: OptionError for cutoffs that do not rise from 1 to num_embeddings - 1, or clusters
        without features; IndexOutOfRangeError for an index outside the vocabulary.
    Source: Baevski & Auli 2019, arXiv:1809.10853, sec. 3.
    Example:
        >>> AdaptiveEmbedding(100, 16, [10, 40])(gh.asarray([[3, 99]])).shape
        (1, 2, 16)
    """

    _shown_first = ("num_embeddings", "embedding_dim")
    _shown = ("cutoffs", "div_value")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        where = "AdaptiveEmbedding"
        check_positive(where, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.cutoffs: tuple[int, ...] = tuple(cutoffs)
        self.div_value = div_value
        self.bounds: tuple[Any, ...] = (0, *self.cutoffs, num_embeddings)
        if any(b <= a for a, b in pairwise(self.bounds)):
            expected = f"cutoffs that rise from 1 to {num_embeddings - 1}"
            got = list(self.cutoffs)
            raise OptionError(where, expected, got, "Sort them, and leave out others.")
        self.clusters: ModuleList = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.bounds)):
            features = int(embedding_dim // div_value**i)
            if features < 1:
                fix = "Use fewer cutoffs, or a smaller div_value."
                raise OptionError(where, "a feature in each cluster", f"{features} of {i}", fix)
            table = Embedding(high - low, features, device=device, dtype=dtype)
            init.normal_(table.weight, std=features**-0.5)
            projection = Linear(features, embedding_dim, False, device, dtype)
            init.xavier_uniform_(projection.weight)
            self.clusters.append(Sequential(table, projection))

    def forward(self, input: ArrayLike) -> Tensor:
        index = as_value(input, where="AdaptiveEmbedding")
        check_integers("AdaptiveEmbedding", index, "Convert them with input.long().")
        later = (index >= self.bounds[1]) & (index < self.num_embeddings)
        y = self.clusters[0](choose(later, 0, index))
        spans = list(pairwise(self.bounds))[1:]
        for cluster, (low, high) in zip(list(self.clusters)[1:], spans, strict=True):
            inside = reshape((index >= low) & (index < high), (*index.shape, 1))
            y = choose(inside, cluster(clip(index - low, 0, high - low - 1)), y)
        return y
