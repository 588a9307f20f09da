"""Generate tokens from prompts: the writer that feeds a model, and the loop around it."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.errors import OptionError, type_name
from glasshouse.base.flags import flags
from glasshouse.dispatch.hooks import hooks
from glasshouse.nn.generation.beams import search
from glasshouse.nn.generation.drafts import write_with_draft
from glasshouse.nn.generation.rows import checked_rows, checked_stops, ends_with, padded
from glasshouse.nn.generation.sampling import TokenSampler, allowed_scores
from glasshouse.nn.generation.slots import Prefix, SlotCache, states_at
from glasshouse.ops.checks import check_integer
from glasshouse.tensor import Tensor, asarray, take

__all__ = ["Generation", "Writer", "generate", "read_prefix"]

CHUNKS = (1, 16, 128, 512)  # tokens of a text that are fed at once: a Program each
LEAST_REACH = 128  # tokens of a chunk whose attention reads only positions that are written by then
FIRST_CAPACITY = 2048  # positions that a cache has room for at once; it doubles when they are full
MOST_TOKENS = 1 << 16  # of a text whose model does not say how long one may be
CAPTURED_FROM = 3  # the call of a chunk of several tokens from which on it is captured


class Generation:
    """A mixin for modules that write. `make_slots` gives the caches of a model's layers, and
    `next_scores` scores of the tokens after some places of a chunk. Without them, a module whose
    `forward` takes tokens (N, L) and gives scores (N, L, vocabulary), or a tuple of these and more,
    reads its whole text again for each token, padded to one of two lengths.

    Attributes that are not None are heeded: `context` (the most tokens of a text), `vocabulary`
    (the number of tokens), `start_token` (of an encoder-decoder's text), `end_token`.

    Example:
        >>> class Counts(nn.Generation, nn.Module):
        ...     def forward(self, tokens):  # the number after each
        ...         return gh.arange(10) == (tokens[:, :, None] + 1) % 10
        >>> Counts().generate([5, 6], max_new_tokens=5)
        [7, 8, 9, 0, 1]
    """

    context: int | None = None
    vocabulary: int | None = None
    start_token: int | None = None
    end_token: int | list[int] | None = None
    __call__: Callable[..., Any]  # of the module

    def make_slots(self, slots: int, capacity: int) -> SlotCache | None:
        """A cache of so many texts and positions; None for none."""
        return None

    def next_scores(self, tokens: Tensor, cache: SlotCache | None, at: Tensor) -> Tensor:
        """Scores of the tokens that follow those at the places `at` of a chunk. With a cache, the
        chunk follows the cached tokens; without one, it is the whole text.

        Shapes: tokens (N, L), at (N, M) -> (N, M, vocabulary).
        """
        scores = self(tokens)
        return states_at(scores[0] if isinstance(scores, (tuple, list)) else scores, at)

    def generate(self, tokens: Any, max_new_tokens: int = 256, **options: Any) -> Any:
        """The tokens that follow a prompt: `nn.generate` of this model."""
        return generate(self, tokens, max_new_tokens, **options)


class PlainModel(Generation):
    """Any function of tokens (N, L) that gives scores (N, L, vocabulary), as a model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        for name in ("context", "vocabulary", "end_token"):
            setattr(self, name, getattr(model, name, None))

    def __call__(self, tokens: Tensor) -> Any:
        return self.model(tokens)


class CapturedSteps:
    """Calls of models' `next_scores`, captured: a function for each set of sizes, so that each is a
    Program of its own, whatever came before."""

    def __init__(self) -> None:
        self.functions: dict[Any, Any] = {}
        self.counts: WeakKeyDictionary[Any, Counter[Any]] = WeakKeyDictionary()

    def __call__(self, model: Any, tokens: Tensor, cache: SlotCache | None, at: Tensor) -> Tensor:
        memory = None if cache is None or cache.memory is None else cache.memory[0][0].shape
        sizes = None if cache is None else (cache.capacity, cache.reach)
        key = (tokens.shape, at.shape, sizes, memory, flags.deterministic)
        counts = self.counts.setdefault(model, Counter())
        counts[key] += 1
        is_step = cache is None or tokens.shape[1] == 1
        if not hasattr(hooks, "optimize") or not (is_step or counts[key] >= CAPTURED_FROM):
            return model.next_scores(tokens, cache, at)
        if key not in self.functions:
            self.functions[key] = hooks.optimize(lambda m, x, c, i: m.next_scores(x, c, i))
        return self.functions[key](model, tokens, cache, at)


steps: CapturedSteps = CapturedSteps()
# One thread captures and computes with a model at a time.
computing: threading.RLock = threading.RLock()


class Writer:
    """Texts that a model continues, one in each slot: `feed` gives tokens to them and takes scores
    of the next ones. Whoever sets `lengths` back makes a text forget its end.

    Shapes: lengths (slots,).
    Example:
        >>> writer = Writer(model, 1, 16)  # doctest: +SKIP
        >>> writer.feed([[1, 2, 3]]).shape  # doctest: +SKIP
        (1, 50)
    """

    def __init__(self, model: Any, slots: int, capacity: int, context: int | None = None) -> None:
        self.model = model
        self.slots = slots
        self.context = context
        self.cache: Any = model.make_slots(slots, capacity)
        self.lengths: np.ndarray = np.zeros(slots, np.int64)
        self.texts: list[list[int]] = [[] for _ in range(slots)]  # if there is no cache
        whole = -(-capacity // 16) * 16
        self.sizes: list[int] = sorted({max(64, -(-whole // 64) * 16), max(64, whole)})
        if context is not None:
            self.sizes = sorted({min(size, context) for size in self.sizes})

    def feed(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Append tokens to the texts; returns the scores of the next token of each. A row without
        tokens leaves its text unchanged, and its scores mean nothing.

        Shapes: slots lists -> (slots, vocabulary).
        """
        if self.cache is None:
            return self.feed_whole(rows)
        self.make_room(rows)
        scores: Any = None
        start, longest = 0, max(map(len, rows))
        chunks = [min(size, self.context or size) for size in CHUNKS]
        while start < longest:
            rest = longest - start
            size = chunk_size(rest, chunks)
            parts = [row[start : start + size] for row in rows]
            at = np.array([[max(len(part) - 1, 0)] for part in parts])
            part_scores = self.call(padded(parts, size), at)[:, 0]
            if scores is None:
                scores = part_scores if longest <= size else part_scores.copy()
            else:
                here = np.array([bool(part) for part in parts])
                scores[here] = part_scores[here]
            start += size
        return scores

    def feed_each(self, rows: Sequence[Sequence[int]], size: int) -> np.ndarray:
        """Append up to `size` tokens to each text; returns the scores of the token after each.

        Shapes: slots lists -> (slots, size, vocabulary).
        """
        self.make_room(rows)
        at = np.broadcast_to(np.arange(size), (self.slots, size))
        return self.call(padded([list(row) for row in rows], size), at)

    def feed_whole(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """`feed` without a cache: the texts are read from their beginning, or as far back as the
        context goes."""
        for text, row in zip(self.texts, rows, strict=True):
            text += row
        texts = [text[-self.context :] if self.context else text for text in self.texts]
        longest = max(map(len, texts))
        size = next((n for n in self.sizes if n >= longest), -(-longest // 64) * 64)
        at = np.array([[max(len(text) - 1, 0)] for text in texts])
        tokens, _ = padded(texts, size)
        with computing, no_grad():
            return steps(self.model, asarray(tokens), None, asarray(at)).numpy()[:, 0]

    def call(self, chunk: tuple[np.ndarray, np.ndarray], at: np.ndarray) -> np.ndarray:
        """Scores after places of a chunk, which goes to the ends of the texts."""
        tokens, counts = chunk
        size, reach = tokens.shape[1], LEAST_REACH
        while reach < int(self.lengths.max()) + size:
            reach *= 2
        with computing, no_grad():
            self.cache.set_lengths(self.lengths)
            self.cache.set_reach(reach if size >= LEAST_REACH else None)
            scores = steps(self.model, asarray(tokens), self.cache, asarray(at)).numpy()
        self.lengths = self.lengths + counts
        return scores

    def make_room(self, rows: Sequence[Sequence[int]]) -> None:
        """Double the cache's capacity until the tokens fit; the last position is for padding."""
        need = max(int(n) + len(row) for n, row in zip(self.lengths, rows, strict=True)) + 1
        if need > self.cache.capacity:
            old, capacity = self.cache, self.cache.capacity
            while capacity < need:
                capacity *= 2
            self.cache = self.model.make_slots(self.slots, capacity)
            self.cache.memory, self.cache.memory_mask = old.memory, old.memory_mask
            for slot, length in enumerate(self.lengths):
                self.cache.write(slot, old.read(slot, int(length)))


def chunk_size(rest: int, chunks: Sequence[int]) -> int:
    """The chunk for so many tokens: the first one that has room for them; a large one only if at
    least three quarters of it are in use."""
    at = next((i for i, n in enumerate(chunks) if n >= rest), len(chunks) - 1)
    is_waste = chunks[at] > LEAST_REACH and 4 * rest < 3 * chunks[at]
    return chunks[at - 1] if at and is_waste else chunks[at]


def generate(
    model: Any,
    tokens: Any,
    max_new_tokens: int = 256,
    *,
    attention_mask: Any = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    stop: Any = None,
    seed: int | Sequence[int] = 0,
    stream: Callable[[int, int], Any] | None = None,
    allowed: Callable[[int, list[int]], Any] | None = None,
    prefix: Prefix | None = None,
    draft: Any = None,
    decoder_tokens: Any = None,
    context: int | None = None,
) -> Any:
    """The tokens that follow prompts, a list for each; of a single prompt (L,), its list alone.

    Prompts are lists of unequal lengths, or (N, L) with an `attention_mask` that is 0 at padding on
    either side: a text is the same alone and among others. Each is continued by up to
    `max_new_tokens`, until the model's context is full, or until one of `stop` is written (a token,
    or several tokens or lists of them; the model's `end_token` if None). `TokenSampler`
    says how a token is chosen; row i draws by `seed + i`, or by `seed[i]`. With `num_beams` above
    1, the likeliest text that a search with so many beams finds is taken, its log-probability
    divided by its length to the power `length_penalty`.

    `stream(row, token)` is called for each token, and ends its row where it returns True;
    `allowed(row, new_tokens)` gives a mask of the tokens that may follow, or None. `prefix` is the
    result of `read_prefix` for the beginning of all prompts. `draft` is a small model of the same
    vocabulary that proposes tokens, which are checked several at once. An encoder-decoder reads
    `tokens` and begins its text with `decoder_tokens`, or its start token.

    Shapes: tokens (N, L), (L,) or N lists -> N lists of integers, or one.
    Raises: OptionError for empty prompts, prompts longer than the context, unknown tokens, options
        outside their ranges or that exclude each other, and scores that are not numbers.
    Source: Leviathan et al. 2023, arXiv:2211.17192 (draft); `TokenSampler` has the others.
    """
    sampler = TokenSampler(temperature, top_k, top_p, min_p, repetition_penalty)
    task = Task(model, tokens, attention_mask, decoder_tokens, max_new_tokens, stop, context)
    beams = check_integer("generate", "num_beams", num_beams, 1)
    if beams > 1 and (temperature or stream or draft is not None or prefix is not None):
        fix = "Leave out temperature, stream, draft and prefix, or num_beams."
        raise OptionError("generate", "a search with beams alone", f"num_beams={beams}", fix)
    if draft is not None and (temperature or not task.has_cache or allowed or prefix is not None):
        fix = "Set temperature=0, leave out allowed and prefix; take a model with make_slots."
        raise OptionError("generate", "a draft for the likeliest tokens", f"{temperature=}", fix)
    with evaluation(model):
        writer = task.writer(beams)
        if beams > 1:
            results = search(writer, task, sampler, length_penalty, beams, allowed)
        elif draft is not None:
            drafter = Writer(draft, len(task.rows), task.capacity, task.context)
            with evaluation(draft):
                results = write_with_draft(writer, drafter, task, sampler, stream)
        else:
            seeds = seeds_of(seed, len(task.rows))
            loop = TokenLoop(writer, task.rows, task.stops, sampler, seeds, stream, allowed)
            results = loop.run(task.limit, prefix)
    return results[0] if task.is_single else results


class Task:
    """The text to be written: `rows` of prompts, `stops`, at most `limit` tokens each; and the
    `memory` of an encoder-decoder, which has read its text."""

    def __init__(
        self,
        model: Any,
        tokens: Any,
        attention_mask: Any,
        decoder_tokens: Any,
        max_new_tokens: int,
        stop: Any,
        context: int | None,
    ) -> None:
        where = "generate"
        self.limit: int = check_integer(where, "max_new_tokens", max_new_tokens, 1)
        self.model: Generation | PlainModel
        self.model = model if isinstance(model, Generation) else PlainModel(model)
        self.context = self.model.context
        if context is not None:
            self.context = check_integer(where, "context", context, 1)
        self.memory: Any = None
        if hasattr(self.model, "read"):
            with evaluation(model), no_grad():
                *self.memory, is_single = self.model.read(tokens, attention_mask)
            count = self.memory[0][0][0].shape[0]
            tokens, attention_mask = [[self.model.start_token]] * count, None
            if decoder_tokens is not None:
                tokens = [decoder_tokens] if is_single else decoder_tokens
        self.rows: list[list[int]]
        self.rows, is_alone = checked_rows(tokens, attention_mask, self.model.vocabulary)
        self.is_single: bool = is_alone if self.memory is None else is_single
        self.stops: list[list[int]] = checked_stops(self.model.end_token if stop is None else stop)
        self.has_cache: bool = self.model.make_slots(1, 1) is not None
        longest = max(map(len, self.rows))
        if self.has_cache:
            if self.context is not None and longest > self.context:
                fix = "Cut it, or take a model with a longer context."
                raise OptionError(where, f"prompts of at most {self.context} tokens", longest, fix)
            self.limit = min(self.limit, (self.context or MOST_TOKENS) - longest + 1)
        self.capacity: int = capacity_of(longest + self.limit, self.context)

    def writer(self, beams: int) -> "Writer":
        """A writer with a slot for each beam of each row."""
        writer = Writer(self.model, len(self.rows) * beams, self.capacity, self.context)
        if self.memory is not None:
            cache = writer.cache
            memory, mask = self.memory
            cache.memory, cache.memory_mask = repeated(memory, mask, beams)
        return writer


class TokenLoop:
    """Token by token, for all rows at once."""

    def __init__(
        self,
        writer: Writer,
        rows: list[list[int]],
        stops: list[list[int]],
        sampler: TokenSampler,
        seeds: list[int],
        stream: Callable[[int, int], Any] | None,
        allowed: Callable[[int, list[int]], Any] | None,
    ) -> None:
        self.writer = writer
        self.rows = rows
        self.stops = stops
        self.sampler = sampler
        self.rngs: list[np.random.Generator] = [np.random.default_rng(seed) for seed in seeds]
        self.stream = stream
        self.allowed = allowed
        self.results: list[list[int]] = [[] for _ in rows]

    def run(self, limit: int, prefix: Prefix | None) -> list[list[int]]:
        """The new tokens of each row."""
        feeds: list[list[int]] = [list(row) for row in self.rows]
        if prefix is not None and self.writer.cache is not None:
            length = min(prefix.shared(row) for row in self.rows)
            for slot in range(len(self.rows)):
                self.writer.cache.write(slot, prefix, length)
                self.writer.lengths[slot] = length
            feeds = [row[length:] for row in feeds]
        active = range(len(self.rows))
        for count in range(limit):
            scores = self.writer.feed(feeds)
            feeds = [[] for _ in self.rows]
            for row in active:
                feeds[row] = [self.next_token(row, scores[row])]
            active = [row for row in active if feeds[row] and not self.has_ended(row)]
            feeds = [feed if row in active else [] for row, feed in enumerate(feeds)]
            if not active or count + 1 == limit:
                break
        return self.results

    def next_token(self, row: int, scores: np.ndarray) -> int:
        """Choose a row's next token."""
        new = self.results[row]
        if self.allowed is not None:
            scores = allowed_scores(scores, self.allowed(row, list(new)))
        before = [*self.rows[row], *new] if self.sampler.repetition_penalty != 1.0 else ()
        token = self.sampler.choose(scores, before, self.rngs[row])
        new.append(token)
        return token

    def has_ended(self, row: int) -> bool:
        """Tell of the row's last token; whether it is the last one."""
        new = self.results[row]
        is_told = self.stream is not None and self.stream(row, new[-1]) is True
        return is_told or ends_with(new, self.stops)


def read_prefix(model: Any, tokens: Sequence[int]) -> Prefix:
    """The keys and values of a text, for prompts that begin with it.

    Raises: OptionError for a model without a cache, and as `generate`.
    """
    (row,), _ = checked_rows(tokens, None, getattr(model, "vocabulary", None))
    slots = model.make_slots(1, 1) if isinstance(model, Generation) else None
    if slots is None or hasattr(model, "read"):
        fix = "Define make_slots and next_scores."
        raise OptionError("read_prefix", "a decoder with a cache", type_name(model), fix)
    with evaluation(model):
        writer = Writer(model, 1, capacity_of(len(row), model.context))
        writer.feed([row])
        return writer.cache.read(0, len(row), row)


def capacity_of(length: int, context: int | None) -> int:
    """The capacity of a cache for texts of a length: a power of two, or the context's limit."""
    most = FIRST_CAPACITY if context is None else min(FIRST_CAPACITY, -(-(context + 2) // 16) * 16)
    capacity = 64
    while capacity < length + 1 and capacity < most:
        capacity *= 2
    return min(capacity, most)


def seeds_of(seed: int | Sequence[int], rows: int) -> list[int]:
    """The seed of each row."""
    if isinstance(seed, Sequence):
        if len(seed) != rows:
            raise OptionError("generate", f"{rows} seeds", len(seed), "Pass one for each row.")
        return [check_integer("generate", "seed", x) for x in seed]
    return [check_integer("generate", "seed", seed) + row for row in range(rows)]


def repeated(memory: Any, mask: Any, times: int) -> tuple[Any, Any]:
    """The keys, values and mask of an encoder, for several beams of each row."""
    if times == 1:
        return memory, mask
    index = asarray(np.repeat(np.arange(memory[0][0].shape[0]), times))
    rows = [tuple(take(x, index, axis=0) for x in pair) for pair in memory]
    return rows, None if mask is None else take(mask, index, axis=0)


class evaluation:
    """A scope in which a module and those in it are in evaluation mode."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __enter__(self) -> None:
        modules = self.model.modules() if hasattr(self.model, "modules") else ()
        self.training: list[Any] = [module for module in modules if module.training]
        if self.training:
            self.model.eval()

    def __exit__(self, *details: Any) -> None:
        for module in self.training:
            module.training = True
