"""Many texts at once: requests that come and go, in the slots of one cache."""

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glasshouse.autograd import no_grad
from glasshouse.base.errors import Explained, OptionError
from glasshouse.dispatch.hooks import hooks
from glasshouse.nn.generation import Prefix, SlotCache, TokenSampler, Writer
from glasshouse.nn.generation.rows import checked_rows, checked_stops
from glasshouse.nn.generation.sampling import allowed_scores
from glasshouse.nn.generation.writer import computing
from glasshouse.ops.index import scatter_set
from glasshouse.tensor import asarray
from glasshouse.tensor import eval as evaluate
from glasshouse.text.streams import TextStream

__all__ = ["Engine", "QueueFull", "TextRequest"]

CAPACITY = 2048  # positions of a slot, unless the context is shorter
REMEMBERED = 4  # prompts whose keys and values are kept for later ones that begin like them
FEWEST_SHARED = 32  # tokens that are worth it


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a text: the tokenizer's first, then the model's."""
    ends = (getattr(tokenizer, "eos_id", None), model.end_token)
    return list(dict.fromkeys(stop[0] for end in ends for stop in checked_stops(end)))


class QueueFull(Explained, RuntimeError):
    """A server has as many requests as may wait."""


class TextRequest:
    """A text to be written. `tell(text, end)` gets its parts, and at the end "stop", "length",
    "cancelled" or the error; it is called by the engine's thread."""

    def __init__(
        self,
        tokens: Sequence[int],
        limit: int,
        tell: Callable[[str, Any], None],
        sampler: TokenSampler | None = None,
        *,
        stops: Sequence[str] = (),
        seed: int = 0,
        allowed: Callable[[int, list[int]], Any] | None = None,
    ) -> None:
        self.tokens: list[int] = list(tokens)
        self.limit = limit
        self.tell = tell
        self.sampler: TokenSampler = TokenSampler() if sampler is None else sampler
        self.stops = stops
        self.allowed = allowed
        self.rng: np.random.Generator = np.random.default_rng(seed)
        self.results: list[int] = []
        self.is_cancelled: bool = False
        self.stream: Any = None  # the text, once there is a slot
        self.start: float = time.perf_counter()

    def say(self, text: str, end: Any) -> None:
        """Tell a part of the text. Where the listener fails, this request alone is cancelled."""
        try:
            self.tell(text, end)
        except Exception:  # such as of a loop that is closed
            self.is_cancelled = True

    def cancel(self) -> None:
        """Let the engine drop this request; nobody listens any more."""
        self.is_cancelled = True


