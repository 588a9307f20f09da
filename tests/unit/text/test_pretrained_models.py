"""Models with transformers' names: their weights load here, and give the same outputs."""

import dataclasses
import json
import math

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, Explained, OptionError, ShapeError
from glasshouse.text import models

SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 48, "max_position_embeddings": 32}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {"vocab_size": 50, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4}
MARIAN = {"vocab_size": 50, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
          "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
          "decoder_ffn_dim": 48, "max_position_embeddings": 32, "pad_token_id": 49,
          "decoder_start_token_id": 49, "eos_token_id": 0, "forced_eos_token_id": 0}  # fmt: skip
LLAMA = {**SMALL, "num_key_value_heads": 2}
ROPES = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "longrope": {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
                 "original_max_position_embeddings": 8},
}  # fmt: skip


def rope(kind):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **ROPES[kind]}}


# (name of the class, options of its configuration); a name for each in the tests' output
CASES = {
    "bert": ("BertModel", {**SMALL, **NO_DROPOUT}),
    "bert_relu": ("BertModel", {**SMALL, "hidden_act": "relu"}),
    "bert_masked": ("BertForMaskedLM", SMALL),
    "bert_classes": ("BertForSequenceClassification", {**SMALL, "num_labels": 3}),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2_states": ("GPT2Model", {**GPT2, "n_inner": 40}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama_states": ("LlamaModel", {**LLAMA, "head_dim": 10}),
    "llama_tied": ("LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True,
                                        "attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": 3}),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2_window": ("Qwen2ForCausalLM", {**LLAMA, "use_sliding_window": True,
                                          "sliding_window": 3, "max_window_layers": 1}),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 16}),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu",
                                                "tie_word_embeddings": False}),
    "t5_encoder": ("T5EncoderModel", T5),
    "marian": ("MarianMTModel", MARIAN),
    "marian_swish": ("MarianMTModel", {**MARIAN, "activation_function": "swish",
                                       "scale_embedding": True}),
    **{f"rope_{kind}": ("LlamaForCausalLM", {**LLAMA, **rope(kind)}) for kind in ROPES},
}  # fmt: skip
CAUSAL = ["gpt2", "llama", "mistral", "qwen2_window", "qwen3", "rope_yarn"]
PAIRS = ["t5", "t5_gated", "marian"]


def theirs_of(transformers, name):
    """A model of transformers with random weights."""
    torch = pytest.importorskip("torch")
    kind, options = CASES[name]
    cls = getattr(transformers, kind)
    torch.manual_seed(0)
    model = cls(cls.config_class(**options)).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad and p.ndim == 1:  # biases and norms at 0 and 1 would hide mistakes
                p.add_(torch.randn_like(p) * 0.1)
            elif p.requires_grad:
                p.mul_(3.0)
    return torch, model


def inputs(length=9, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, 48, (3, length))
    mask = np.ones_like(tokens)
    mask[1, length - 3 :] = 0
    mask[2, length - 1 :] = 0
    return tokens, mask


def both_outputs(name, theirs, ours, torch):
    """(transformers' output, ours, mask of the places that count)."""
    tokens, mask = inputs()
    options = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(mask)}
    args = [gh.asarray(tokens)]
    places = mask
    if name in PAIRS or name == "marian_swish":
        places = np.ones((3, 5), int)
        decoder = np.random.default_rng(1).integers(1, 48, (3, 5))
        options["decoder_input_ids"] = torch.tensor(decoder)
        args.append(gh.asarray(decoder))
    with torch.no_grad():
        expected = theirs(**options)
    y = ours(*args, attention_mask=gh.asarray(mask))
    y = y[0] if isinstance(y, tuple) else y
    expected = expected.logits if hasattr(expected, "logits") else expected.last_hidden_state
    return expected.numpy(), y.numpy(), places


