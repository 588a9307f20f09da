"""Embedding: a table of trainable rows."""

from glasshouse.autograd import no_grad
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.nn import init
from glasshouse.nn.checks import check_positive
from glasshouse.nn.functional.embedding import check_padding_idx, embedding
from glasshouse.nn.layer import with_unusual
from glasshouse.nn.linear import new_parameter
from glasshouse.nn.module import Module, Parameter


class Embedding(Module):
    """The rows of a table, initially normal, that the indices name; see `functional.embedding`. Row
    padding_idx starts as 0 and gets no gradient. Shapes: (...) of integers in [0, num_embeddings)
    -> (..., embedding_dim). Raises: IndexOutOfRangeError for an index outside the table, DTypeError
    for floats. Source: Bengio et al. 2003."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None,
                 norm_type=2.0, scale_grad_by_freq=False, *, _weight=None, _freeze=False,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        check_positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = check_padding_idx("Embedding", padding_idx, num_embeddings)
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight)
        self.weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None, max_norm=None,
                        norm_type=2.0, scale_grad_by_freq=False):  # fmt: skip
        """An Embedding whose table is `embeddings` (V, D), not trained if `freeze`."""
        table = as_value(embeddings, where="Embedding.from_pretrained")
        if table.ndim != 2:
            raise ShapeError("Embedding.from_pretrained", "a table (V, D)", table.shape, "Reshape.")
        return cls(*table.shape, padding_idx, max_norm, norm_type, scale_grad_by_freq,
                   _weight=table, _freeze=freeze)  # fmt: skip

    def reset_parameters(self) -> None:
        """Draw the initial values anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input):
        return embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                         self.scale_grad_by_freq, _where="Embedding")  # fmt: skip

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        options = {"padding_idx": None, "max_norm": None, "norm_type": 2,
                   "scale_grad_by_freq": False}  # fmt: skip
        return with_unusual(shown, vars(self), options)
