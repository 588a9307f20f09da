"""Vectors of whole texts: a model's states, averaged and of length 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.functional import normalize
from glasshouse.nn.generation.writer import computing
from glasshouse.ops.checks import check_integer
from glasshouse.tensor import Tensor, asarray, maximum
from glasshouse.tensor.standard import reduce
from glasshouse.text.models.bert import BertModel
from glasshouse.text.tokenizers import Tokenizer

__all__ = ["SentenceEncoder", "embed_sentences", "mean_pool"]

MAX_LENGTH = 256  # tokens of a text, after which it is cut


def mean_pool(states: Any, attention_mask: Any) -> Tensor:
    """The mean of the states where the mask is not 0, divided by its length.

    Shapes: (N, L, E) and (N, L) -> (N, E).
    Source: Reimers & Gurevych 2019, arXiv:1908.10084.
    Example:
        >>> mean_pool([[[3.0, 0.0], [0.0, 8.0]]], [[1, 0]]).tolist()
        [[1.0, 0.0]]
    """
    x, mask = as_value(states), as_value(attention_mask)
    mask = cast(reshape(mask, (*mask.shape, 1)), x.dtype)
    total = reduce.sum(x * mask, axis=1)
    return normalize(total / maximum(reduce.sum(mask, axis=1), 1), dim=-1)


def embed_sentences(
    model: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_size: int = 32,
    max_length: int = MAX_LENGTH,
) -> np.ndarray:
    """A vector of length 1 for each text, whose products are similarities: `mean_pool` of the
    states of an encoder such as a BertModel, or the first token's state if its configuration says
    so. Texts of similar lengths form a batch, in a few sizes.

    Shapes: N texts -> (N, E).
    Raises: DTypeError for texts that are not strings.
    Source: as mean_pool's.
    """
    return embed_and_count(model, tokenizer, texts, batch_size, max_length)[0]


def embed_and_count(
    model: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_size: int = 32,
    max_length: int = MAX_LENGTH,
) -> tuple[np.ndarray, int]:
    """(the vectors that `embed_sentences` gives, tokens that were read)."""
    check_integer("embed_sentences", "batch_size", batch_size, 1)
    texts = [texts] if isinstance(texts, str) else list(texts)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    vectors: dict[int, np.ndarray] = {}
    count = 0
    is_training = model.training
    model.eval()
    read = 1 if getattr(getattr(model, "config", None), "pooling", "") == "first" else None
    with no_grad():
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size].tolist()
            batch = tokenizer.encode([texts[i] for i in rows], max_length=max_length, multiple=16)
            count += int(batch.attention_mask.sum())
            states = model(*map(asarray, batch))
            states = states[0] if isinstance(states, tuple) else states
            pooled = mean_pool(states[:, :read], batch.attention_mask[:, :read]).numpy()
            vectors |= dict(zip(rows, pooled, strict=True))
    model.train(is_training)
    whole = np.stack([vectors[i] for i in range(len(texts))]) if texts else np.zeros((0, 0))
    return whole, count


class SentenceEncoder:
    """An encoder, alone or in a model with a head, and its tokenizer. `make_server` takes it in
    place of an Engine to serve only vectors of texts.

    Raises: OptionError for a model without a BertModel.
    Source: as mean_pool's.
    Example:
        >>> server = make_server(SentenceEncoder(model, tokenizer))  # doctest: +SKIP
    """

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        body: Any = getattr(model, getattr(model, "base_name", None) or "", model)
        if not isinstance(body, BertModel):
            got, fix = type(model).__name__, "Take an encoder, such as a BertModel."
            raise OptionError("SentenceEncoder", "a model with an encoder", got, fix)
        body.eval()
        self.model: BertModel = body
        self.tokenizer = tokenizer
        self.max_length: int = min(MAX_LENGTH, body.config.max_position_embeddings)
        self.counts: dict[str, int] = {"requests": 0, "prompt_tokens": 0}

    @property
    def is_alive(self) -> bool:
        """True: it has no thread that could end."""
        return True

    def embed(self, texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
        """(the vectors that `embed_sentences` gives, tokens that were read)."""
        with computing:
            vectors, count = embed_and_count(
                self.model, self.tokenizer, texts, max_length=self.max_length
            )
        self.counts["requests"] += 1
        self.counts["prompt_tokens"] += count
        return list(vectors), count

    def metrics(self) -> str:
        """The counts, as Prometheus reads them."""
        return "".join(f"glasshouse_{name}_total {n}\n" for name, n in self.counts.items())

    def close(self) -> None:
        """Do nothing: there is no thread to end."""
