"""`gh.load` of GGUF files and folders: the same weights, tokens and scores as others read."""

import dataclasses
import json
import struct
from functools import partial

import numpy as np
import pytest
from tests.unit.text import gguf_files as files

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import CheckpointError, Explained, OptionError
from glasshouse.interop import open_gguf, open_safetensors, save_safetensors
from glasshouse.text import models
from glasshouse.text.tokenizers import Tokenizer

TEXTS = ["the lower the lowest", "a low tower, 1984 of them", "nothing: ünïcödé — 東京"]
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("tokenizers")
    return Tokenizer.train(TEXTS * 2, vocab_size=300)


def llama_file(path, matrix, more=None, sizes=None, family="llama", draws=rng):
    sizes = sizes or files.SIZES
    metadata = {"general.architecture": family, **sizes, **(more or {})}
    widths = (sizes["llama.embedding_length"], sizes["llama.feed_forward_length"])
    path.write_bytes(files.gguf(metadata, files.llama_tensors(draws, matrix, *widths)))
    return path


def random_matrix(shape):
    return files.plain(rng.normal(0, 0.2, shape))


@pytest.fixture
def path(tmp_path):
    return llama_file(tmp_path / "m.gguf", lambda shape: files.random_blocks(rng, "Q4_1", shape))


# -- formats -----------------------------------------------------------------------------------


