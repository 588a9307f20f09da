"""GGUF files of BERT and T5: states, scores and tokens as transformers and sentencepiece give."""

import contextlib
import functools
from functools import partial

import numpy as np
import pytest
from tests.unit.text import gguf_files as files

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.text import SentenceEncoder, Tokenizer, embed_sentences, make_server, models
from glasshouse.text.vocabularies import tokenizer_from_metadata

TEXTS = [
    "A low tower, the lowest of them.",
    "Ünïcödé — 東京 ﬁn  ①",
    "  two   spaces ",
    "",
    "[MASK]",
]
rng = np.random.default_rng(0)


def si_text(prefix, values):
    return {f"{prefix}.{name}": x for name, x in values.items()}


def plain_tensors(names, state):
    return {name: files.plain(x) for name, x in files.renamed(names, state).items()}


# -- BERT --------------------------------------------------------------------------------------

BERT_SIZES = {"block_count": 2, "context_length": 64, "embedding_length": 64,
              "feed_forward_length": 96, "attention.head_count": 4, "attention.causal": False,
              "attention.layer_norm_epsilon": 1e-12}  # fmt: skip


@functools.cache
def trained():
    """A tokenizer: another one of the same texts may have other numbers."""
    pytest.importorskip("tokenizers")
    return Tokenizer.train(TEXTS * 2, 200, "wordpiece", lowercase=True)


