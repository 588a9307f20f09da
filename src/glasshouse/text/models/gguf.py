"""Models from GGUF files: Llama and Mistral, Qwen2, Qwen3, GPT-2, BERT, T5. Weights keep the bytes
of the file, or are unpacked."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from glasshouse import nn
from glasshouse.base.dtype import DTypeLike, as_dtype, float32
from glasshouse.base.errors import CheckpointError, OptionError, suggest
from glasshouse.dispatch.value import adopt, cast
from glasshouse.interop.gguf import PLAIN, GgufFile
from glasshouse.nn.quantized.selection import replace_module
from glasshouse.nn.utils.init import without_values
from glasshouse.ops.packed import FORMATS, unpack
from glasshouse.tensor import empty
from glasshouse.text.models.bert import BertConfig, BertModel
from glasshouse.text.models.gpt2 import GPT2Config, GPT2LMHeadModel
from glasshouse.text.models.llama import LlamaConfig, LlamaForCausalLM
from glasshouse.text.models.pretrained import load_weights
from glasshouse.text.models.t5 import T5Config, T5ForConditionalGeneration

__all__ = ["from_gguf"]

WHERE = "from_gguf"
# Names of parts in a file, and in transformers' models; N is the number of a layer.
LLAMA_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "blk.N.attn_norm": "model.layers.N.input_layernorm",
    "blk.N.attn_q": "model.layers.N.self_attn.q_proj",
    "blk.N.attn_k": "model.layers.N.self_attn.k_proj",
    "blk.N.attn_v": "model.layers.N.self_attn.v_proj",
    "blk.N.attn_output": "model.layers.N.self_attn.o_proj",
    "blk.N.attn_q_norm": "model.layers.N.self_attn.q_norm",
    "blk.N.attn_k_norm": "model.layers.N.self_attn.k_norm",
    "blk.N.ffn_norm": "model.layers.N.post_attention_layernorm",
    "blk.N.ffn_gate": "model.layers.N.mlp.gate_proj",
    "blk.N.ffn_up": "model.layers.N.mlp.up_proj",
    "blk.N.ffn_down": "model.layers.N.mlp.down_proj",
}  # fmt: skip
GPT2_NAMES = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f", "output": "lm_head",
    "blk.N.attn_norm": "transformer.h.N.ln_1", "blk.N.attn_qkv": "transformer.h.N.attn.c_attn",
    "blk.N.attn_output": "transformer.h.N.attn.c_proj", "blk.N.ffn_norm": "transformer.h.N.ln_2",
    "blk.N.ffn_up": "transformer.h.N.mlp.c_fc", "blk.N.ffn_down": "transformer.h.N.mlp.c_proj",
}  # fmt: skip
BERT_NAMES = {
    "token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
    "blk.N.attn_q": "encoder.layer.N.attention.self.query",
    "blk.N.attn_k": "encoder.layer.N.attention.self.key",
    "blk.N.attn_v": "encoder.layer.N.attention.self.value",
    "blk.N.attn_output": "encoder.layer.N.attention.output.dense",
    "blk.N.attn_output_norm": "encoder.layer.N.attention.output.LayerNorm",
    "blk.N.ffn_up": "encoder.layer.N.intermediate.dense",
    "blk.N.ffn_down": "encoder.layer.N.output.dense",
    "blk.N.layer_output_norm": "encoder.layer.N.output.LayerNorm",
}  # fmt: skip
T5_PARTS = {
    "output_norm": "final_layer_norm", "blk.N.attn_norm": "block.N.layer.0.layer_norm",
    "blk.N.attn_rel_b": "block.N.layer.0.SelfAttention.relative_attention_bias",
    "blk.N.ffn_norm": "block.N.layer.LAST.layer_norm",
    "blk.N.ffn_gate": "block.N.layer.LAST.DenseReluDense.wi_0",
    "blk.N.ffn_up": "block.N.layer.LAST.DenseReluDense.wi_1",
    "blk.N.ffn_down": "block.N.layer.LAST.DenseReluDense.wo",
    **{f"blk.N.attn_{x}": f"block.N.layer.0.SelfAttention.{x}" for x in "qkvo"},
}  # fmt: skip
T5_NAMES = {
    "token_embd": "shared", "output": "lm_head",
    "dec.blk.N.cross_attn_norm": "decoder.block.N.layer.1.layer_norm",
    **{f"dec.blk.N.cross_attn_{x}": f"decoder.block.N.layer.1.EncDecAttention.{x}" for x in "qkvo"},
    **{f"{side[:3]}.{old}": f"{side}.{new.replace('LAST', last)}"
       for side, last in (("encoder", "1"), ("decoder", "2")) for old, new in T5_PARTS.items()},
}  # fmt: skip
BLOCK = re.compile(r"(|enc\.|dec\.)blk\.(\d+)\.")
ROPE = "rope_freqs.weight"  # numbers that divide the angles' frequencies
UNREAD = (ROPE, ".cross_attn_rel_b.weight")  # ends of names of tensors that no module has
TABLE = "token_embd.weight"
LLAMA_OPTIONS = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
                 "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
                 "attention.head_count": "num_attention_heads",
                 "attention.head_count_kv": "num_key_value_heads",
                 "attention.key_length": "head_dim", "rope.freq_base": "rope_theta",
                 "attention.layer_norm_rms_epsilon": "rms_norm_eps",
                 "attention.sliding_window": "sliding_window"}  # fmt: skip
GPT2_OPTIONS = {"context_length": "n_positions", "embedding_length": "n_embd",
                "feed_forward_length": "n_inner", "block_count": "n_layer",
                "attention.head_count": "n_head",
                "attention.layer_norm_epsilon": "layer_norm_epsilon"}  # fmt: skip
BERT_OPTIONS = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
                "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
                "attention.head_count": "num_attention_heads",
                "attention.layer_norm_epsilon": "layer_norm_eps"}  # fmt: skip
T5_OPTIONS = {"embedding_length": "d_model", "feed_forward_length": "d_ff",
              "block_count": "num_layers", "attention.head_count": "num_heads",
              "attention.key_length": "d_kv",
              "attention.relative_buckets_count": "relative_attention_num_buckets",
              "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
              "decoder_start_token_id": "decoder_start_token_id"}  # fmt: skip
FIRST_TOKEN = 2  # how vectors of texts are made, by bert.pooling_type
LEAST_OPTIONS = ("context_length", "embedding_length", "block_count", "attention.head_count")


def fault(file: GgufFile, expected: str, got: Any) -> CheckpointError:
    return CheckpointError(WHERE, f"{expected} in {file.path.name}", got, "Get the file again.")


def options_of(file: GgufFile, family: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The options of a family's configuration that the file's metadata name."""
    values = {new: file.metadata.get(f"{family}.{old}") for old, new in names.items()}
    lacking = [n for n in LEAST_OPTIONS if f"{family}.{n}" not in file.metadata]
    if lacking:
        raise fault(file, f"{family}.{lacking[0]}", "no such entry")
    table = file.places.get(TABLE)
    if table is None or len(table.shape) != 2:
        raise fault(file, f"a matrix {TABLE}", None if table is None else table.shape)
    layers = count_layers(file, ("", "enc."))
    count, size = values[names["block_count"]], values[names["embedding_length"]]
    if count != layers or size != table.shape[1]:
        got = f"{count!r:.20} and {size!r:.20}"
        expected = f"{layers} layers of {table.shape[1]} features, as its tensors have,"
        raise fault(file, expected, got)
    values["vocab_size"] = table.shape[0]
    values["tie_word_embeddings"] = "output.weight" not in file.places
    values["eos_token_id"] = file.metadata.get("tokenizer.ggml.eos_token_id")
    return values


