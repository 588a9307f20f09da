"""Drawing tokens, against slow clear twins; models of one's own."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.compile.programs import program

V = 12


def slow_probabilities(scores, earlier, temperature, top_k, top_p, min_p, penalty):
    """Each rule in turn, token by token."""
    x = [float(s) for s in scores]
    for token in set(earlier):
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    p = [np.exp(s / temperature) for s in x]
    by_size = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if top_k is not None:
        least = p[by_size[min(top_k, len(p)) - 1]]
        p = [y if y >= least else 0.0 for y in p]
    p = [y / sum(p) for y in p]
    if top_p < 1:
        kept, total = [], 0.0
        for i in by_size:
            if not kept or total < top_p:
                kept.append(i)
            total += p[i]
        p = [y if i in kept else 0.0 for i, y in enumerate(p)]
    p = [y if y >= min_p * max(p) else 0.0 for y in p]
    return np.array(p) / sum(p)


@pytest.mark.parametrize("seed", range(40))
def test_probabilities_are_those_of_a_slow_twin(seed):
    rng = np.random.default_rng(seed)
    scores, earlier = rng.normal(size=V) * 2, rng.integers(0, V, 4).tolist()
    options = {"temperature": rng.choice([0.5, 1.0, 2.0]), "top_p": rng.choice([0.3, 0.9, 1.0]),
               "top_k": [None, 1, 5, 50][seed % 4], "min_p": rng.choice([0.0, 0.1])}  # fmt: skip
    penalty = rng.choice([1.0, 1.3])
    result = nn.TokenSampler(**options, repetition_penalty=penalty).probabilities(scores, earlier)
    np.testing.assert_allclose(
        result,
        slow_probabilities(scores, earlier, penalty=penalty, **options),
        rtol=1e-9,
        atol=1e-12,
    )


def test_draws_are_as_often_as_probable():
    sampler, rng = nn.TokenSampler(1.0), np.random.default_rng(0)
    scores = np.log(np.array([0.5, 0.3, 0.2, 1e-30]))
    counts = np.bincount([sampler.choose(scores, [], rng) for _ in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.5, 0.3, 0.2, 0.0], atol=0.03)


def test_the_likeliest_token_may_be_made_less_likely():
    scores, rng = np.array([2.0, 1.9, -1.0]), np.random.default_rng(0)
    assert nn.TokenSampler().choose(scores, [0], rng) == 0
    assert nn.TokenSampler(repetition_penalty=1.2).choose(scores, [0], rng) == 1


class Newcomer(nn.Module):
    """A character model without a cache, as one writes it first."""

    def __init__(self, context=320):
        super().__init__()
        self.context = context
        self.words, self.places = nn.Embedding(V, 16), nn.Embedding(context, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, "gelu", batch_first=True)
        self.head = nn.Linear(16, V)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(gh.arange(tokens.shape[1]))
        return self.head(self.layer(x, is_causal=True)), None


class Cached(nn.Generation, nn.Module):
    """The same kind of model with the mixin's two methods."""

    vocabulary, context, end_token = V, 64, 3

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(V, 16), nn.Embedding(64, 16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, V)

    def forward(self, tokens, cache=None):
        n, length = tokens.shape
        at = gh.arange(length) if cache is None else cache.positions(length)
        x = self.words(tokens) + self.places(gh.minimum(at, 63))
        q, k, v = gh.split(self.qkv(x).reshape((n, length, 6, 8)).permute(0, 2, 1, 3), 3, axis=1)
        mask = None if cache is None else cache.visible(length)
        if cache is not None:
            k, v = cache[0].update(k, v)
        attend = nn.functional.scaled_dot_product_attention
        y = attend(q, k, v, mask, is_causal=cache is None)
        return self.head(x + self.out(y.permute(0, 2, 1, 3).reshape((n, length, 16))))

    def make_slots(self, slots, capacity):
        return nn.SlotCache(1, slots, 2, capacity, 8)

    def next_scores(self, tokens, cache, at):
        return nn.generation.states_at(self(tokens, cache), at)


def by_hand(model, row, count):
    """One token after the other, the whole text read each time."""
    text = list(row)
    model.eval()
    with gh.no_grad(), gh.backends.use("numpy"):
        for _ in range(count):
            scores = model(gh.asarray([text]))
            scores = scores[0] if isinstance(scores, tuple) else scores
            text.append(int(scores[0, -1].numpy().argmax()))
    return text[len(row) :]


