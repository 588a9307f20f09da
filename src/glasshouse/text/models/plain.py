"""Models that read and write text: an encoder like BERT, a decoder like GPT."""

from glasshouse import nn
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.tensor import Tensor
from glasshouse.tensor.standard.creation import arange

__all__ = ["BertLike", "GptLike"]


class BertLike(nn.Module):
    """A bidirectional encoder: token and position embeddings, norm, post-norm layers with GELU, and
    an output layer of its own weights to the vocabulary; 405,828,697 parameters as it stands.

    Shapes: tokens (N, L) of integers in [0, vocab), L at most max_len -> scores (N, L, vocab).
    Raises: ShapeError for other shapes, IndexOutOfRangeError for tokens outside the vocabulary.
    Source: Devlin et al. 2018, arXiv:1810.04805; sizes as RoBERTa large's, arXiv:1907.11692.
    Example:
        >>> model = BertLike(vocab=20, layers=1, dim=8, heads=2, ff=16, max_len=4)
        >>> model(gh.asarray([[1, 2, 3]])).shape
        (1, 3, 20)
    """

    def __init__(
        self,
        vocab: int = 50265,
        layers: int = 24,
        dim: int = 1024,
        heads: int = 16,
        ff: int = 4096,
        max_len: int = 512,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.max_len = max_len
        self.tokens: nn.Embedding = nn.Embedding(vocab, dim)
        self.positions: nn.Embedding = nn.Embedding(max_len, dim)
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.dropout: nn.Module = nn.Dropout(dropout)
        options = (dim, heads, ff, dropout, "gelu")
        stack = (nn.TransformerEncoderLayer(*options, batch_first=True) for _ in range(layers))
        self.layers: nn.Sequential = nn.Sequential(*stack)
        self.output: nn.Linear = nn.Linear(dim, vocab)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = checked_tokens("BertLike", tokens, self.max_len)
        x = self.tokens(tokens) + self.positions(arange(tokens.shape[1]))
        return self.output(self.layers(self.dropout(self.norm(x))))


class GptLike(nn.Module):
    """A decoder: token and position embeddings, pre-norm layers with GELU in which each token sees
    those before it, a last norm, and an output layer with the table of the tokens as its weights;
    124,439,808 parameters as it stands, as GPT-2 small.

    Shapes: tokens (N, L) of integers in [0, vocab), L at most max_len -> scores (N, L, vocab).
    Raises: ShapeError for other shapes, IndexOutOfRangeError for tokens outside the vocabulary.
    Source: Radford et al. 2019, Language models are unsupervised multitask learners.
    Example:
        >>> model = GptLike(vocab=20, layers=1, dim=8, heads=2, ff=16, max_len=4)
        >>> model(gh.asarray([[1, 2, 3]])).shape
        (1, 3, 20)
    """

    def __init__(
        self,
        vocab: int = 50257,
        layers: int = 12,
        dim: int = 768,
        heads: int = 12,
        ff: int = 3072,
        max_len: int = 1024,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.max_len = max_len
        self.tokens: nn.Embedding = nn.Embedding(vocab, dim)
        self.positions: nn.Embedding = nn.Embedding(max_len, dim)
        self.dropout: nn.Module = nn.Dropout(dropout)
        options = (dim, heads, ff, dropout, "gelu")
        self.layers: nn.ModuleList = nn.ModuleList(
            nn.TransformerEncoderLayer(*options, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm: nn.LayerNorm = nn.LayerNorm(dim)
        self.output: nn.Linear = nn.Linear(dim, vocab, bias=False)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.output.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = checked_tokens("GptLike", tokens, self.max_len)
        x = self.dropout(self.tokens(tokens) + self.positions(arange(tokens.shape[1])))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.output(self.norm(x))


def checked_tokens(where: str, tokens: Tensor, max_len: int) -> Tensor:
    tokens = as_value(tokens, where=where)
    if tokens.ndim != 2 or tokens.shape[1] > max_len:
        fix = "Cut the text, or raise max_len."
        raise ShapeError(where, f"tokens (N, L) with L at most {max_len}", tokens.shape, fix)
    return tokens