def count_layers(file: GgufFile, sides: Collection[str]) -> int:
    matches = map(BLOCK.match, file.places)
    return len({int(match[2]) for match in matches if match and match[1] in sides})


def llama_config(file: GgufFile, family: str) -> LlamaConfig:
    """The configuration of a file of the family "llama", "qwen2" or "qwen3"."""
    values = options_of(file, family, LLAMA_OPTIONS)
    places, length = file.places, values["max_position_embeddings"]
    if family == "llama":
        values["attention_bias"] = "blk.0.attn_q.bias" in places
    if values["sliding_window"] is not None:
        values |= {"use_sliding_window": True, "max_window_layers": 0}
        values["model_type"] = "mistral" if family == "llama" else family
    rope = {n: file.metadata.get(f"{family}.rope.scaling.{n}") for n in ("type", "factor")}
    if rope["type"] not in (None, "none"):
        first = file.metadata.get(f"{family}.rope.scaling.original_context_length", length)
        scaling = {"rope_type": rope["type"], "factor": rope["factor"]}
        values["rope_scaling"] = {**scaling, "original_max_position_embeddings": first}
    elif ROPE in places:
        divisors = file[ROPE].numpy().reshape(-1).tolist()
        values["rope_scaling"] = {
            "rope_type": "longrope", "short_factor": divisors, "long_factor": divisors,
            "original_max_position_embeddings": length, "attention_factor": 1.0,
        }  # fmt: skip
    return LlamaConfig.from_dict({"model_type": family, **values})


