"""`gh.deterministic("batch")`: a text's scores are the same bits alone, among others, elsewhere."""

import numpy as np
import pytest
from test_pretrained_models import GPT2, LLAMA

import glasshouse as gh
from glasshouse.text import models

FAMILIES = {
    "llama": lambda: models.LlamaForCausalLM(models.LlamaConfig(**LLAMA)),
    "window": lambda: models.LlamaForCausalLM(
        models.LlamaConfig(**{**LLAMA, "model_type": "mistral", "sliding_window": 5})
    ),
    "gpt2": lambda: models.GPT2LMHeadModel(models.GPT2Config(**GPT2)),
    "bfloat16": lambda: FAMILIES["llama"]().to(gh.bfloat16),
    "int8": lambda: gh.quantize(FAMILIES["llama"]()),
    "int4": lambda: gh.quantize(FAMILIES["llama"](), "int4", group=16),
}


def scores_of(model, texts, slots, places, capacity, at=None):
    """The bits of the scores after each text's prompt, and after each of its next tokens, where
    text i has the slot `places[i]`; prompts are cut at `at`."""
    writer = gh.nn.Writer(model, slots, capacity, model.context)

    def feed(parts, other):
        rows = [other] * slots
        for text, place in zip(parts, places, strict=True):
            rows[place] = text
        scores = writer.feed(rows)
        return [scores[place].tobytes() for place in places]

    results = []
    if at is not None:
        feed([prompt[:at] for prompt, _ in texts], [9] * at)
    results.append(feed([prompt[at:] for prompt, _ in texts], [3, 4]))
    for step in range(len(texts[0][1])):
        results.append(feed([[tokens[step]] for _, tokens in texts], [7]))
    return [list(x) for x in zip(*results, strict=True)]


def check(name, seed):
    rng = np.random.default_rng(seed)
    gh.random.seed(seed)
    model = FAMILIES[name]().eval()
    texts = [
        (rng.integers(1, 48, n).tolist(), rng.integers(1, 48, 2).tolist())
        for n in (*rng.integers(3, 15, 2), rng.integers(18, 30))
    ]
    with gh.deterministic("batch"):
        alone = [scores_of(model, [text], 1, [0], 64)[0] for text in texts]
        assert scores_of(model, texts, 3, [2, 0, 1], 64) == alone
        places = rng.permutation(32)[:3].tolist()
        assert scores_of(model, texts, 32, places, 96) == alone
        assert scores_of(model, texts, 3, [1, 0, 2], 64, at=2) == alone
    return model, texts, alone


@pytest.mark.slow
def test_scores_are_the_same_bits_in_each_batch():
    check("llama", 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_scores_of_a_family_are_the_same_bits_in_each_batch(name, seed):
    check(name, seed)


@pytest.mark.slow
def test_rows_are_the_same_text_in_each_batch():
    rng = np.random.default_rng(0)
    gh.random.seed(0)
    model = FAMILIES["llama"]().eval()
    rows = [rng.integers(1, 48, n).tolist() for n in (3, 20, 9, 1)]
    options = {"temperature": 1.0, "stop": [], "max_new_tokens": 8}
    with gh.deterministic("batch"):
        together = model.generate(rows, seed=[4, 5, 6, 7], **options)
        assert together == [
            model.generate(row, seed=4 + i, **options) for i, row in enumerate(rows)
        ]
