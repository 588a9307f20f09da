"""Whisper against transformers', from its weights; caches; bad calls."""

import sys

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.speech import models

SIZES = {
    "vocab_size": 60,
    "num_mel_bins": 8,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 32,
    "max_source_positions": 20,
    "max_target_positions": 12,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
rng = np.random.default_rng(0)
FEATURES = rng.normal(size=(2, 8, 40)).astype(np.float32)
TOKENS = rng.integers(3, 60, (2, 7))


@pytest.fixture(scope="module")
def transformers():
    """transformers without torchvision and torchaudio, whose binaries may not fit PyTorch's."""
    before = {name: sys.modules.pop(name, None) for name in ("torchvision", "torchaudio")}
    sys.modules.update(dict.fromkeys(before))
    try:
        package = pytest.importorskip("transformers")
        package.utils.is_torchvision_available()  # each is asked once
        package.utils.import_utils.is_torchaudio_available()
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
    return package


@pytest.fixture(scope="module")
def folder(tmp_path_factory, transformers):
    """A folder that transformers wrote, and what its model gives."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = transformers.WhisperConfig(**SIZES, bos_token_id=1, init_std=0.3)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    path = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(path)
    with torch.no_grad():
        inputs = {"decoder_input_ids": torch.tensor(TOKENS)}
        return path, model(torch.tensor(FEATURES), **inputs).logits.numpy()


def test_weights_of_transformers_give_the_same_scores(folder):
    path, expected = folder
    model = models.WhisperForConditionalGeneration.from_pretrained(path)
    assert model.config.d_model == 16
    np.testing.assert_allclose(model(FEATURES, TOKENS).numpy(), expected, atol=1e-4)


def test_the_names_are_those_of_transformers(transformers):
    config = transformers.WhisperConfig(**SIZES, bos_token_id=1)
    other = transformers.WhisperForConditionalGeneration(config).state_dict()
    ours = models.WhisperForConditionalGeneration(models.WhisperConfig(**SIZES)).state_dict()
    assert {n: tuple(x.shape) for n, x in ours.items()} == {
        n: tuple(x.shape) for n, x in other.items()
    }
    at = "model.encoder.embed_positions.weight"
    np.testing.assert_allclose(ours[at].numpy(), other[at].numpy(), atol=1e-6)


def test_tokens_one_by_one_give_the_same_scores():
    gh.random.seed(0)
    model = models.WhisperForConditionalGeneration(models.WhisperConfig(**SIZES)).eval()
    whole = model(FEATURES, TOKENS).numpy()
    memory, cache = model.memory_of(model.encode(FEATURES)), model.make_cache(2, 7)
    rows = [model(None, TOKENS[:, i : i + 1], cache=cache, memory=memory) for i in range(7)]
    np.testing.assert_allclose(np.concatenate([row.numpy() for row in rows], 1), whole, atol=1e-5)


def test_bad_shapes_are_named():
    model = models.WhisperForConditionalGeneration(models.WhisperConfig(**SIZES))
    with pytest.raises(gh.ShapeError, match=r"\(N, 8, T\) with T at most 40"):
        model(FEATURES[:, :7], TOKENS)
    with pytest.raises(gh.ShapeError, match="at most 40"):
        model(np.zeros((1, 8, 41), "f4"), TOKENS[:1])
    with pytest.raises(gh.ShapeError, match="at most 12"):
        model(FEATURES, np.zeros((2, 13), int))