def gpt2_config(file: GgufFile, family: str) -> GPT2Config:
    return GPT2Config.from_dict(options_of(file, family, GPT2_OPTIONS))


def bert_config(file: GgufFile, family: str) -> BertConfig:
    values = options_of(file, family, BERT_OPTIONS)
    types = file.places.get("token_types.weight")
    values["type_vocab_size"] = None if types is None or not types.shape else types.shape[0]
    if file.metadata.get(f"{family}.pooling_type") == FIRST_TOKEN:
        values["pooling"] = "first"
    return BertConfig.from_dict(values)


def t5_config(file: GgufFile, family: str) -> T5Config:
    values = options_of(file, family, T5_OPTIONS)
    values["num_decoder_layers"] = count_layers(file, ("dec.",)) or None
    if "enc.blk.0.ffn_gate.weight" in file.places:
        values["feed_forward_proj"] = "gated-gelu"
    values["pad_token_id"] = file.metadata.get("tokenizer.ggml.padding_token_id")
    return T5Config.from_dict(values)


# By general.architecture: configuration, model, names of its parts.
FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, str]]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3"), (llama_config, LlamaForCausalLM, LLAMA_NAMES)),
    "gpt2": (gpt2_config, GPT2LMHeadModel, GPT2_NAMES),
    "bert": (bert_config, partial(BertModel, pooling=False), BERT_NAMES),
    "t5": (t5_config, T5ForConditionalGeneration, T5_NAMES),
}


def from_gguf(file: GgufFile, packed: bool = True, dtype: DTypeLike | None = None) -> Any:
    """The model of a GGUF file, in evaluation mode. Quantized matrices stay `packed` as in the
    file, or are unpacked; unpacked weights have `dtype`, by default float32.

    Raises: OptionError for another family; CheckpointError for a damaged file, or missing, further
        or misshapen weights.
    Source: names of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
    """
    family = file.metadata.get("general.architecture")
    if not isinstance(family, str) or family not in FAMILIES:
        expected = f"an architecture of {', '.join(FAMILIES)}"
        raise OptionError(WHERE, expected, repr(family), suggest(str(family), FAMILIES))
    if file.metadata.get("split.count", 1) not in (0, 1):
        fix = "Join the files with llama-gguf-split --merge."
        raise OptionError(WHERE, "a whole model in one file", "a part of it", fix)
    configure, kind, parts = FAMILIES[family]
    config = configure(file, family)
    dtype = float32 if dtype is None else as_dtype(dtype)
    source = Renaming(file, family, config, parts)
    weights = {name: source.float_value(old, dtype) for old, name in source.names.items()
               if not (packed and source.is_packed(old))}  # fmt: skip
    model = without_values(kind, config)
    if packed:
        pack_layers(model, source, dtype)
    for p in model.parameters():
        p.rebind(empty(p.shape, dtype=p.dtype))
    model.to(dtype=dtype)
    load_weights(model, weights, ("*.packed",))
    return model.eval()