class Engine:
    """Writes texts for requests in a thread of its own: a token for each slot at a time; a request
    gets a slot as soon as one is free, and at most `queue_size` wait.

    Raises: OptionError for a model without a cache, or that reads a text first.
    """

    def __init__(
        self, model: Any, tokenizer: Any, slots: int = 8, capacity: int = CAPACITY,
        queue_size: int = 64,
    ) -> None:  # fmt: skip
        if not isinstance(getattr(model, "make_slots", lambda *_: None)(1, 16), SlotCache) or (
            hasattr(model, "read")
        ):
            got, fix = type(model).__name__, "Take a decoder, such as a Llama."
            raise OptionError("Engine", "a decoder with a cache", got, fix)
        self.model = model
        self.tokenizer = tokenizer
        self.queue_size = queue_size
        self.context: int = min(model.context or capacity, capacity - 1)
        model.eval()
        evaluate(*model.parameters(), *model.buffers())  # once, before several threads read them
        self.ends: list[int] = end_tokens(model, tokenizer)
        self.writer: Writer = Writer(model, slots, capacity, self.context)
        self.reader: Writer = Writer(model, 1, capacity, self.context)
        self.rows: list[TextRequest | None] = [None] * slots
        self.waiting: deque[TextRequest] = deque()
        self.prefixes: deque[Prefix] = deque(maxlen=REMEMBERED)
        self.counts: Any = Counter()
        self.changed: threading.Condition = threading.Condition()
        self.is_closed: bool = False
        self.copy: Callable[..., Any] = getattr(hooks, "optimize", lambda fn: fn)(copy_slot)
        self.thread: threading.Thread
        self.thread = threading.Thread(target=self.work, name="glasshouse-serve", daemon=True)
        self.thread.start()

    def check(self, tokens: Any) -> list[int]:
        """The tokens of a prompt that fits.

        Raises: OptionError for an empty or too long prompt, or unknown tokens.
        """
        (row,), _ = checked_rows([tokens], None, self.model.vocabulary)
        if len(row) > self.context:
            got, fix = f"{len(row)}", "Cut it, or start the server with a larger --context."
            raise OptionError("serve", f"prompts of at most {self.context} tokens", got, fix)
        return row

    @property
    def is_alive(self) -> bool:
        """Whether the thread works."""
        return self.thread.is_alive()

    def embed(self, texts: Sequence[str]) -> tuple[list[np.ndarray], int]:
        """(for each text the mean of the decoder's states, of length 1; tokens that were read).

        Raises: OptionError for an empty or too long text.
        """
        model, vectors = self.model, []
        body = getattr(model, model.base_name or "", model)
        rows = [self.check(self.tokenizer.encode(text).tokens[0].tolist()) for text in texts]
        for row in rows:
            size = -(-len(row) // 16) * 16
            tokens = np.zeros((1, min(size, max(self.context, len(row)))), np.int64)
            tokens[0, : len(row)] = row
            with computing, no_grad():
                states = body(asarray(tokens)).numpy()[0, : len(row)]
            mean = states.mean(axis=0)
            vectors.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
        return vectors, sum(map(len, rows))

    def submit(self, request: TextRequest) -> None:
        """Let a request wait for a slot.

        Raises: QueueFull where too many wait.
        """
        request.limit = min(request.limit, self.context - len(request.tokens) + 1)
        with self.changed:
            if len(self.waiting) >= self.queue_size or self.is_closed:
                self.counts["refused"] += 1
                fix = "Try again in a moment."
                raise QueueFull("serve", f"at most {self.queue_size} waiting", "one more", fix)
            self.counts["requests"] += 1
            self.waiting.append(request)
            self.changed.notify()

    def close(self) -> None:
        """End the thread; unfinished texts are cancelled."""
        with self.changed:
            self.is_closed = True
            self.changed.notify()
        self.thread.join()

    def work(self) -> None:
        """Write until closed."""
        while True:
            with self.changed:
                while not (self.waiting or any(self.rows) or self.is_closed):
                    self.changed.wait()
                if self.is_closed:
                    break
            for slot in range(len(self.rows)):
                self.fill(slot)
            if any(self.rows):
                self.advance()
        for request in (*self.rows, *self.waiting):
            if request is not None:
                request.say("", "cancelled")

    def fill(self, slot: int) -> None:
        """Give a free slot to the next request, and read its prompt."""
        while self.rows[slot] is None and self.waiting:
            with self.changed:
                request = self.waiting.popleft()
            if request.is_cancelled:
                self.counts["cancelled"] += 1
                request.say("", "cancelled")
                continue
            self.rows[slot] = request
            try:
                request.stream = TextStream(self.tokenizer, request.stops)
                scores = self.read(slot, request.tokens)
                self.write(slot, scores)
                self.counts["first_token_seconds"] += time.perf_counter() - request.start
            except Exception as error:  # of this request alone
                self.end(slot, error)

    def read(self, slot: int, tokens: list[int]) -> np.ndarray:
        """Read a prompt into a slot; scores of the next token."""
        shared, prefix = max(
            ((prefix.shared(tokens), prefix) for prefix in self.prefixes),
            key=lambda pair: pair[0],
            default=(0, None),
        )
        begin = 0
        if prefix is not None and shared >= FEWEST_SHARED:
            self.reader.cache.write(0, prefix, shared)
            begin = shared
            self.counts["shared_tokens"] += shared
        self.reader.lengths[:] = begin
        scores = self.reader.feed([tokens[begin:]])[0].copy()
        if len(tokens) > FEWEST_SHARED and begin < len(tokens) - FEWEST_SHARED:
            self.prefixes.append(self.reader.cache.read(0, len(tokens), tokens))
        heads, capacity = self.writer.cache[0].shape[1:3]
        at = asarray(slot * heads * capacity + np.arange(heads * capacity))
        with computing, no_grad():
            self.copy(self.writer.cache, self.reader.cache, at)
        self.writer.lengths[slot] = len(tokens)
        self.counts["prompt_tokens"] += len(tokens)
        return scores

    def advance(self) -> None:
        """Write a token of each text."""
        feeds = [[] if row is None else row.results[-1:] for row in self.rows]
        try:
            scores = self.writer.feed(feeds)
        except Exception as error:  # of all: none of them can go on
            for slot in range(len(self.rows)):
                self.end(slot, error)
            return
        for slot, row in enumerate(self.rows):
            if row is not None:
                try:
                    self.write(slot, scores[slot])
                except Exception as error:
                    self.end(slot, error)

    def write(self, slot: int, scores: np.ndarray) -> None:
        """Choose a text's next token, and tell of it."""
        row = self.rows[slot]
        if row is None or row.is_cancelled:
            self.end(slot, "cancelled")
            return
        stream = row.stream
        if row.allowed is not None:
            scores = allowed_scores(scores, row.allowed(0, row.results))
        before = [*row.tokens, *row.results] if row.sampler.repetition_penalty != 1.0 else ()
        token = row.sampler.choose(scores, before, row.rng)
        row.results.append(token)
        self.counts["written_tokens"] += 1
        text = "" if token in self.ends else stream.add(token)
        if text:
            row.say(text, None)
        if token in self.ends or stream.is_ended:
            self.end(slot, "stop")
        elif len(row.results) >= row.limit:
            self.end(slot, "length")

    def end(self, slot: int, reason: Any) -> None:
        """Tell that a text has ended, and free its slot."""
        row, self.rows[slot] = self.rows[slot], None
        if row is None:
            return
        if isinstance(reason, str):
            self.counts[{"stop": "finished", "length": "finished"}.get(reason, reason)] += 1
            row.say("" if reason == "cancelled" else row.stream.finish(), reason)
        else:
            self.counts["failed"] += 1
            row.say("", reason)

    def metrics(self) -> str:
        """The counts, as Prometheus reads them."""
        numbers = {f"{name}_total": self.counts[name] for name in (
            "requests", "refused", "finished", "cancelled", "failed", "prompt_tokens",
            "written_tokens", "shared_tokens")}  # fmt: skip
        values = itertools.chain(numbers.items(), (
            ("first_token_seconds_total", self.counts["first_token_seconds"]),
            ("waiting", len(self.waiting)),
            ("slots", len(self.rows)),
            ("slots_in_use", sum(row is not None for row in self.rows)),
        ))  # fmt: skip
        return "".join(f"glasshouse_{name} {value}\n" for name, value in values)


def copy_slot(cache: SlotCache, other: SlotCache, at: Any) -> None:
    """Write the first slot of another cache to these rows."""
    for (layer, name), (source, _) in zip(cache.buffers(), other.buffers(), strict=True):
        buffer = getattr(layer, name)
        buffer.copy_(scatter_set(buffer.detach(), at, getattr(source, name), axis=0))
