"""`model.generate` of pretrained families: against transformers' on the same random weights."""

import numpy as np
import pytest
from test_pretrained_models import CASES, GPT2, LLAMA, MARIAN, SMALL, T5

import glasshouse as gh
from glasshouse.speech.whisper import WhisperConfig, WhisperForConditionalGeneration
from glasshouse.text import models

CAUSAL = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "llama": ("LlamaForCausalLM", LLAMA),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": 3}),
    "qwen2_window": CASES["qwen2_window"],
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 16}),
}
PAIRS = {
    "t5_gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu",
                                                "tie_word_embeddings": False,
                                                "decoder_start_token_id": 0}),
    "marian": ("MarianMTModel", MARIAN),
}  # fmt: skip
WHISPER = {
    "vocab_size": 50, "num_mel_bins": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_source_positions": 12, "max_target_positions": 32,
    "pad_token_id": 49, "bos_token_id": 49, "eos_token_id": 0, "decoder_start_token_id": 48,
}  # fmt: skip
NEW = 12


def both(transformers, name, options, tmp_path):
    """(torch, transformers' model, ours) with the same weights, wide enough to differ by token."""
    torch = pytest.importorskip("torch")
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    theirs = kind(kind.config_class(**options)).eval()
    factor = 10.0 if "Marian" in name else 3.0
    with torch.no_grad():
        for p in theirs.parameters():
            if p.requires_grad:
                p.mul_(factor) if p.ndim > 1 else p.add_(torch.randn_like(p) * 0.1)
    theirs.save_pretrained(tmp_path)
    make = models.from_pretrained
    if "Whisper" in name:
        make = WhisperForConditionalGeneration.from_pretrained
    return torch, theirs, make(tmp_path)


def rows_of(sizes=(3, 9, 17), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 48, n).tolist() for n in sizes]


def theirs_of(torch, model, row, **options):
    """The new tokens of transformers' generate."""
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 49, **options}
    result = model.generate(torch.tensor([row]), **settings)[0].tolist()
    return result[1:] if model.config.is_encoder_decoder else result[len(row) :]


def cut(tokens, end):
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


@pytest.mark.parametrize("name", CAUSAL)
def test_greedy_text_is_transformers(transformers, name, tmp_path):
    torch, theirs, ours = both(transformers, *CAUSAL[name], tmp_path)
    rows = rows_of((3, 9, 17) if name != "mistral" else (2, 5, 17))
    expected = [theirs_of(torch, theirs, row, eos_token_id=None) for row in rows]
    assert len({tuple(x) for x in expected}) > 1
    assert ours.generate(rows, NEW, stop=[]) == expected
    assert [ours.generate(row, NEW, stop=[]) for row in rows] == expected


@pytest.mark.parametrize("name", PAIRS)
def test_greedy_text_of_an_encoder_and_decoder_is_transformers(transformers, name, tmp_path):
    torch, theirs, ours = both(transformers, *PAIRS[name], tmp_path)
    rows, end = rows_of(), ours.end_token
    expected = [cut(theirs_of(torch, theirs, row), end) for row in rows]
    assert len({tuple(x) for x in expected}) > 1
    result = ours.generate(rows, NEW)
    if name == "marian":  # transformers ends at the last place by force
        assert [x[: NEW - 1] for x in result] == [x[: NEW - 1] for x in expected]
    else:
        assert result == expected
    assert [ours.generate(row, NEW) for row in rows] == result


def test_greedy_text_of_whisper_is_transformers(transformers, tmp_path):
    args = "WhisperForConditionalGeneration", WHISPER, tmp_path
    torch, theirs, ours = both(transformers, *args)
    features = np.random.default_rng(0).normal(size=(2, 8, 24)).astype(np.float32)
    memory = theirs.model.encoder(torch.tensor(features))
    tokens = torch.full((2, 1), 48)
    for _ in range(NEW):
        scores = theirs(decoder_input_ids=tokens, encoder_outputs=memory).logits
        tokens = torch.cat([tokens, scores[:, -1:].argmax(-1)], dim=1)
    expected = [cut(row, 0) for row in tokens[:, 1:].tolist()]
    assert ours.generate(features, NEW) == expected
    assert ours.generate(features[1], NEW) == expected[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5_gated"])
def test_a_search_with_beams_finds_what_transformers_finds(transformers, name, tmp_path):
    torch, theirs, ours = both(transformers, *{**CAUSAL, **PAIRS}[name], tmp_path)
    rows, end = rows_of(), ours.end_token if name == "t5_gated" else 7
    options = {"num_beams": 3, "eos_token_id": end, "length_penalty": 1.0}
    expected = [cut(theirs_of(torch, theirs, row, **options), end) for row in rows]
    assert ours.generate(rows, NEW, num_beams=3, stop=end) == expected


def small(**options):
    gh.random.seed(0)
    sizes = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 96, **options}
    model = models.LlamaForCausalLM(models.LlamaConfig(**sizes))
    with gh.no_grad():
        for p in model.parameters():
            p.copy_(p * 4.0 if p.ndim > 1 else p)
    return model


@pytest.mark.slow
def test_padding_on_either_side_changes_nothing():
    model, rows = small(), rows_of()
    expected = model.generate(rows, NEW)
    for side in ("left", "right"):
        tokens, mask = np.zeros((2, 3, 17), int)
        for i, row in enumerate(rows):
            part = slice(17 - len(row), 17) if side == "left" else slice(0, len(row))
            tokens[i, part], mask[i, part] = row, 1
        assert model.generate(gh.asarray(tokens), NEW, attention_mask=gh.asarray(mask)) == expected


