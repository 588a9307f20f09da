"""Vectors of whole texts: a model's states, averaged and of length 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.functional import normalize
from glasshouse.ops.checks import check_integer
from glasshouse.tensor import Tensor, asarray, maximum
from glasshouse.tensor.standard import reduce
from glasshouse.text.tokenizers import Tokenizer

__all__ = ["embed_sentences", "mean_pool"]


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
    max_length: int = 256,
) -> np.ndarray:
    """A vector of length 1 for each text, whose products are similarities: `mean_pool` of what an
    encoder such as a BertModel gives. Texts of like lengths go together, in a few sizes.

    Shapes: N texts -> (N, E).
    Raises: DTypeError for what are no texts.
    Source: as mean_pool's.
    """
    check_integer("embed_sentences", "batch_size", batch_size, 1)
    texts = [texts] if isinstance(texts, str) else list(texts)
    order = np.argsort([-len(text) for text in texts], kind="stable")
    vectors: dict[int, np.ndarray] = {}
    is_training = model.training
    model.eval()
    with no_grad():
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size].tolist()
            batch = tokenizer.encode([texts[i] for i in rows], max_length=max_length, multiple=16)
            states = model(*map(asarray, batch))
            states = states[0] if isinstance(states, tuple) else states
            pooled = mean_pool(states, asarray(batch.attention_mask)).numpy()
            vectors |= dict(zip(rows, pooled, strict=True))
    model.train(is_training)
    return np.stack([vectors[i] for i in range(len(texts))]) if texts else np.zeros((0, 0))