def word_vocabulary(**more):
    """The metadata of a tokenizer of parts of words, where a mark begins words; the tokenizer."""
    tokenizer = trained()
    tokens = sorted(tokenizer.backend.get_vocab(), key=tokenizer.backend.token_to_id)
    is_mark = [token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") for token in tokens]
    stored = [t if mark else t[2:] if t.startswith("##") else f"▁{t}"
              for t, mark in zip(tokens, is_mark, strict=True)]  # fmt: skip
    values = {"model": "bert", "tokens": stored, "token_type": [3 if m else 1 for m in is_mark],
              "cls_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1,
              "padding_token_id": 0, **more}  # fmt: skip
    return si_text("tokenizer.ggml", values), tokenizer


def bert_file(path, state, **more):
    vocabulary, tokenizer = word_vocabulary()
    metadata = {"general.architecture": "bert", **si_text("bert", BERT_SIZES | more)}
    tensors = plain_tensors(models.gguf.BERT_NAMES, state)
    path.write_bytes(files.gguf(metadata | vocabulary, tensors))
    return tokenizer


def bert_state(seed=0):
    gh.random.seed(seed)
    config = models.BertConfig(vocab_size=len(word_vocabulary()[1]), hidden_size=64,
                               num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                               max_position_embeddings=64)  # fmt: skip
    return models.BertModel(config).state_dict()


@pytest.fixture
def bert(tmp_path):
    tokenizer = bert_file(tmp_path / "bert.gguf", bert_state())
    return tmp_path / "bert.gguf", tokenizer


def test_a_file_of_a_bert_gives_the_states_and_vectors_of_transformers(tmp_path, transformers):
    import torch

    tokenizer = word_vocabulary()[1]
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.BertModel(config).eval()
    bert_file(tmp_path / "bert.gguf", theirs.state_dict())
    ours = gh.load(tmp_path / "bert.gguf")
    batch = tokenizer.encode(TEXTS)
    mask = torch.from_numpy(batch.attention_mask)
    with torch.no_grad():
        states = theirs(torch.from_numpy(batch.tokens), attention_mask=mask).last_hidden_state
    result = ours(*map(gh.asarray, batch))[0].numpy()
    rows = batch.attention_mask != 0
    np.testing.assert_allclose(result[rows], states.numpy()[rows], atol=1e-5)
    mean = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    expected = torch.nn.functional.normalize(mean, dim=1).numpy()
    np.testing.assert_allclose(embed_sentences(ours, ours.tokenizer, TEXTS), expected, atol=1e-5)
    assert ours.config.layer_norm_eps == pytest.approx(1e-12)


def test_a_server_gives_the_vectors_of_a_file(bert):
    testclient = pytest.importorskip("starlette.testclient")
    model = gh.load(bert[0])
    encoder = SentenceEncoder(model, model.tokenizer)
    with testclient.TestClient(make_server(encoder, "bert")) as client:
        answer = client.post("/v1/embeddings", json={"model": "bert", "input": TEXTS[:3]}).json()
    results = [item["embedding"] for item in answer["data"]]
    np.testing.assert_allclose(results, embed_sentences(model, bert[1], TEXTS[:3]), atol=1e-6)


def test_a_file_says_that_the_first_state_is_a_texts_vector(tmp_path):
    bert_file(tmp_path / "bert.gguf", bert_state(), pooling_type=2)
    model = gh.load(tmp_path / "bert.gguf")
    state = model(gh.asarray(model.tokenizer.encode(TEXTS[0]).tokens))[0].numpy()[0, 0]
    result = embed_sentences(model, model.tokenizer, TEXTS[:2])
    np.testing.assert_allclose(result[0], state / np.linalg.norm(state), atol=1e-5)
    models.save_pretrained(model, tmp_path)
    assert models.from_pretrained(tmp_path, skip=["pooler.*"]).config.pooling == "first"


def test_packed_matrices_of_a_bert_give_the_same_states(tmp_path):
    draws = np.random.default_rng(1)
    metadata = {"general.architecture": "bert", **si_text("bert", BERT_SIZES)}
    tensors = plain_tensors(models.gguf.BERT_NAMES, bert_state())
    for name, (_, shape, _) in tensors.items():
        if len(shape) == 2 and not name.startswith(("position", "token_types")):
            tensors[name] = files.random_blocks(draws, "Q8_0", shape)
    (tmp_path / "bert.gguf").write_bytes(files.gguf(metadata, tensors))
    packed, unpacked = (gh.load(tmp_path / "bert.gguf", packed=is_packed) for is_packed in (1, 0))
    assert isinstance(packed.embeddings["word_embeddings"], nn.QuantizedEmbedding)
    tokens = gh.asarray([[2, 9, 8, 3]])
    np.testing.assert_allclose(packed(tokens)[0].numpy(), unpacked(tokens)[0].numpy(), atol=1e-4)


def test_words_are_cut_as_the_tokenizer_cut_them(bert):
    loaded = gh.load(bert[0]).tokenizer
    ours, theirs = loaded.encode(TEXTS), bert[1].encode(TEXTS)
    for result, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(result, expected)
    pairs = [tokenizer.encode(["low"], ["tower"]) for tokenizer in (loaded, bert[1])]
    np.testing.assert_array_equal(*(np.stack(pair) for pair in pairs))
    assert loaded.decode(ours.tokens) == bert[1].decode(theirs.tokens)
    assert (loaded.pad_id, loaded.bos_id) == (0, 2)


def test_capitals_stay_where_a_file_says_so():
    cased = tokenizer_from_metadata(word_vocabulary(**{"normalizer.lowercase": False})[0])
    usual = tokenizer_from_metadata(word_vocabulary()[0])
    tokens = [tokenizer.encode("LOW").tokens.tolist()[0] for tokenizer in (cased, usual)]
    assert tokens[0] == [2, 1, 3] != tokens[1]


# -- T5 ----------------------------------------------------------------------------------------

T5_SIZES = {"block_count": 2, "context_length": 512, "embedding_length": 32,
            "feed_forward_length": 64, "attention.head_count": 4, "attention.key_length": 8,
            "attention.relative_buckets_count": 32, "attention.layer_norm_epsilon": 1e-6,
            "attention.layer_norm_rms_epsilon": 1e-6, "decoder_start_token_id": 0}  # fmt: skip


def t5_file(path, state, is_gated, vocabulary=None, **more):
    names = models.gguf.T5_NAMES
    if not is_gated:
        names = {old: new.replace("wi_1", "wi") for old, new in names.items()}
    metadata = {"general.architecture": "t5", **si_text("t5", T5_SIZES | more)}
    tensors = plain_tensors(names, state)
    path.write_bytes(files.gguf(metadata | (vocabulary or {}), tensors))


@pytest.mark.parametrize("is_gated", [False, True])
def test_a_file_of_a_t5_gives_the_scores_of_transformers(tmp_path, transformers, is_gated):
    import torch

    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=1, num_heads=4,
        feed_forward_proj="gated-gelu" if is_gated else "relu", tie_word_embeddings=not is_gated,
        decoder_start_token_id=0,
    )  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    state = theirs.state_dict()
    if not is_gated:
        del state["lm_head.weight"]
    t5_file(tmp_path / "t5.gguf", state, is_gated, decoder_block_count=1)
    ours = gh.load(tmp_path / "t5.gguf")
    tokens, goal = rng.integers(3, 40, (2, 7)), rng.integers(3, 40, (2, 5))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens), decoder_input_ids=torch.from_numpy(goal)).logits
        text = theirs.generate(torch.from_numpy(tokens[:1]), max_new_tokens=8, do_sample=False)
    result = ours(gh.asarray(tokens), gh.asarray(goal)).numpy()
    np.testing.assert_allclose(result, expected.numpy(), atol=2e-5 * expected.abs().max().item())
    assert ours.generate(tokens[0].tolist(), 8, stop=[1])[:4] == text[0, 1:5].tolist()
    assert (ours.config.num_decoder_layers, ours.tokenizer) == (1, None)