def test_a_prompt_in_chunks_is_a_prompt_at_once():
    model = small(max_position_embeddings=400)
    row = rows_of((300,))[0]
    with gh.no_grad():
        whole = model.eval()(gh.asarray([row]))[0, -1].numpy()
    writer = gh.nn.Writer(model, 1, 400)
    np.testing.assert_allclose(writer.feed([row])[0], whole, rtol=1e-3, atol=1e-4)
    assert writer.lengths.tolist() == [300]


def test_draws_are_those_of_the_row_alone():
    model, rows = small(), rows_of()
    options = {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.01}
    result = model.generate(rows, NEW, seed=5, **options)
    assert [model.generate(row, NEW, seed=5 + i, **options) for i, row in enumerate(rows)] == result
    assert model.generate(rows, NEW, seed=[5, 6, 7], **options) == result
    assert model.generate(rows, NEW, seed=6, **options) != result


def test_a_model_in_training_mode_writes_as_in_evaluation_mode_and_stays_in_it():
    model = small(attention_dropout=0.5)
    model.layers = None
    model.model.norm.eval()
    expected = model.eval().generate([1, 2], 5)
    model.train()
    model.model.norm.eval()
    assert model.generate([1, 2], 5) == expected
    assert model.training and not model.model.norm.training


@pytest.mark.slow
def test_a_draft_changes_nothing_but_the_number_of_calls(monkeypatch):
    model, rows = small(), rows_of()
    expected, messages = model.generate(rows, 20, stop=[33]), []
    for draft in (model, small(num_hidden_layers=1)):
        result = model.generate(
            rows, 20, stop=[33], draft=draft, stream=lambda *pair: messages.append(pair)
        )
        assert result == expected
    assert len(messages) == 2 * sum(map(len, expected))


@pytest.mark.slow
def test_a_prefix_is_read_once_for_all(tmp_path):
    model, rows = small(), rows_of((4, 9))
    begin = rows_of((20,), seed=1)[0]
    prefix = gh.nn.read_prefix(model, begin)
    gh.save(prefix.state_dict(), tmp_path / "prefix.safetensors")
    again = gh.nn.Prefix.from_state(gh.load(tmp_path / "prefix.safetensors"))
    rows = [[*begin, *row] for row in rows]
    expected = model.generate(rows, NEW)
    for one in (prefix, again):
        assert model.generate(rows, NEW, prefix=one) == expected
    assert model.generate([5, 6], NEW, prefix=prefix) == model.generate([5, 6], NEW)


def test_a_cache_grows_where_the_text_outgrows_it(monkeypatch):
    model, row = small(), rows_of((30,))[0]
    expected = model.generate(row, 60)
    monkeypatch.setattr(gh.nn.generation.writer, "FIRST_CAPACITY", 32)
    assert model.generate(row, 60) == expected


def test_a_text_ends_where_the_context_is_full():
    model = small(max_position_embeddings=32)
    assert len(model.generate(rows_of((30,))[0], 10**9)) == 3
    assert len(model.generate(rows_of((32,))[0])) == 1
    with pytest.raises(gh.OptionError, match="at most 32 tokens; got 33"):
        model.generate(rows_of((33,))[0])


def test_a_token_is_one_program_whatever_the_length():
    from glasshouse.compile.programs import program

    model, row = small(), rows_of((3,))[0]
    for count in (8, 8, 56):  # the prompt's length is learned in the first texts
        model.generate(row, count, stop=[])
    before = set(program.programs)
    for count in (5, 30, 57):
        model.generate(row, count, stop=[])
    assert not set(program.programs) - before
    steps = gh.nn.generation.writer.steps.functions
    assert steps[(1, 1), (1, 1), (64, 64), None, ""].hits >= 50


BAD = {
    "empty": (lambda m: m.generate([]), gh.OptionError, "at least one token"),
    "empty-row": (lambda m: m.generate([[1], []]), gh.OptionError, "at least one token"),
    "unknown": (lambda m: m.generate([1, 50]), gh.OptionError, "tokens from 0 to 49; got 50"),
    "negative": (lambda m: m.generate([-1]), gh.OptionError, "got -1"),
    "text": (lambda m: m.generate("Hi"), gh.DTypeError, "tokens; got str"),
    "floats": (lambda m: m.generate([0.5]), gh.DTypeError, "integers"),
    "mask": (lambda m: m.generate([[1, 2]], attention_mask=[[1]]), gh.ShapeError, "like the"),
    "none-new": (lambda m: m.generate([1], 0), gh.OptionError, "max_new_tokens"),
    "stop-text": (lambda m: m.generate([1], stop=["."]), gh.DTypeError, "stop as tokens"),
    "seeds": (lambda m: m.generate([[1]], seed=[1, 2]), gh.OptionError, "1 seeds; got 2"),
    "top_p": (lambda m: m.generate([1], top_p=2), gh.OptionError, "top_p"),
    "beams": (lambda m: m.generate([1], num_beams=2, temperature=1.0), gh.OptionError, "beams"),
    "draft": (lambda m: m.generate([1], draft=m, temperature=1.0), gh.OptionError, "draft"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_an_error_that_says_so(case):
    call, kind, text = BAD[case]
    with pytest.raises(kind, match=text):
        call(small())


def test_scores_that_are_no_numbers_are_an_error():
    model = small()
    with gh.no_grad():
        model.lm_head.weight.copy_(model.lm_head.weight * float("nan"))
    with pytest.raises(gh.OptionError, match="scores of the next token that are numbers; got nan"):
        model.generate([1, 2])
    with pytest.raises(gh.OptionError, match="got -inf"):
        small().generate([1, 2], allowed=lambda row, new: np.zeros(50, bool))


def test_whisper_configuration_names_its_tokens():
    model = WhisperForConditionalGeneration(WhisperConfig.from_dict(WHISPER))
    assert (model.start_token, model.end_token, model.context) == (48, 0, 32)