def by_hand(kind, block):
    """The numbers of one block, by loops over the format's description."""

    def half(at):
        return np.frombuffer(block[at : at + 2].tobytes(), "<f2")[0].astype("f")

    b = [int(x) for x in block]
    if kind == "Q8_0":
        return [half(0) * np.float32(x - 256 if x > 127 else x) for x in b[2:]]
    if kind == "Q4_0":
        return [half(0) * np.float32((x >> s & 15) - 8) for s in (0, 4) for x in b[2:]]
    if kind == "Q4_1":
        return [half(0) * np.float32(x >> s & 15) + half(2) for s in (0, 4) for x in b[4:]]
    y = np.zeros(256, "f")
    if kind == "Q4_K":
        s = b[4:16]
        for j in range(8):
            if j < 4:
                scale, low = s[j] & 63, s[j + 4] & 63
            else:
                scale = s[j + 4] & 15 | s[j - 4] >> 6 << 4
                low = s[j + 4] >> 4 | s[j] >> 6 << 4
            for i in range(32):
                code = b[16 + 32 * (j // 2) + i] >> 4 * (j % 2) & 15
                first = half(0) * np.float32(scale)
                y[32 * j + i] = first * np.float32(code) - half(2) * np.float32(low)
        return y
    for i in range(256):
        part, j = divmod(i, 128)
        row, at = divmod(j, 32)
        low = b[64 * part + at + 32 * (row % 2)] >> 4 * (row // 2) & 15
        high = b[128 + 32 * part + at] >> 2 * row & 3
        scale = b[192 + i // 16]
        scale = half(208) * np.float32(scale - 256 if scale > 127 else scale)
        y[i] = scale * np.float32((low | high << 4) - 32)
    return y


@pytest.mark.parametrize("kind", files.BLOCKS)
def test_blocks_are_unpacked_as_their_description_says(tmp_path, kind):
    numbers, nbytes = files.BLOCKS[kind]
    tensor = files.random_blocks(rng, kind, (3, 2 * numbers))
    (tmp_path / "t.gguf").write_bytes(files.gguf({}, {"x": tensor}))
    file = open_gguf(tmp_path / "t.gguf")
    blocks = np.frombuffer(tensor[2], np.uint8).reshape(-1, nbytes)
    expected = np.concatenate([by_hand(kind, block) for block in blocks]).reshape(3, -1)
    np.testing.assert_array_equal(file["x"].numpy(), expected)
    assert file.places["x"].nbytes == len(tensor[2])


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "<f4"), ("F16", "<f2")])
def test_floats_are_read(tmp_path, kind, dtype):
    x = rng.normal(size=(2, 3)).astype(dtype)
    (tmp_path / "t.gguf").write_bytes(files.gguf({"n": [1, 2]}, {"x": (kind, (2, 3), x.tobytes())}))
    file = open_gguf(tmp_path / "t.gguf")
    np.testing.assert_array_equal(file["x"].numpy(), x.astype("f"))
    assert (file.metadata, list(file), len(file)) == ({"n": [1, 2]}, ["x"], 1)


# -- models ------------------------------------------------------------------------------------


def turned(array, heads):
    """Rows as files of Llamas have them: pairs that are turned together side by side."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def test_a_file_of_a_llama_gives_the_scores_of_transformers(tmp_path, transformers):
    import torch

    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, max_position_embeddings=64,
        rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    tensors = files.renamed(models.gguf.LLAMA_NAMES, theirs.state_dict())
    del tensors["output.weight"]
    for name, x in tensors.items():
        heads = {"attn_q": 4, "attn_k": 2}.get(name.split(".")[-2])
        tensors[name] = files.plain(x if heads is None else turned(x, heads))
    metadata = {"general.architecture": "llama", **files.SIZES}
    (tmp_path / "m.gguf").write_bytes(files.gguf(metadata, tensors))
    ours, tokens = gh.load(tmp_path / "m.gguf"), rng.integers(0, 300, (2, 9))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(ours(gh.asarray(tokens)).numpy(), expected, atol=2e-5)
    assert not ours.training


def packed_file(path, kind):
    """A file of a Llama whose matrices have that format."""
    sizes, draws = files.WIDE if kind.endswith("K") else files.SIZES, np.random.default_rng(1)
    blocks = partial(files.random_blocks, draws, kind)
    return llama_file(path, blocks, sizes=sizes, draws=draws)


@pytest.mark.parametrize("kind", files.BLOCKS)
def test_packed_and_unpacked_weights_give_the_same_scores(tmp_path, kind):
    path = packed_file(tmp_path / "m.gguf", kind)
    packed, unpacked = gh.load(path), gh.load(path, packed=False)
    tokens = gh.asarray(rng.integers(0, 300, (2, 5)))
    assert isinstance(packed.lm_head, nn.QuantizedLinear)
    assert packed.model.embed_tokens.packed is packed.lm_head.packed
    with gh.no_grad():
        expected = unpacked(tokens).numpy()
        close = {"atol": 1e-5 * np.abs(expected).max(), "rtol": 0}
        np.testing.assert_allclose(packed(tokens).numpy(), expected, **close)
    assert {p.dtype.name for p in unpacked.parameters()} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_matrices_of_a_file_keep_their_bytes_and_train_by_adapters(tmp_path, kind):
    gh.manual_seed(0)
    path = packed_file(tmp_path / "m.gguf", kind)
    model, file = gh.load(path), open_gguf(path)
    expected = sum(place.nbytes for place in file.places.values() if place.kind == kind)
    assert sum(x.nbytes for x in model.buffers() if x.dtype is gh.uint8) == expected
    nn.lora.attach(model, "*_proj", rank=2)
    optimizer = gh.optim.Adam(nn.lora.parameters(model), lr=0.01)
    tokens, losses = gh.asarray([[5, 3, 8, 2, 9, 1]]), []
    for _ in range(40):
        loss = token_loss(model(tokens[:, :-1]), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_an_analysis_counts_packed_bytes(tmp_path):
    packed, outside = [], []
    for kind in ("Q4_K", "Q6_K"):
        model = gh.load(packed_file(tmp_path / f"{kind}.gguf", kind))
        packed.append(sum(x.nbytes for x in set(model.buffers())))
        nn.lora.attach(model, "*.q_proj", rank=2)
        optimizer = gh.optim.SGD(nn.lora.parameters(model), lr=0.1)
        cost = gh.analyze.step(model, token_loss, optimizer, [((1, 6), "int64")] * 2)
        outside.append(cost.outside_bytes)
    assert outside[1] - outside[0] == packed[1] - packed[0] > 0


def token_loss(scores, goal):
    return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), goal.reshape(-1))


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_computes_in_the_dtype_that_is_asked_for(path, packed):
    model = gh.load(path, dtype="bfloat16", packed=packed)
    with gh.no_grad():
        assert model(gh.asarray([[1, 2]])).dtype is gh.bfloat16


def test_the_families_have_their_names(tmp_path):
    sizes = {name.replace("llama", "qwen3"): x for name, x in files.SIZES.items()}
    tensors = files.llama_tensors(rng, random_matrix)
    for i in range(2):
        tensors[f"blk.{i}.attn_q_norm.weight"] = files.plain(np.ones(16))
        tensors[f"blk.{i}.attn_k_norm.weight"] = files.plain(np.ones(16))
    metadata = {"general.architecture": "qwen3", "qwen3.attention.key_length": 16, **sizes}
    (tmp_path / "q.gguf").write_bytes(files.gguf(metadata, tensors))
    model = gh.load(tmp_path / "q.gguf")
    assert model.config.model_type == "qwen3"
    assert model(gh.asarray([[1, 2]])).shape == (1, 2, 300)


def test_gpt2_comes_from_a_file(tmp_path):
    config = models.GPT2Config(vocab_size=40, n_embd=32, n_layer=1, n_head=2, n_positions=16)
    theirs = models.GPT2LMHeadModel(config).eval()
    state = {name: x.detach().numpy() for name, x in theirs.named_parameters()}
    tensors = files.renamed(models.gguf.GPT2_NAMES, state)
    for name, x in tensors.items():
        tensors[name] = files.plain(x.T if name.startswith("blk.") else x)
    metadata = {"general.architecture": "gpt2", "gpt2.block_count": 1, "gpt2.context_length": 16,
                "gpt2.embedding_length": 32, "gpt2.attention.head_count": 2,
                "gpt2.feed_forward_length": 128}  # fmt: skip
    (tmp_path / "g.gguf").write_bytes(files.gguf(metadata, tensors))
    tokens = gh.asarray([[3, 1, 4]])
    ours = gh.load(tmp_path / "g.gguf")
    np.testing.assert_allclose(ours(tokens).numpy(), theirs(tokens).numpy(), atol=1e-6)


def test_a_folder_is_loaded_with_its_tokenizer(tmp_path, tokenizer):
    config = models.LlamaConfig(
        vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24,
    )  # fmt: skip
    models.save_pretrained(models.LlamaForCausalLM(config), tmp_path)
    assert gh.load(tmp_path).tokenizer is None
    tokenizer.save(tmp_path)
    marks = {"chat_template": "{{ x }}", "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(marks))
    model = gh.load(tmp_path)
    assert model.tokenizer.encode(TEXTS).tokens.shape == tokenizer.encode(TEXTS).tokens.shape
    assert model.tokenizer.chat_template == "{{ x }}"
    assert model.tokenizer.eos_id == tokenizer.token_id("</s>")


def test_a_text_ends_with_the_token_that_the_file_names(tmp_path):
    def written(**more):
        draws = np.random.default_rng(0)
        matrix = lambda shape: files.plain(draws.normal(0, 0.2, shape))  # noqa: E731
        return gh.load(llama_file(tmp_path / "m.gguf", matrix, more, draws=draws))

    whole = written().generate([3, 1, 4], 12)
    end = whole[5]
    model = written(**{"tokenizer.ggml.eos_token_id": end})
    assert model.end_token == end
    assert model.generate([3, 1, 4], 12) == whole[: whole.index(end) + 1]
    config = {**dataclasses.asdict(model.config), "eos_token_id": [299, end]}
    several = models.LlamaForCausalLM(models.LlamaConfig.from_dict(config))
    several.load_state_dict(model.state_dict())
    assert several.generate([3, 1, 4], 12) == whole[: whole.index(end) + 1]


def test_what_gh_save_wrote_is_still_loaded(tmp_path):
    gh.save({"x": 3}, tmp_path / "t")
    assert gh.load(tmp_path / "t") == {"x": 3}
    with pytest.raises(OptionError, match="packed"):
        gh.load(tmp_path / "t", packed=True)


# -- tokenizers --------------------------------------------------------------------------------


def test_byte_pairs_of_a_file_give_the_same_tokens(tmp_path, tokenizer):
    more = files.vocabulary(tokenizer.backend) | {"tokenizer.chat_template": "{{ messages }}"}
    loaded = gh.load(llama_file(tmp_path / "m.gguf", random_matrix, more)).tokenizer
    for text in TEXTS:
        ours, theirs = loaded.encode(text).tokens, tokenizer.encode(text).tokens
        np.testing.assert_array_equal(ours, theirs)
        assert loaded.decode(ours) == [text]
    assert (loaded.bos_id, loaded.eos_id, loaded.chat_template) == (1, 2, "{{ messages }}")
    assert loaded.encode("</s>").tokens.tolist() == [[2]]


def test_pieces_are_joined_by_their_scores(tmp_path):
    pytest.importorskip("tokenizers")
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "l", "o", "w",
              "lo", "ow", "▁l", "▁lo"]  # fmt: skip
    more = {"model": "llama", "tokens": pieces, "scores": [0.0] * 263 + [-3.0, -1.0, -4.0, -2.0],
            "token_type": [2, 3, 3] + [6] * 256 + [1] * 8, "bos_token_id": 1}  # fmt: skip
    more = {f"tokenizer.ggml.{n}": x for n, x in more.items()}
    loaded = gh.load(llama_file(tmp_path / "m.gguf", random_matrix, more)).tokenizer
    tokens = loaded.encode("low é").tokens
    assert [pieces[i] for i in tokens[0]] == ["<s>", "▁l", "ow", "▁", "<0xC3>", "<0xA9>"]
    assert loaded.decode(tokens) == ["low é"]


# -- bad input ---------------------------------------------------------------------------------


def overwritten(data, at, kind, value):
    data = bytearray(data)
    struct.pack_into("<" + kind, data, at, value)
    return bytes(data)


FAULTS = {
    "cut": lambda d: d[:-1000],
    "cut in the header": lambda d: d[:60],
    "no bytes": lambda d: b"GGUF",
    "version": lambda d: overwritten(d, 4, "I", 9),
    "count of tensors": lambda d: overwritten(d, 8, "Q", 2**63),
    "count of entries": lambda d: overwritten(d, 16, "Q", 2**40),
    "length of a name": lambda d: overwritten(d, 24, "Q", 2**64 - 1),
    "kind of a value": lambda d: overwritten(d, 32 + len("general.architecture"), "I", 77),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_is_refused(path, fault):
    path.write_bytes(FAULTS[fault](path.read_bytes()))
    with pytest.raises(CheckpointError, match="expected"):
        gh.load(path)


BAD_TENSORS = {
    "a size that overflows": (("F32", (2**62, 2**62), b""), "a file of"),
    "more bytes than there are": (("F32", (64,), b"1234"), "a file of"),
    "no whole blocks": (("Q4_1", (2, 33), bytes(40)), "whole blocks"),
    "five axes": (("F32", (1,) * 5, bytes(4)), "at most 4 axes"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_a_tensor_that_does_not_fit_is_refused(tmp_path, case):
    tensor, message = BAD_TENSORS[case]
    (tmp_path / "t.gguf").write_bytes(files.gguf({}, {"x": tensor}))
    with pytest.raises(CheckpointError, match=message):
        open_gguf(tmp_path / "t.gguf")


def test_an_unknown_type_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(files.KINDS, "F32", 99)
    (tmp_path / "t.gguf").write_bytes(files.gguf({}, {"x": files.plain(np.ones(4))}))
    with pytest.raises(CheckpointError, match="type 99 of 'x'"):
        open_gguf(tmp_path / "t.gguf")


BAD_METADATA = {
    "another family": ({"general.architecture": "bloom"}, OptionError, "llama"),
    "absurd layers": ({"llama.block_count": 2**31}, CheckpointError, "2 layers"),
    "other heads": ({"llama.attention.head_count": 7}, Explained, "heads"),
    "a string for a size": ({"llama.feed_forward_length": "x"}, OptionError, "intermediate_size"),
    "a part of a model": ({"split.count": 3}, OptionError, "one file"),
    "no tokens": ({"tokenizer.ggml.model": "gpt2"}, CheckpointError, "tokens"),
    "another tokenizer": ({"tokenizer.ggml.model": "rwkv"}, OptionError, "rwkv"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_metadata_that_do_not_fit_are_refused(tmp_path, case):
    pytest.importorskip("tokenizers")
    more, error, message = BAD_METADATA[case]
    path = llama_file(tmp_path / "m.gguf", random_matrix, more)
    with pytest.raises(error, match=message):
        gh.load(path)


def mutated(data, header, rng):
    """The bytes of a file with a few changes, most of them in its header."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        most = min(header, len(data)) if rng.random() < 0.9 else len(data)
        at = int(rng.integers(0, most))
        kind = rng.integers(0, 4)
        if kind == 0:
            data[at] = rng.integers(0, 256)
        elif kind == 1:
            sizes = (2**63 - 1, 2**64 - 1, 2**32, 2**31, 0, 1, 255)
            data[at : at + 8] = struct.pack("<Q", sizes[rng.integers(len(sizes))])
        elif kind == 2:
            del data[at : at + int(rng.integers(1, 40))]
        else:
            data = data[: max(at, 1)] if rng.random() < 0.3 else data
    return bytes(data)


def outcome(load, path):
    """Whether a file is loaded; errors of the package say what is wrong."""
    try:
        load(path)
    except Explained:
        return False
    return True


def load_parts(path):
    """Load a file and its tokenizer, but do not build the model."""
    file = open_gguf(path)
    models.gguf.FAMILIES["llama"][0](file, "llama")
    gh.text.loading.tokenizer_from_metadata(file.metadata)
    for name in file:
        file.blocks(name).sum(dtype="f8" if file.places[name].kind == "F32" else None)


@pytest.mark.parametrize(
    ("load", "count"),
    [(load_parts, 200), pytest.param(gh.load, 2000, marks=pytest.mark.slow)],
    ids=["parts", "models"],
)
def test_mutated_files_are_loaded_or_refused(tmp_path, tokenizer, load, count):
    path, random = tmp_path / "m.gguf", np.random.default_rng(1)
    llama_file(
        path, lambda s: files.random_blocks(rng, "Q4_1", s), files.vocabulary(tokenizer.backend)
    )
    data = path.read_bytes()
    header = open_gguf(path).places["token_embd.weight"].start
    results = []
    for _ in range(count):
        path.write_bytes(mutated(data, header, random))
        results.append(outcome(load, path))
    assert 0 < sum(results) < count


def test_mutated_safetensors_are_opened_or_refused(tmp_path):
    path, random = tmp_path / "t.safetensors", np.random.default_rng(2)
    save_safetensors(path, {"x": gh.ones((3, 4)), "y": gh.asarray([1 + 2j], dtype="complex128")})
    data, results = path.read_bytes(), []

    def load(path):
        for x in open_safetensors(path).values():
            x.numpy()

    for _ in range(200):
        path.write_bytes(mutated(data, len(data) - 64, random))
        results.append(outcome(load, path))
    assert 0 < sum(results) < 200


HEADERS = {
    "negative sizes": '{"x":{"dtype":"F32","shape":[-2,-2],"data_offsets":[0,16]}}',
    "sizes that are no integers": '{"x":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}}',
    "offsets that are no integers": '{"x":{"dtype":"F32","shape":[4],"data_offsets":[0.0,16.0]}}',
    "lists within lists": "[" * 100_000,
    "a pair that is none": '{"__metadata__":{"glasshouse.complex128":"[\\"x\\"]"},'
                           '"x":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_hostile_headers_of_safetensors_are_refused(tmp_path, case):
    header = HEADERS[case].encode()
    path = tmp_path / "t.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(CheckpointError):
        _ = [x.numpy() for x in open_safetensors(path).values()]