@pytest.mark.parametrize("kind", [Newcomer, Cached])
def test_a_model_of_ones_own_writes(kind):
    gh.random.seed(0)
    model, rows = kind(), [[1, 2, 4], [5], [7, 8, 9, 10, 11, 0]]
    expected = [by_hand(model, row, 6) for row in rows]
    assert nn.generate(model, rows, 6, stop=[]) == expected
    assert [nn.generate(model, row, 6, stop=[]) for row in rows] == expected


def test_300_tokens_of_a_newcomers_model_take_two_compilations():
    gh.random.seed(1)
    model = Newcomer()
    nn.generate(model, [1], 1)  # what is compiled once for all
    before = sum(x.program is not None for x in program.programs.values())
    assert len(nn.generate(model, [1, 2, 3], 300, temperature=1.0)) == 300
    result = sum(x.program is not None for x in program.programs.values()) - before
    assert result <= 2


def test_a_text_without_a_cache_goes_beyond_the_context():
    gh.random.seed(0)
    model = Newcomer(context=8)
    text = [1, 2, 3]
    for _ in range(12):
        text.append(by_hand(model, text[-8:], 1)[0])
    assert nn.generate(model, [1, 2, 3], 12) == text[3:]


def test_a_row_ends_at_its_stop_and_where_the_callback_says_so():
    gh.random.seed(0)
    model = Cached()
    whole, messages = model.generate([1, 2], 10, stop=[]), []
    assert model.generate([1, 2], 10, stop=[whole[3:5]]) == whole[: whole.index(whole[4], 4) + 1]

    def stream(row, token):
        messages.append((row, token))
        return len(messages) == 4

    assert model.generate([1, 2], 10, stop=[], stream=stream) == whole[:4]
    assert messages == [(0, token) for token in whole[:4]]


def test_tokens_that_are_not_allowed_are_not_written():
    gh.random.seed(0)
    model = Cached()

    def even(row, new):
        return np.arange(V) % 2 == len(new) % 2

    result = model.generate([[1, 2], [5]], 6, stop=[], allowed=even, temperature=2.0)
    assert all([token % 2 for token in row] == [0, 1] * 3 for row in result)
    result = model.generate([1, 2], 6, stop=[], allowed=even, num_beams=2)
    assert [token % 2 for token in result] == [0, 1] * 3


def test_slots_refuse_other_sizes():
    cache = nn.SlotCache(1, 2, 3, 8, 4)
    with pytest.raises(gh.ShapeError, match=r"\(2, 3, L, 4\)"):
        cache[0].update(gh.ones((1, 3, 1, 4)), gh.ones((1, 3, 1, 4)))
    other = nn.SlotCache(2, 1, 3, 8, 4).read(0, 2, [1, 2])
    with pytest.raises(gh.ShapeError, match="2 tensors"):
        cache.write(0, other)
    with pytest.raises(gh.CheckpointError, match="parts"):
        nn.Prefix.from_state({"tokens": gh.asarray([1])})
    with pytest.raises(gh.OptionError, match="a decoder with a cache"):
        nn.read_prefix(Newcomer(), [1])


def test_few_queries_attend_as_many_do():
    rng = np.random.default_rng(0)
    q, k, v = (gh.asarray(rng.normal(size=(2, n, 17, 4))) for n in (6, 2, 2))
    masks = [None, rng.random((2, 1, 17, 17)) < 0.5, rng.random((17, 17)) < 0.5,
             rng.normal(size=(2, 1, 1, 17)), rng.normal(size=(1, 6, 17, 17))]  # fmt: skip
    attend = nn.functional.scaled_dot_product_attention
    for mask in masks:
        whole = attend(q, k, v, mask, enable_gqa=True, is_causal=mask is None).numpy()
        if mask is not None and mask.shape[-2] > 1:
            mask = mask[..., :3, :]
        if mask is None:
            mask = np.tril(np.ones((17, 17), bool))[:3]
        few = attend(q[:, :, :3], k, v, mask, enable_gqa=True).numpy()
        np.testing.assert_allclose(few, whole[:, :, :3], rtol=1e-9)
