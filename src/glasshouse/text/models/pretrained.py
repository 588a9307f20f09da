"""Models from folders with config.json and safetensors files, and back."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import CheckpointError, OptionError, suggest
from glasshouse.interop import open_safetensors, save_shards
from glasshouse.ops.checks import check_path, check_type
from glasshouse.text.models.bert import BertForMaskedLM, BertForSequenceClassification, BertModel
from glasshouse.text.models.gpt2 import GPT2LMHeadModel, GPT2Model
from glasshouse.text.models.llama import LlamaForCausalLM, LlamaModel
from glasshouse.text.models.marian import MarianMTModel
from glasshouse.text.models.parts import TextModel
from glasshouse.text.models.t5 import T5EncoderModel, T5ForConditionalGeneration

__all__ = ["from_pretrained", "load_weights", "save_pretrained"]

CLASSES = (BertModel, BertForMaskedLM, BertForSequenceClassification, GPT2Model, GPT2LMHeadModel,
           LlamaModel, LlamaForCausalLM, T5EncoderModel, T5ForConditionalGeneration,
           MarianMTModel)  # fmt: skip
ARCHITECTURES: dict[str, type[TextModel]] = {kind.__name__: kind for kind in CLASSES}
for family in ("Mistral", "Qwen2", "Qwen3"):  # Llamas with other options
    ARCHITECTURES[f"{family}Model"] = LlamaModel
    ARCHITECTURES[f"{family}ForCausalLM"] = LlamaForCausalLM
BY_TYPE = {"bert": BertModel, "gpt2": GPT2LMHeadModel, "llama": LlamaForCausalLM,
           "mistral": LlamaForCausalLM, "qwen2": LlamaForCausalLM, "qwen3": LlamaForCausalLM,
           "t5": T5ForConditionalGeneration, "marian": MarianMTModel}  # fmt: skip
# Buffers that older versions of transformers saved, and that are computed from the configuration.
COMPUTED = ("*position_ids", "h.*.attn.bias", "*.h.*.attn.bias", "*attn.masked_bias",
            "*rotary_emb.inv_freq", "*embed_positions.weight", "final_logits_bias")  # fmt: skip
OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # as TensorFlow calls a norm's


def from_pretrained(
    folder: str | Path,
    architecture: str | None = None,
    skip: Sequence[str] = (),
    dtype: DTypeLike | None = None,
    **options: Any,
) -> Any:
    """The model of a folder with config.json and model.safetensors (or its index), as transformers
    saves them, in evaluation mode. The class is `architecture`, or the one in config.json;
    `options` replace values of config.json. `skip` has patterns of the names of weights that may be
    missing, such as a new head's, or left over in the file.

    Raises: CheckpointError for a missing or damaged file, or missing, further or misshapen ones;
        OptionError for another type of model, or options that are not supported.
    Source: transformers, for the files and the names.
    Example:
        >>> import tempfile
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
        >>> model = BertModel(gh.text.models.BertConfig(num_hidden_layers=1, vocab_size=9, **sizes))
        >>> folder = tempfile.mkdtemp()
        >>> save_pretrained(model, folder)
        >>> type(from_pretrained(folder)).__name__
        'BertModel'
    """
    folder = check_path("from_pretrained", folder)
    values = read_config(folder) | options
    kind = class_of(values, architecture)
    config = kind.config_class.from_dict(values)
    weights = open_safetensors(folder)
    model = kind(config)
    load_weights(model, weights, skip)
    model.eval()
    return model if dtype is None else model.to(dtype=dtype)


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        fix = "Pass a folder that save_pretrained wrote."
        raise CheckpointError("from_pretrained", "a readable config.json", error, fix) from error
    except ValueError as error:
        expected = f"{path} to be JSON"
        raise CheckpointError("from_pretrained", expected, error, "Get it again.") from error
    if not isinstance(values, dict):
        expected = f"{path} to hold options by name"
        raise CheckpointError("from_pretrained", expected, f"{values!r:.40}", "Get it again.")
    if isinstance(values.get("id2label"), dict):
        values.setdefault("num_labels", len(values["id2label"]))
    return values


def class_of(values: dict[str, Any], architecture: str | None) -> type[TextModel]:
    """The class that is asked for, or that a config.json names."""
    names = values.get("architectures")
    stored = names[0] if isinstance(names, list) and names else None
    name = architecture or stored
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    kind = values.get("model_type")
    if name is None and kind in BY_TYPE:
        return BY_TYPE[kind]
    if name is None:
        expected, got = f"model_type of {', '.join(BY_TYPE)}", repr(kind)
        raise OptionError("from_pretrained", expected, got, suggest(str(kind), BY_TYPE))
    fix = suggest(str(name), ARCHITECTURES)
    if architecture is None and kind in BY_TYPE:
        fix = f"Name one: architecture={BY_TYPE[kind].__name__!r}."
    raise OptionError("from_pretrained", "an architecture that is known", repr(name), fix)


def load_weights(model: TextModel, weights: Mapping[str, Any], skip: Sequence[str] = ()) -> None:
    """Load weights that have transformers' names: with or without the name of the model below the
    head, tied ones once or several times.

    Raises: CheckpointError for missing, further or misshapen weights, but for names that match a
        pattern of `skip`.
    """
    where = "load_weights"
    weights = dict(check_type(where, weights, Mapping, "tensors by name", "Pass a state_dict."))
    for old, new in OLD_NAMES.items():
        weights = {n.removesuffix(old) + new if n.endswith(old) else n: x
                   for n, x in weights.items()}  # fmt: skip
    tensors = [*model.named_parameters(remove_duplicate=False)]
    tensors += model.named_buffers(remove_duplicate=False)
    own = {name: id(tensor) for name, tensor in tensors}
    weights = si_text(weights, own, model.base_name)
    values = {identity: weights[name] for name, identity in own.items() if name in weights}
    weights |= {name: values[identity] for name, identity in own.items() if identity in values}
    free = (*COMPUTED, *skip)
    missing = [n for n in own if n not in weights and not matches(n, free)]
    further = [n for n in weights if n not in own and not matches(n, free)]
    if missing or further:
        kinds = {"missing": missing, "further": further}
        got = "; ".join(f"{kind} {listed(names)}" for kind, names in kinds.items() if names)
        fix = "Choose the architecture of the file, or name these in skip."
        raise CheckpointError(where, f"the weights of {type(model).__name__}", got, fix)
    model.load_state_dict({n: x for n, x in weights.items() if n in own}, strict=False)


def si_text(weights: dict[str, Any], own: Mapping[str, Any], base: str | None) -> Any:
    """The weights under the model's names: those of a model without a head for one that has one, or
    the other way round."""
    if not any(name in own for name in weights):
        heads = {kind.base_name for kind in CLASSES} - {None}
        for prefix in (f"{name}." for name in heads):
            if any(name.removeprefix(prefix) in own for name in weights):
                return {name.removeprefix(prefix): x for name, x in weights.items()}
    if base is not None and not any(name.startswith(f"{base}.") for name in weights):
        return {n if n in own else f"{base}.{n}": x for n, x in weights.items()}
    return weights


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def listed(names: list[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def save_pretrained(model: TextModel, folder: str | Path, shard_bytes: str = "5GB") -> None:
    """Write config.json and the weights, tied ones once, to a folder: `from_pretrained` and
    transformers read it.

    Raises: DTypeError for another module, CheckpointError if a file cannot be written.
    """
    check_type("save_pretrained", model, TextModel, "a model of text.models", "Use save_shards.")
    folder = check_path("save_pretrained", folder)
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    state = model.state_dict()
    tensors = {n: state[n] for n in names if n in state and not matches(n, COMPUTED)}
    save_shards(folder, tensors, shard_bytes)
    name, kind = type(model).__name__, model.config.model_type
    if kind in ("mistral", "qwen2", "qwen3"):
        name = name.replace("Llama", kind.title())
    values = {n: v for n, v in dataclasses.asdict(model.config).items() if v is not None}
    values["architectures"] = [name]
    (folder / "config.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