@pytest.mark.parametrize("name", CASES)
def test_weights_of_transformers_load_and_give_the_same_outputs(transformers, name, tmp_path):
    torch, theirs = theirs_of(transformers, name)
    theirs.save_pretrained(tmp_path)
    ours = models.from_pretrained(tmp_path)
    expected, y, places = both_outputs(name, theirs, ours, torch)
    assert y.shape == expected.shape
    if y.ndim == 3:
        expected, y = expected[places == 1], y[places == 1]
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["bert_masked", "gpt2", "qwen3", "t5", "marian"])
def test_state_dicts_of_transformers_load_by_their_names(transformers, name):
    torch, theirs = theirs_of(transformers, name)
    kind, options = CASES[name]
    config = {"model_type": theirs.config.model_type, **options}
    ours = models.pretrained.class_of(config, kind)
    ours = ours(ours.config_class.from_dict(config)).eval()
    state = {n: x.numpy() for n, x in theirs.state_dict().items()}
    assert ours.load_state_dict(state).unexpected_keys == []
    expected, y, places = both_outputs(name, theirs, ours, torch)
    np.testing.assert_allclose(y[places == 1], expected[places == 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["bert_masked", "gpt2", "qwen2", "t5", "marian"])
def test_transformers_reads_what_we_save(transformers, name, tmp_path):
    torch, theirs = theirs_of(transformers, name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = models.from_pretrained(tmp_path / "theirs")
    models.save_pretrained(ours, tmp_path / "ours", shard_bytes="20KB")
    again = type(theirs).from_pretrained(tmp_path / "ours").eval()
    for key, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    back = models.from_pretrained(tmp_path / "ours")
    expected, y, places = both_outputs(name, again, back, torch)
    np.testing.assert_allclose(y[places == 1], expected[places == 1], rtol=1e-4, atol=1e-4)


def small_model(name):
    kind, options = CASES[name]
    config = {"model_type": name.partition("_")[0].replace("rope", "llama"), **options}
    kind = models.pretrained.class_of(config, kind)
    gh.random.seed(0)
    return kind(kind.config_class.from_dict(config)).eval()


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("name", CAUSAL)
def test_tokens_one_by_one_with_a_cache_give_what_all_at_once_give(name, growing):
    model = small_model(name)
    tokens = gh.asarray(inputs()[0])
    whole = model(tokens).numpy()
    cache = model.make_cache(3, 12)
    if growing:
        cache = gh.nn.ModuleList(gh.nn.GrowingKVCache() for _ in cache)
    parts = [model(tokens[:, :4], cache=cache)]
    parts += [model(tokens[:, i : i + 1], cache=cache) for i in range(4, 9)]
    y = np.concatenate([part.numpy() for part in parts], axis=1)
    np.testing.assert_allclose(y, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PAIRS)
def test_a_decoder_with_a_cache_and_a_memory_gives_what_all_at_once_give(name):
    model = small_model(name)
    tokens, mask = map(gh.asarray, inputs())
    decoder = gh.asarray(inputs(6, seed=2)[0])
    whole = model(tokens, decoder, mask).numpy()
    cache, memory = model.make_cache(3, 8), model.memory_of(model.encode(tokens, mask))
    steps = [
        model(None, decoder[:, i : i + 1], mask, cache=cache, memory=memory).numpy()
        for i in range(6)
    ]
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_texts_of_unequal_lengths_go_into_one_cache():
    """Padding on the left, with positions that begin after it."""
    model = small_model("llama")
    short, long = gh.asarray([[7, 8, 9]]), gh.asarray([[3, 4, 5, 6, 7]])
    batch = gh.asarray([[0, 0, 7, 8, 9], [3, 4, 5, 6, 7]])
    mask = gh.asarray([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    at = gh.asarray([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    cache = model.make_cache(2, 8)
    y = model(batch, mask, at, cache).numpy()
    following = model(gh.asarray([[5], [5]]), mask, gh.asarray([[3], [5]]), cache).numpy()
    for row, alone in enumerate((short, long)):
        expected = model(gh.concat([alone, gh.asarray([[5]])], axis=1)).numpy()[0]
        np.testing.assert_allclose(y[row, -1], expected[-2], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(following[row, 0], expected[-1], rtol=1e-4, atol=1e-5)


def test_weights_of_an_attention_sum_to_1_and_leave_padding_out():
    model = small_model("marian")
    tokens, mask = map(gh.asarray, inputs())
    memory = model.encode(tokens, mask)
    attention = model.model.decoder.layers[0].encoder_attn
    visible = models.parts.sight(mask, 2, 9)
    weights = attention.weights(gh.ones((3, 2, 32)), visible, memory).numpy()
    assert weights.shape == (3, 4, 2, 9)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert weights[1, :, :, 6:].max() == 0


LAYERS = [
    "*layer*",
    "classifier",
    "*.h.*",
    "*.block.*",
]  # not the table, which may be the head's too


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_classes", "gpt2", "qwen3", "t5", "marian"])
def test_low_rank_adapters_train_and_load(name):
    model = small_model(name)
    tokens = gh.asarray(inputs()[0])
    args = (tokens, tokens[:, :4]) if name in PAIRS else (tokens,)
    targets = gh.asarray([0, 1, 2]) if name == "bert_classes" else args[-1]

    def loss():
        y = model(*args)
        return gh.nn.functional.cross_entropy(y.reshape((-1, y.shape[-1])), targets.reshape(-1))

    before = model.state_dict()
    gh.nn.lora.attach(model, LAYERS, rank=4)
    optimizer = gh.optim.Adam(gh.nn.lora.parameters(model), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.95 * losses[0]
    adapters, after = gh.nn.lora.state_dict(model), model(*args).numpy()
    assert all(np.array_equal(before[n].numpy(), model.state_dict()[n].numpy()) for n in before)
    again = small_model(name)
    again.load_state_dict(before)
    gh.nn.lora.attach(again, LAYERS, rank=4)
    gh.nn.lora.load_state_dict(again, adapters)
    np.testing.assert_allclose(again(*args).numpy(), after, rtol=1e-5, atol=1e-6)
    gh.nn.lora.merge(again)
    np.testing.assert_allclose(again(*args).numpy(), after, rtol=1e-4, atol=1e-4)


def saved(tmp_path, **changes):
    """A folder with a small BERT, whose config.json is changed."""
    models.save_pretrained(small_model("bert"), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"architectures": ["BortModel"]}, OptionError, "architecture='BertModel'"),
        ({"architectures": None, "model_type": "gtp2"}, OptionError, "Did you mean 'gpt2'?"),
        ({"architectures": None, "model_type": None}, OptionError, "model_type of bert"),
        ({"position_embedding_type": "relative_key"}, OptionError, "='absolute'"),
        ({"hidden_act": "gelo"}, OptionError, "Did you mean 'gelu'?"),
        ({"hidden_size": "32"}, OptionError, "hidden_size of type int"),
        ({"num_hidden_layers": 0}, OptionError, "num_hidden_layers to be at least 1"),
        ({"num_attention_heads": 5}, OptionError, "heads"),
        ({"num_hidden_layers": 3}, CheckpointError, "missing encoder.layer.2"),
        ({"num_hidden_layers": 1}, CheckpointError, "further encoder.layer.1"),
        ({"vocab_size": 51}, CheckpointError, "(50, 32), not (51, 32)"),
    ],
)
def test_folders_that_do_not_fit(tmp_path, changes, error, text):
    with pytest.raises(error) as caught:
        models.from_pretrained(saved(tmp_path, **changes))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("config.json", None, "a readable config.json"),
        ("config.json", "{", "to be JSON"),
        ("config.json", "[]", "to hold options by name"),
        ("model.safetensors", None, "readable"),
        ("model.safetensors", "no tensors", "whole safetensors"),
    ],
)
def test_files_that_are_missing_or_damaged(tmp_path, name, content, text):
    path = saved(tmp_path) / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CheckpointError) as caught:
        models.from_pretrained(tmp_path)
    assert text in str(caught.value)


def test_a_new_head_is_named_in_skip(tmp_path):
    folder = saved(tmp_path)
    kind = "BertForSequenceClassification"
    with pytest.raises(CheckpointError, match="missing classifier.weight"):
        models.from_pretrained(folder, kind)
    model = models.from_pretrained(folder, kind, skip=["classifier.*"], num_labels=5)
    assert model(gh.asarray([[1, 2]])).shape == (1, 5)
    models.save_pretrained(model, folder)
    alone = models.from_pretrained(folder, "BertModel", skip=["classifier.*"], dtype="bfloat16")
    assert alone.embeddings["word_embeddings"].weight.dtype == gh.bfloat16


def test_old_names_of_norms_and_buffers_are_understood():
    model = small_model("bert")
    state = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): x
        for n, x in model.state_dict().items()
    }
    state["embeddings.position_ids"] = gh.arange(32)
    again = small_model("bert")
    models.load_weights(again, state)
    tokens = gh.asarray(inputs()[0])
    np.testing.assert_allclose(again(tokens)[0].numpy(), model(tokens)[0].numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: small_model("gpt2")(gh.zeros((1, 33), dtype="int64")), ShapeError, "at most 32"),
        (lambda: small_model("gpt2")(gh.asarray([1, 2])), ShapeError, "tokens (N, L)"),
        (lambda: small_model("t5")(gh.asarray([[1, 2]])), OptionError, "tokens of the decoder"),
        (
            lambda: small_model("llama")(gh.asarray([[1, 2]]), gh.ones((1, 3))),
            ShapeError,
            "L at most 2",
        ),
        (
            lambda: models.LlamaConfig(rope_scaling={"type": "yarn", "factor": 2.0}),
            OptionError,
            "original_max_position_embeddings beside rope_type 'yarn'",
        ),
        (
            lambda: models.LlamaConfig(rope_parameters={"rope_type": "yarm"}),
            OptionError,
            "Did you mean 'yarn'?",
        ),
        (lambda: models.LlamaConfig(model_type="lama"), OptionError, "Did you mean 'llama'?"),
        (lambda: models.BertModel(models.GPT2Config()), TypeError, "configuration"),
    ],
)
def test_what_models_refuse(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.quick
def test_a_decoder_of_its_own_family_sees_nothing_after():
    model = small_model("llama")
    a, b = (model(gh.asarray([[1, 2, last]])).numpy()[0] for last in (3, 4))
    assert abs(a[:2] - b[:2]).max() < 1e-6
    assert abs(a[2] - b[2]).max() > 1e-6


ONE_LAYER = dict.fromkeys(
    ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"), 1
)
ODD = [0, -1, 1.5, "x", [], {}, True, [1], {"rope_type": "yarn", "factor": "x"}, 2, 3, math.nan,
       {"rope_theta": "x"}, {"rope_theta": -1.0}, {"type": []}]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", models.pretrained.CLASSES, ids=lambda kind: kind.__name__)
def test_any_value_of_any_option_makes_a_model_or_a_clear_error(kind):
    tokens = [gh.zeros((1, 3), dtype="int64")] * (1 + hasattr(kind, "memory_of"))
    with gh.backends.use("stub"):
        for field in dataclasses.fields(kind.config_class):
            for value in ODD:
                try:
                    config = kind.config_class.from_dict({**ONE_LAYER, field.name: value})
                    kind(config)(*tokens)
                except Explained as error:
                    assert "expected" in str(error)
