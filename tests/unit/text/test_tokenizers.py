"""Tokenizers: files, training, batches, and what they refuse."""

import json
import sys

import numpy as np
import pytest

from glasshouse.base.errors import (
    BackendError,
    CheckpointError,
    DTypeError,
    OptionError,
    ShapeError,
)
from glasshouse.text import Tokenizer

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog", "Ünïcode 日本 🙂"]


@pytest.fixture(scope="module")
def tokenizers():
    return pytest.importorskip("tokenizers")


@pytest.fixture(params=["bpe", "bpe_end", "wordpiece"])
def tokenizer(request, tokenizers):
    kind, _, end = request.param.partition("_")
    return Tokenizer.train(TEXTS * 3, 300, kind, end=bool(end))


def test_batches_are_those_of_the_package(tokenizer, tokenizers):
    batch = tokenizer.encode(TEXTS)
    rows = tokenizer.backend.encode_batch(TEXTS)
    size = max(len(row.ids) for row in rows)
    assert batch.tokens.shape == (len(TEXTS), size) == batch.token_type_ids.shape
    for row, tokens, mask in zip(rows, batch.tokens, batch.attention_mask, strict=True):
        count = len(row.ids)
        assert tokens[:count].tolist() == row.ids
        assert mask.tolist() == [1] * count + [0] * (size - count)
        assert set(tokens[count:]) <= {tokenizer.pad_id}


def test_texts_come_back(tokenizer):
    texts = TEXTS[:3]
    assert tokenizer.decode(tokenizer.encode(texts).tokens) == texts


@pytest.mark.quick
def test_bytes_write_every_text(tokenizers):
    tokenizer = Tokenizer.train(["abc"], 261)
    texts = ["", "日本\n\t🙂", "\x00 x  y "]
    assert tokenizer.decode(tokenizer.encode(texts).tokens) == texts


def test_padding_on_a_side_in_multiples_or_to_a_length(tokenizer):
    right, left = (tokenizer.encode(TEXTS, side=side) for side in ("right", "left"))
    counts = right.attention_mask.sum(1)
    for i, count in enumerate(counts):
        assert left.tokens[i, -count:].tolist() == right.tokens[i, :count].tolist()
        assert left.attention_mask[i].sum() == count == left.attention_mask[i, -count:].sum()
    assert tokenizer.encode(TEXTS, multiple=16).tokens.shape[1] % 16 == 0
    assert tokenizer.encode(TEXTS, length=64).tokens.shape == (4, 64)
    assert tokenizer.encode(TEXTS, max_length=5).tokens.shape == (4, 5)
    assert tokenizer.encode([]).tokens.shape == (0, 0)


def test_pairs_have_types(tokenizers):
    tokenizer = Tokenizer.train(TEXTS, 300, "wordpiece")
    batch = tokenizer.encode(["the cat"], ["a dog"])
    first = 1 + len(tokenizer.backend.encode("the cat", add_special_tokens=False).ids) + 1
    assert batch.token_type_ids[0].tolist() == [0] * first + [1] * (batch.tokens.shape[1] - first)


