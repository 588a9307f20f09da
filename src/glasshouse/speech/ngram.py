"""Language models of word sequences (n-grams): trained from texts, read from ARPA files, scored."""

import gzip
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    OptionError,
    optional,
    type_name,
)
from glasshouse.data.formats import read_lines
from glasshouse.ops.checks import check_integer, check_path

__all__ = ["KenLM", "LanguageModel", "NGramModel", "load_language_model", "train_ngrams"]

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
LN_10 = math.log(10)
NEVER = -99.0  # log₁₀ of the probability of <s>, by convention
FALLBACK = 0.5, 1.0, 1.5  # discounts where counts of counts give none, as in KenLM

Gram = tuple[str, ...]


class LanguageModel(Protocol):
    """Anything that scores one word after another: n-grams, or a network with a state.

    States are values that can be keys of a dict; equal states score alike. A model may also have
    `words()`, its vocabulary, and `no_context()`, a state without words before, which lets a
    decoder look ahead."""

    def start(self) -> Any:
        """Return the state before the first word."""

    def score(self, state: Any, word: str) -> tuple[Any, float]:
        """(the state after the word, ln p(word | state))."""

    def finish(self, state: Any) -> float:
        """Return ln p(the text ends | state)."""

    def __contains__(self, word: str) -> bool: ...


class NGramModel:
    """p(word | the words before) from a table of n-grams, with backing off to shorter ones. A state
    is the number of the longest n-gram in the table that the text so far ends with.

    Shapes: probabilities {(w₁, …, wₙ): log₁₀ p(wₙ | w₁ … wₙ₋₁)}, backoffs {(w₁, …, wₙ): log₁₀ of
        the factor for shorter contexts}, as in ARPA files.
    Raises: OptionError for a table without single words, or an n-gram without its context.
    Source: Katz 1987; the table as a trie with links to suffixes, Aho & Corasick 1975.
    Example:
        >>> model = train_ngrams(["the cat sat", "the cat ran"], order=2)
        >>> state, _ = model.score(model.start(), "the")
        >>> model.score(state, "cat")[1] > model.score(state, "ran")[1]
        True
    """

    rest: list[int]

    def __init__(self, probabilities: dict[Gram, float], backoffs: dict[Gram, float]) -> None:
        self.probabilities = probabilities
        self.backoffs = backoffs
        self.order: int = max(map(len, probabilities), default=0)
        self.ids: dict[str, int] = {
            gram[0]: i for i, gram in enumerate(g for g in probabilities if len(g) == 1)
        }
        if not self.ids:
            fix = "Pass probabilities of (word,) for each word."
            raise OptionError("NGramModel", "n-grams of one word", "none", fix)
        self.size: int = len(self.ids)
        self.children: dict[int, int] = {}  # node · size + word -> node
        self.log_p: list[float] = [0.0]
        self.log_backoff: list[float] = [0.0]
        self.suffix: list[int] = [0]
        self.rest = [0]  # the shortest state that scores all that follows as this one does
        self.grow()

    def grow(self) -> None:
        """Make the trie from the table, shorter n-grams first, as links lead to those."""
        has_children = {gram[:-1] for gram in self.probabilities}
        node_of: dict[Gram, int] = {(): 0}
        for gram in sorted(self.probabilities, key=len):
            parent, word = node_of.get(gram[:-1]), self.ids.get(gram[-1])
            if parent is None or word is None:
                expected = f"the context of {' '.join(gram)!r} among the n-grams"
                raise OptionError("NGramModel", expected, "none", "Write the model with it.")
            node = node_of[gram] = len(self.log_p)
            backoff = self.backoffs.get(gram, 0.0)
            link = self.child(self.suffix[parent], word) if parent else 0
            self.children[parent * self.size + word] = node
            self.suffix.append(link)
            self.log_p.append(self.probabilities[gram] * LN_10)
            self.log_backoff.append(backoff * LN_10)
            self.rest.append(node if gram in has_children or backoff else self.rest[link])

    def child(self, node: int, word: int) -> int:
        """The longest n-gram that ends with `word` after a suffix of the node's."""
        while node and node * self.size + word not in self.children:
            node = self.suffix[node]
        return self.children[node * self.size + word]

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    def words(self) -> list[str]:
        """The vocabulary without the signs <s>, </s> and <unk>."""
        return [word for word in self.ids if word not in (BEGIN, END, UNKNOWN)]

    def start(self) -> int:
        """Return the state after <s>, or of no context if the model has no <s>."""
        return self.rest[self.child(0, self.ids[BEGIN])] if BEGIN in self.ids else 0

    def no_context(self) -> int:
        """Return the state of a text of which nothing is known."""
        return 0

    def score(self, state: int, word: str) -> tuple[int, float]:
        """(the state after the word, ln p(word | state)); an unknown word counts as <unk>, and has
        probability 0 if the model has no <unk>."""
        number = self.ids.get(word)
        if number is None:
            number = self.ids.get(UNKNOWN)
            if number is None:
                return 0, -math.inf
        total, key = 0.0, state * self.size + number
        while key not in self.children:
            total += self.log_backoff[state]
            state = self.suffix[state]
            key = state * self.size + number
        node = self.children[key]
        return self.rest[node], total + self.log_p[node]

    def finish(self, state: int) -> float:
        """Return ln p(</s> | state), or 0 if the model has no </s>."""
        return self.score(state, END)[1] if END in self.ids else 0.0

    def score_text(self, text: str | Sequence[str], ends: bool = True) -> float:
        """ln p of a text, words separated by spaces or a list of them; with `ends` of its end too.

        Example:
            >>> round(train_ngrams(["a b", "a c"], order=2).score_text("a b"), 3)
            -1.991
        """
        state, total = self.start(), 0.0
        for word in words_of(text):
            state, gain = self.score(state, word)
            total += gain
        return total + (self.finish(state) if ends else 0.0)

    def perplexity(self, texts: Iterable[str | Sequence[str]]) -> float:
        """exp of the mean surprise for each word and end of these texts."""
        rows = [list(words_of(text)) for text in texts]
        count = sum(len(row) + 1 for row in rows)
        return math.exp(-sum(map(self.score_text, rows)) / count) if count else math.nan

    def save_arpa(self, path: str | Path) -> None:
        """Write the table as an ARPA file, compressed if the name ends with .gz."""
        levels: dict[int, list[Gram]] = defaultdict(list)
        for gram in self.probabilities:
            levels[len(gram)].append(gram)
        path = check_path("NGramModel.save_arpa", path)
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "wt", encoding="utf-8") as file:
            file.write("\\data\\\n")
            file.writelines(f"ngram {n}={len(levels[n])}\n" for n in sorted(levels))
            for n in sorted(levels):
                file.write(f"\n\\{n}-grams:\n")
                for gram in levels[n]:
                    tail = f"\t{self.backoffs[gram]:.7g}" if gram in self.backoffs else ""
                    file.write(f"{self.probabilities[gram]:.7g}\t{' '.join(gram)}{tail}\n")
            file.write("\n\\end\\\n")

    @classmethod
    def from_arpa(cls, path: str | Path) -> "NGramModel":
        """Read an ARPA file, compressed if its name ends with .gz.

        Raises: CheckpointError for a missing file, or a line that is no n-gram, with its number.
        Source: Doug Paul's format, as SRILM and KenLM write it.
        """
        probabilities: dict[Gram, float] = {}
        backoffs: dict[Gram, float] = {}
        for gram, log_p, backoff in arpa_lines(path):
            probabilities[gram] = log_p
            if backoff is not None:
                backoffs[gram] = backoff
        return cls(probabilities, backoffs)