@pytest.mark.parametrize("is_tied", [False, True])
def test_packed_matrices_of_a_t5_give_the_same_scores(tmp_path, is_tied):
    draws = np.random.default_rng(1)
    config = models.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                             tie_word_embeddings=is_tied)  # fmt: skip
    state = models.T5ForConditionalGeneration(config).state_dict()
    names = {old: new.replace("wi_1", "wi") for old, new in models.gguf.T5_NAMES.items()}
    tensors = plain_tensors(names, {n: x for n, x in state.items() if n != "lm_head.weight"})
    for name in ("output.weight",) * (not is_tied) + tuple(tensors):
        shape = tensors.get(name, tensors["token_embd.weight"])[1]
        if len(shape) == 2 and "rel_b" not in name:
            tensors[name] = files.random_blocks(draws, "Q8_0", shape)
    tensors["dec.blk.0.cross_attn_rel_b.weight"] = files.plain(np.ones((32, 4)))  # of old files
    metadata = {"general.architecture": "t5", **si_text("t5", T5_SIZES)}
    (tmp_path / "t5.gguf").write_bytes(files.gguf(metadata, tensors))
    packed, unpacked = (gh.load(tmp_path / "t5.gguf", packed=is_packed) for is_packed in (1, 0))
    assert packed.encoder.embed_tokens is packed.decoder.embed_tokens is packed.shared
    tokens, goal = gh.asarray([[4, 5, 6]]), gh.asarray([[0, 7]])
    expected = unpacked(tokens, goal).numpy()
    close = {"atol": 1e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(packed(tokens, goal).numpy(), expected, **close)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory):
    """A model of sentencepiece with a table of characters, and its vocabulary as a file has it."""
    library = pytest.importorskip("sentencepiece")
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto()
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "texts.txt").write_text("\n".join([*TEXTS[:3], "the lower tower", "lowest"] * 20))
    library.SentencePieceTrainer.train(
        input=str(folder / "texts.txt"), model_prefix=str(folder / "m"), vocab_size=36,
        model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    proto.ParseFromString((folder / "m.model").read_bytes())
    values = {
        "model": "t5", "pre": "default", "tokens": [piece.piece for piece in proto.pieces],
        "scores": [piece.score for piece in proto.pieces], "add_space_prefix": True,
        "token_type": [piece.type for piece in proto.pieces], "remove_extra_whitespaces": True,
        "precompiled_charsmap": list(proto.normalizer_spec.precompiled_charsmap),
        "eos_token_id": 1, "unknown_token_id": 2, "padding_token_id": 0,
    }  # fmt: skip
    return library.SentencePieceProcessor(str(folder / "m.model")), values


def test_pieces_of_a_t5_are_those_of_sentencepiece(tmp_path, sentencepiece):
    theirs, values = sentencepiece
    config = models.T5Config(vocab_size=36, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    state = models.T5ForConditionalGeneration(config).state_dict()
    del state["lm_head.weight"]
    t5_file(tmp_path / "t5.gguf", state, False, si_text("tokenizer.ggml", values))
    model = gh.load(tmp_path / "t5.gguf")
    for text in TEXTS:
        tokens = model.tokenizer.encode(text).tokens
        assert tokens[0].tolist() == [*theirs.encode(text), 1]
        assert model.tokenizer.decode(tokens)[0] == theirs.decode(theirs.encode(text)).replace(
            " ⁇ ", ""
        )
    assert (model.end_token, model.tokenizer.eos_id, model.tokenizer.pad_id) == (1, 1, 0)


def test_damaged_tables_of_characters_are_refused_or_read(sentencepiece):
    values = sentencepiece[1]
    table, draws = np.array(values["precompiled_charsmap"]), np.random.default_rng(3)
    for i in range(40):
        bad = table.copy()[: len(table) if i % 4 else draws.integers(1, len(table))]
        bad[draws.integers(0, min(len(bad), len(table) // 2), i % 8)] = draws.integers(0, 256)
        more = values | {"precompiled_charsmap": bad.tolist()}
        with contextlib.suppress(CheckpointError):
            tokenizer_from_metadata(si_text("tokenizer.ggml", more)).encode(TEXTS)


def test_the_likeliest_pieces_are_taken():
    pytest.importorskip("tokenizers")
    tokens = ["<pad>", "</s>", "<unk>", "▁", "l", "o", "w", "lo", "ow", "▁l"]
    scores = [0.0, 0.0, 0.0, -4.0, -5.0, -5.0, -5.0, -3.0, -2.0, -2.5]
    values = {"model": "t5", "tokens": tokens, "scores": scores, "token_type": [3, 3, 2] + [1] * 7}
    loaded = tokenizer_from_metadata(si_text("tokenizer.ggml", values))
    result = loaded.encode(["low lé", "lo"])
    assert [tokens[i] for i in result.tokens[0]] == ["▁l", "ow", "▁l", "<unk>", "</s>"]
    assert loaded.decode(result.tokens)[1] == "lo"


# -- bad input ---------------------------------------------------------------------------------

VOCABULARIES = {
    "no number of a mark": {"cls_token_id": 10**6},
    "twice the same token": {"tokens": ["a", "##b", "b"], "token_type": [3, 3, 1]},
    "fewer kinds than tokens": {"token_type": [1, 2]},
}


@pytest.mark.parametrize("case", VOCABULARIES)
def test_damaged_vocabularies_of_words_are_refused(case):
    values = word_vocabulary(**VOCABULARIES[case])[0]
    with pytest.raises(CheckpointError):
        tokenizer_from_metadata(values)


@pytest.mark.parametrize("kind", ["rwkv", ["bert"], None])
def test_other_tokenizers_are_refused(kind):
    with pytest.raises(OptionError, match="llama, t5, bert"):
        tokenizer_from_metadata({"tokenizer.ggml.model": kind})


def test_as_many_layers_as_there_are_tensors(tmp_path):
    state = bert_state()
    loads = partial(gh.load, tmp_path / "bert.gguf")
    bert_file(tmp_path / "bert.gguf", state, block_count=10**9)
    with pytest.raises(CheckpointError, match="2 layers"):
        loads()
    bert_file(tmp_path / "bert.gguf", {n: x for n, x in state.items() if ".query." not in n})
    with pytest.raises(CheckpointError, match="missing"):
        loads()


def test_names_are_those_of_the_gguf_package():
    gguf = pytest.importorskip("gguf")
    for family in ("bert", "t5", "gpt2"):
        kind = getattr(gguf.MODEL_ARCH, family.upper())
        theirs = gguf.get_tensor_name_map(kind, 3)
        for old, new in models.gguf.FAMILIES[family][2].items():
            assert theirs.get_name(new.replace(".N.", ".2.")) == old.replace(".N.", ".2.")