def test_files_are_those_of_transformers(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = Tokenizer.from_file(tmp_path)
    assert np.array_equal(again.encode(TEXTS).tokens, tokenizer.encode(TEXTS).tokens)
    assert len(again) == len(tokenizer)
    assert repr(again) == repr(tokenizer)


def test_padding_and_cuts_that_a_file_has_are_put_off(tokenizers, tmp_path):
    tokenizer = Tokenizer.train(TEXTS, 300)
    tokenizer.backend.enable_truncation(3)
    tokenizer.backend.enable_padding(length=40)
    tokenizer.save(tmp_path / "x.json")
    batch = Tokenizer.from_file(tmp_path / "x.json").encode(["the cat sat on"])
    assert 3 < batch.attention_mask.sum() == batch.tokens.shape[1] < 40


def test_special_tokens_can_be_left_out_and_shown(tokenizers):
    tokenizer = Tokenizer.train(TEXTS, 300, end=True)
    plain, marked = (tokenizer.encode(["a cat"], special=s).tokens for s in (False, True))
    assert marked.tolist()[0] == [*plain.tolist()[0], tokenizer.token_id("</s>")]
    assert tokenizer.decode(marked, skip_special=False) == ["a cat</s>"]


def without_pad(path, tokenizers):
    """A tokenizer.json without a token for padding."""
    tokenizer = Tokenizer.train(TEXTS, 300)
    tokenizer.save(path)
    text = json.loads(path.read_text())
    text["added_tokens"] = [t for t in text["added_tokens"] if t["content"] == "<unk>"]
    names = ("<pad>", "<s>", "</s>")
    vocab = {f"x{t}" if t in names else t: i for t, i in text["model"]["vocab"].items()}
    text["model"]["vocab"] = vocab
    path.write_text(json.dumps(text))
    return path


def test_a_vocabulary_without_padding(tokenizers, tmp_path):
    path = without_pad(tmp_path / "x.json", tokenizers)
    tokenizer = Tokenizer.from_file(path)
    assert tokenizer.encode(["a cat"]).tokens.shape[0] == 1
    with pytest.raises(OptionError, match="a token for padding"):
        tokenizer.encode(["a", "a cat and a dog"])
    assert Tokenizer.from_file(path, pad_token="<unk>").encode(TEXTS).tokens.shape[0] == 4
    with pytest.raises(OptionError, match="pad_token of the vocabulary"):
        Tokenizer.from_file(path, pad_token="<none>")


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"model": 3}', "\x00\xff"])
def test_files_that_are_missing_or_broken(tokenizers, tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_file(tmp_path)
    assert "tokenizer.json" in str(caught.value)


BAD = [
    (lambda t: t.encode([1]), DTypeError, "text 0 to be a string"),
    (lambda t: t.encode(["a", b"b"]), DTypeError, "text 1 to be a string"),
    (lambda t: t.encode(["\ud800"]), DTypeError, "characters"),
    (lambda t: t.encode(3), DTypeError, "texts"),
    (lambda t: t.encode(["a"], ["b", "c"]), ShapeError, "1 and 2"),
    (lambda t: t.encode(["a"], max_length=0), OptionError, "max_length"),
    (lambda t: t.encode(["a cat sat"], length=1), ShapeError, "at most 1 tokens"),
    (lambda t: t.encode(["a"], side="top"), OptionError, "side 'right' or 'left'"),
    (lambda t: t.encode(["a"], multiple=0), OptionError, "multiple"),
    (lambda t: t.decode([1, 2]), ShapeError, "integers (N, L)"),
    (lambda t: t.decode([[0.5]]), ShapeError, "integers (N, L)"),
    (lambda t: t.decode([[10**6]]), OptionError, "got 1000000"),
    (lambda t: t.decode([[-1]]), OptionError, "got -1"),
    (lambda t: t.token_id("<none>"), OptionError, "'<none>'"),
    (lambda t: Tokenizer.train(TEXTS, kind="words"), OptionError, "kind 'bpe' or 'wordpiece'"),
    (lambda t: Tokenizer.train(TEXTS, 2), OptionError, "vocab_size"),
    (lambda t: Tokenizer.train([None]), DTypeError, "text 0"),
    (lambda t: Tokenizer.from_file(3), DTypeError, "a path"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_what_tokenizers_refuse(tokenizers, call, error, text):
    with pytest.raises(error) as caught:
        call(Tokenizer.train(TEXTS, 300))
    assert text in str(caught.value)


def test_a_machine_without_the_package_is_told_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for call in (lambda: Tokenizer.from_file(tmp_path), lambda: Tokenizer.train(TEXTS)):
        with pytest.raises(BackendError, match=r"pip install 'glasshouse\[text\]'"):
            call()