def words_of(text: str | Sequence[str]) -> Sequence[str]:
    return text.split() if isinstance(text, str) else text


def arpa_lines(path: str | Path) -> Iterator[tuple[Gram, float, float | None]]:
    """(n-gram, log₁₀ p, log₁₀ of the backoff or None) of each line of an ARPA file."""
    order, promised, counts, ended = 0, Counter[int](), Counter[int](), False
    for number, line in enumerate(read_lines("NGramModel.from_arpa", path), 1):
        line = line.strip()
        parts = line.split()
        try:
            if not parts or line == "\\data\\":
                continue
            if line == "\\end\\":
                ended = True
                break
            if line.startswith("ngram ") and not order:
                size, count = line[6:].split("=")
                promised[int(size)] = int(count)
            elif line.startswith("\\") and line.endswith("-grams:"):
                order = int(line[1:-7])
            elif order:
                backoff = float(parts[order + 1]) if len(parts) > order + 1 else None
                if not order + 1 <= len(parts) <= order + 2:
                    raise ValueError(f"{len(parts)} parts")
                counts[order] += 1
                yield tuple(parts[1 : order + 1]), float(parts[0]), backoff
        except ValueError as error:
            expected = f"an n-gram of {order} words in line {number} of {path}"
            got, fix = f"{line:.60} ({error})", "Mend the line."
            raise CheckpointError("NGramModel.from_arpa", expected, got, fix) from None
    if not ended or counts != promised:
        expected = f"{dict(promised)} n-grams by their lengths and \\end\\ in {path}"
        got, fix = f"{dict(counts)}", "Copy the file again: it is cut off."
        raise CheckpointError("NGramModel.from_arpa", expected, got, fix)


class KenLM:
    """A model in a file of KenLM, ARPA or binary, through the package `kenlm`.

    Raises: BackendError if the package is missing, CheckpointError if there is no such file.
    Source: Heafield 2011, "KenLM: faster and smaller language model queries".
    """

    def __init__(self, path: str | Path) -> None:
        if not check_path("KenLM", path).is_file():
            raise CheckpointError("KenLM", "a file", str(path), "Check the path.")
        kenlm = optional("KenLM", "the package kenlm", "kenlm", "kenlm")
        self.model: Any = kenlm.Model(str(path))
        self.new_state: Any = kenlm.State
        self.order: Any = self.model.order

    def __contains__(self, word: str) -> bool:
        return word in self.model

    def start(self) -> Any:
        """Return the state after <s>."""
        state = self.new_state()
        self.model.BeginSentenceWrite(state)
        return state

    def no_context(self) -> Any:
        """Return the state of a text of which nothing is known."""
        state = self.new_state()
        self.model.NullContextWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[Any, float]:
        """(the state after the word, ln p(word | state))."""
        after = self.new_state()
        return after, self.model.BaseScore(state, word, after) * LN_10

    def finish(self, state: Any) -> float:
        """Return ln p(</s> | state)."""
        return self.score(state, END)[1]


