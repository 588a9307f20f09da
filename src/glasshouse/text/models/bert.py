"""BERT, an encoder: alone, with a head that classifies, and with one that fills gaps."""

import dataclasses
from typing import Any, ClassVar

from glasshouse import nn
from glasshouse.tensor import Tensor, arange, tanh, zeros_like
from glasshouse.text.models import parts

__all__ = ["BertConfig", "BertForMaskedLM", "BertForSequenceClassification", "BertModel"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(parts.Configuration):
    """Sizes and options of a BERT; as it stands, BERT base's. A text's vector is the mean of its
    states, or where `pooling` is "first" the first one."""

    model_type: str = "bert"
    required: ClassVar[dict[str, Any]] = {
        "position_embedding_type": "absolute", "is_decoder": False,
    }  # fmt: skip

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    num_labels: int = 2
    pooling: str = "mean"


def output_of(config: BertConfig, inner: int) -> nn.ModuleDict:
    """A linear map and the norm of its sum with the block's input."""
    size = config.hidden_size
    norm = nn.LayerNorm(size, config.layer_norm_eps)
    return nn.ModuleDict({"dense": nn.Linear(inner, size), "LayerNorm": norm})


class BertLayer(nn.Module):
    """norm(x + attention(x)), then norm(x + two linear maps).

    Shapes: (N, L, hidden_size) -> the same.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size, rate = config.hidden_size, config.attention_probs_dropout_prob
        names = ("query", "key", "value")
        attention = parts.Attention(size, config.num_attention_heads, names, dropout=rate)
        self.attention: Any = nn.ModuleDict({"self": attention, "output": output_of(config, size)})
        self.intermediate: nn.ModuleDict
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(size, config.intermediate_size)})
        self.output: nn.ModuleDict = output_of(config, config.intermediate_size)
        self.dropout: nn.Module = nn.Dropout(config.hidden_dropout_prob)
        self.activation: Any = parts.check_activation("BertConfig", config.hidden_act)

    def forward(self, x: Tensor, visible: dict[str, Any]) -> Tensor:
        output = self.attention["output"]
        y = self.dropout(output["dense"](self.attention["self"](x, visible)))
        x = output["LayerNorm"](x + y)
        y = self.activation(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.dropout(self.output["dense"](y)))


class BertModel(parts.TextModel):
    """The encoder; with `pooling` also a vector of each text, made of its first token.

    Shapes: tokens (N, L) and attention_mask (N, L) -> (states (N, L, hidden_size), pooled
        (N, hidden_size) or None).
    Raises: ShapeError for other shapes or too long texts, IndexOutOfRangeError for tokens outside
        the vocabulary.
    Source: Devlin et al. 2018, arXiv:1810.04805; names as in transformers.
    Example:
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
        >>> model = BertModel(BertConfig(vocab_size=20, num_hidden_layers=1, **sizes))
        >>> states, pooled = model(gh.asarray([[1, 2, 3]]))
        >>> states.shape, pooled.shape
        ((1, 3, 8), (1, 8))
    """

    config_class: type[BertConfig] = BertConfig

    def __init__(self, config: BertConfig, pooling: bool = True) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.embeddings: nn.ModuleDict = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, size),
                "position_embeddings": nn.Embedding(config.max_position_embeddings, size),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, size),
                "LayerNorm": nn.LayerNorm(size, config.layer_norm_eps),
            }
        )
        layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))
        self.encoder: Any = nn.ModuleDict({"layer": layers})
        self.pooler: nn.ModuleDict | None
        self.pooler = nn.ModuleDict({"dense": nn.Linear(size, size)}) if pooling else None
        self.dropout: nn.Module = nn.Dropout(config.hidden_dropout_prob)
        parts.draw_weights(self, config.initializer_range)

    def forward(
        self,
        tokens: Tensor,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
    ) -> tuple[Tensor, Tensor | None]:
        tokens = self.checked(tokens, self.config.max_position_embeddings)
        length = tokens.shape[1]
        types = zeros_like(tokens) if token_type_ids is None else token_type_ids
        at = arange(length) if position_ids is None else position_ids
        tables = self.embeddings
        x = tables["word_embeddings"](tokens) + tables["token_type_embeddings"](types)
        x = self.dropout(tables["LayerNorm"](x + tables["position_embeddings"](at)))
        visible = parts.sight(attention_mask, length, length)
        for layer in self.encoder["layer"]:
            x = layer(x, visible)
        return x, None if self.pooler is None else tanh(self.pooler["dense"](x[:, 0]))


class BertForSequenceClassification(parts.TextModel):
    """BERT and a linear map of its pooled vector: scores of each text for `num_labels` classes.

    Shapes: tokens (N, L) -> (N, num_labels).
    Source: as BertModel's.
    """

    config_class: type[BertConfig] = BertConfig
    base_name: str | None = "bert"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert: BertModel = BertModel(config)
        own, shared = config.classifier_dropout, config.hidden_dropout_prob
        self.dropout: nn.Module = nn.Dropout(shared if own is None else own)
        self.classifier: nn.Linear = nn.Linear(config.hidden_size, config.num_labels)
        parts.draw_weights(self.classifier, config.initializer_range)

    def forward(
        self, tokens: Tensor, attention_mask: Any = None, token_type_ids: Any = None
    ) -> Tensor:
        _, pooled = self.bert(tokens, attention_mask, token_type_ids)
        return self.classifier(self.dropout(pooled))


class BertForMaskedLM(parts.TextModel):
    """BERT and scores of the vocabulary at each place, with the table of the tokens as weights.

    Shapes: tokens (N, L) -> (N, L, vocab_size).
    Source: as BertModel's.
    """

    config_class: type[BertConfig] = BertConfig
    base_name: str | None = "bert"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.bert: BertModel = BertModel(config, pooling=False)
        decoder = nn.Linear(size, config.vocab_size)
        parts.draw_weights(decoder, config.initializer_range)
        decoder.weight = self.bert.embeddings["word_embeddings"].weight
        predictions = nn.ModuleDict({"transform": output_of(config, size), "decoder": decoder})
        parts.draw_weights(predictions["transform"], config.initializer_range)
        predictions.register_parameter("bias", decoder.bias)
        self.cls: Any = nn.ModuleDict({"predictions": predictions})
        self.activation: Any = parts.check_activation("BertConfig", config.hidden_act)

    def forward(
        self, tokens: Tensor, attention_mask: Any = None, token_type_ids: Any = None
    ) -> Tensor:
        x, _ = self.bert(tokens, attention_mask, token_type_ids)
        head = self.cls["predictions"]
        x = self.activation(head["transform"]["dense"](x))
        return head["decoder"](head["transform"]["LayerNorm"](x))