class Renaming:
    """A file's tensors, by the names of a model's."""

    def __init__(self, file: GgufFile, family: str, config: Any, parts: dict[str, str]) -> None:
        self.file = file
        self.is_turned: bool = family == "gpt2"
        self.heads: dict[str, int] = {}  # of those matrices whose rows are in another order
        if family == "llama":
            heads = config.num_attention_heads
            self.heads = {"q_proj": heads, "k_proj": config.num_key_value_heads or heads}
        if not getattr(config, "is_gated", True):  # a T5's
            parts = {old: new.replace("wi_1", "wi") for old, new in parts.items()}
        self.names: dict[str, str] = {
            old: name_of(old, parts) for old in file.places if not old.endswith(UNREAD)
        }

    def is_packed(self, old: str) -> bool:
        place = self.file.places[old]
        return place.kind not in PLAIN and len(place.shape) == 2

    def blocks(self, old: str) -> np.ndarray:
        """A tensor as it lies in the file, with its rows in the model's order."""
        array = self.file.blocks(old)
        layer = self.names[old].rpartition(".")[0].rpartition(".")[2]
        heads = self.heads.get(layer)
        if heads is None:
            return array
        if not array.ndim or array.shape[0] % (2 * heads):
            raise fault(self.file, f"{old!r} with rows for {heads} heads", array.shape)
        # Pairs that are turned together lie side by side there, half a head apart here.
        pairs = array.reshape(heads, -1, 2, *array.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)

    def float_value(self, old: str, dtype: Any) -> Any:
        """A tensor in a float dtype, computed."""
        place, array = self.file.places[old], self.blocks(old)
        if place.kind not in PLAIN:
            array = unpack(adopt(array), FORMATS[place.kind]).numpy()
        is_turned = self.is_turned and old.startswith("blk.") and array.ndim == 2
        return cast(adopt(array.T if is_turned else array), dtype)


def name_of(old: str, parts: dict[str, str]) -> str:
    """The name that a tensor of a file has in the model; its own if there is none."""
    part, _, kind = old.rpartition(".")
    block = BLOCK.match(part)
    if block is not None:
        part = f"{block[1]}blk.N.{part[block.end() :]}"
    if part not in parts:
        return old
    name = parts[part] if block is None else parts[part].replace(".N.", f".{block[2]}.")
    return f"{name}.{kind}"


def pack_layers(model: Any, source: Renaming, dtype: Any) -> None:
    """Put layers with packed weights in the place of those whose weights the file has packed."""
    modules = dict(model.named_modules(remove_duplicate=False))
    layers: dict[str, nn.Module] = {}
    places: dict[nn.Module, list[str]] = {}
    for name, module in modules.items():
        places.setdefault(module, []).append(name)
    for old, name in source.names.items():
        module = modules.get(name.rpartition(".")[0])
        if module is None or not source.is_packed(old):
            continue
        same = [module]
        if old == TABLE and getattr(model.config, "tie_word_embeddings", False):
            same.append(model.lm_head)
        blocks, form = adopt(source.blocks(old)), FORMATS[source.file.places[old].kind]
        for module in same:
            layer = packed_layer(source.file, module, blocks, form.name, old)
            layers |= dict.fromkeys(places[module], layer)
    for name, layer in layers.items():
        replace_module(model, name, layer)
    for module in model.modules():
        if isinstance(module, nn.QuantizedEmbedding):
            module.result_dtype = dtype


def packed_layer(file: GgufFile, module: Any, blocks: Any, form: str, old: str) -> nn.Module:
    """The layer with packed weights in place of `module`, whose sizes they must have."""
    is_table = isinstance(module, nn.Embedding)
    names = ("num_embeddings", "embedding_dim") if is_table else ("out_features", "in_features")
    sizes = tuple(getattr(module, name) for name in names)
    if sizes != file.places[old].shape:
        raise fault(file, f"{old!r} of shape {sizes}", file.places[old].shape)
    if is_table:
        return nn.QuantizedEmbedding(blocks, sizes[1], form)
    return nn.QuantizedLinear(blocks, sizes[1], form, module.bias)