def load_language_model(path: str | Path) -> NGramModel | KenLM:
    """The model of an ARPA file (.arpa, .arpa.gz, .lm); of another one as KenLM's binary.

    Raises: CheckpointError for a missing file; BackendError if `kenlm` is needed and missing.
    """
    name = check_path("load_language_model", path).name.removesuffix(".gz")
    return NGramModel.from_arpa(path) if name.endswith((".arpa", ".lm")) else KenLM(path)


def train_ngrams(texts: Iterable[str | Sequence[str]], order: int = 3) -> NGramModel:
    """An n-gram model with interpolated modified Kneser-Ney smoothing. A word's probability is its
    count less a discount, over the context's count. The discounted mass goes to the next shorter
    context, which counts distinct preceding words, and in the end to a uniform distribution over
    the vocabulary and <unk>.

    Shapes: texts, strings of words with spaces between, or lists of words (or of letters).
    Raises: OptionError for an order below 1 or texts without a word.
    Source: Chen & Goodman 1998, sec. 4.1.6; Heafield et al. 2013 (<s>, <unk>, fallbacks).
    Example:
        >>> model = train_ngrams(["a b a", "b a"], order=2)
        >>> state = model.start()
        >>> rows = [model.score(state, word)[1] for word in ("a", "b", "</s>", "<unk>")]
        >>> round(sum(math.exp(row) for row in rows), 6)
        1.0
    """
    order = check_integer("train_ngrams", "order", order, 1)
    counts = adjusted_counts(texts, order)
    if not any(gram[0] not in (BEGIN, END) for gram in counts[0]):
        raise OptionError("train_ngrams", "texts with words", "none", "Pass one or more.")
    vocabulary = len(counts[0]) + ((UNKNOWN,) not in counts[0])
    log_p: dict[Gram, float] = {}
    backoffs: dict[Gram, float] = {}
    shorter: dict[Gram, float] = {(): 1 / vocabulary}
    for n, level in enumerate(counts, 1):
        discounts = discounts_of(level)
        totals: dict[Gram, float] = defaultdict(float)
        left: dict[Gram, float] = defaultdict(float)
        for gram, count in level.items():
            totals[gram[:-1]] += count
            left[gram[:-1]] += discounts[min(count, 3) - 1]
        probabilities: dict[Gram, float] = {}
        for gram, count in level.items():
            total, rest = totals[gram[:-1]], left[gram[:-1]] / totals[gram[:-1]]
            below = shorter[gram[1:]] if n > 1 else shorter[()]
            share = (count - discounts[min(count, 3) - 1]) / total
            probabilities[gram] = share + rest * below
        if n == 1:
            probabilities.setdefault((UNKNOWN,), left[()] / totals[()] / vocabulary)
        else:
            backoffs |= {context: math.log10(left[context] / totals[context]) for context in totals}
        log_p |= {gram: math.log10(p) for gram, p in probabilities.items()}
        if n == 1:
            log_p[BEGIN,] = NEVER
        shorter = probabilities
    return NGramModel(log_p, backoffs)


def adjusted_counts(texts: Iterable[str | Sequence[str]], order: int) -> list[Counter[Gram]]:
    """For each length, how often an n-gram stands in the texts if it is of the highest order or
    begins with <s>, else how many different words stand before it; <s> alone is left out."""
    check = "words with spaces between, or a list of words, for each text"
    raw: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for text in texts:
        if not isinstance(text, (str, list, tuple)):
            raise DTypeError("train_ngrams", check, type_name(text), "Decode it.")
        words = [BEGIN, *words_of(text), END]
        for n, level in enumerate(raw, 1):
            level.update(zip(*(words[i:] for i in range(n))))
    counts = [raw[-1]]
    for n in range(order - 1, 0, -1):
        level = Counter(gram[1:] for gram in raw[n])
        level.update({gram: count for gram, count in raw[n - 1].items() if gram[0] == BEGIN})
        counts.insert(0, level)
    counts[0].pop((BEGIN,), None)
    return counts


def discounts_of(level: Counter[Gram]) -> tuple[float, float, float]:
    """Discounts of counts of 1, 2 and 3 or more.

    Source: Chen & Goodman 1998, eq. 26.
    """
    once, twice, thrice, often = (sum(c == n for c in level.values()) for n in (1, 2, 3, 4))
    if not (once and twice and thrice):
        return FALLBACK
    y = once / (once + 2 * twice)
    discounts = 1 - 2 * y * twice / once, 2 - 3 * y * thrice / twice, 3 - 4 * y * often / thrice
    return discounts if all(0 < d <= i for i, d in enumerate(discounts, 1)) else FALLBACK
