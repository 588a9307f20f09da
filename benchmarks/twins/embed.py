"""The encoder with adapters of `glasshouse train embed` in PyTorch."""

import torch
from torch import nn
from torch.nn.functional import gelu, normalize, scaled_dot_product_attention

loss = nn.functional.cross_entropy


class Adapter(nn.Module):
    def __init__(self, size, rank):
        super().__init__()
        self.A = nn.Parameter(torch.zeros(rank, size))
        self.B = nn.Parameter(torch.zeros(size, rank))


class AdaptedLinear(nn.Linear):
    def __init__(self, size, rank):
        super().__init__(size, size)
        self.lora = Adapter(size, rank)

    def forward(self, x):
        return super().forward(x) + x @ self.lora.A.T @ self.lora.B.T


class Layer(nn.Module):
    def __init__(self, config, rank):
        super().__init__()
        size, inner = config["hidden_size"], config["intermediate_size"]
        eps = config.get("layer_norm_eps", 1e-12)
        own = nn.Module()
        own.query, own.value = AdaptedLinear(size, rank), AdaptedLinear(size, rank)
        own.key = nn.Linear(size, size)
        self.heads = config["num_attention_heads"]
        self.attention = nn.ModuleDict({"self": own, "output": output_of(size, size, eps)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(size, inner)})
        self.output = output_of(inner, size, eps)

    def forward(self, x, mask):
        own, output = self.attention["self"], self.attention["output"]
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (own.query, own.key, own.value)
        )
        y = scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        x = output["LayerNorm"](x + output["dense"](y))
        y = self.output["dense"](gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](x + y)


def output_of(inner, size, eps):
    return nn.ModuleDict({"dense": nn.Linear(inner, size), "LayerNorm": nn.LayerNorm(size, eps)})


class Encoder(nn.Module):
    def __init__(self, config, rank):
        super().__init__()
        size = config["hidden_size"]
        tables = {
            "word_embeddings": config["vocab_size"],
            "position_embeddings": config.get("max_position_embeddings", 512),
            "token_type_embeddings": config.get("type_vocab_size", 2),
        }
        self.embeddings = nn.ModuleDict({n: nn.Embedding(m, size) for n, m in tables.items()})
        self.embeddings["LayerNorm"] = nn.LayerNorm(size, config.get("layer_norm_eps", 1e-12))
        layers = [Layer(config, rank) for _ in range(config["num_hidden_layers"])]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(size, size)})

    def forward(self, tokens, mask):
        tables = self.embeddings
        x = tables["word_embeddings"](tokens) + tables["token_type_embeddings"].weight[0]
        x = tables["LayerNorm"](x + tables["position_embeddings"].weight[: tokens.shape[1]])
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None])
        return x


class SentenceClassifier(nn.Module):
    def __init__(self, config, classes, rank):
        super().__init__()
        self.encoder = Encoder(config, rank)
        for name, p in self.encoder.named_parameters():
            p.requires_grad_("lora" in name)
        self.head = nn.Linear(config["hidden_size"], classes)

    def forward(self, tokens):
        mask = tokens != 0
        states = self.encoder(tokens, mask) * mask[:, :, None]
        return self.head(normalize(states.sum(1) / mask.sum(1, keepdim=True), dim=1)) * 10.0


def make_model(recipe, assets):
    return SentenceClassifier(assets["config"], len(assets["classes"]), recipe.rank)


def make_optimizer(model, recipe):
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=recipe.lr)
