"""The words that a decoder may say, as a trie of their spellings."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError
from glasshouse.ops.checks import check_integer, check_several

__all__ = ["Alphabet", "Lexicon"]

OUTSIDE = 32  # tokens of a word outside of the trie that are counted, at most


class Alphabet:
    """The tokens of a recogniser: which is the blank, which stands between words (`silence`, or
    -1), which begin a word, and at which a word ends.

    Raises: OptionError for a blank or a boundary that is not among the tokens.
    """

    def __init__(self, where: str, tokens: Any, blank: int, boundary: str | None) -> None:
        self.tokens: list[Any] = check_several(
            where, tokens, "a list of tokens", "Pass e.g. ['', 'a']."
        )
        self.blank: int = check_integer(where, "blank", blank)
        self.boundary = boundary
        if blank >= len(self.tokens):
            got, fix = f"{blank} of {len(self.tokens)}", "Name its place."
            raise OptionError(where, "a blank among the tokens", got, fix)
        self.silence: int = self.tokens.index(boundary) if boundary in self.tokens else -1
        pieces = boundary is not None and self.silence < 0
        self.begins: np.ndarray = np.array(
            [pieces and token.startswith(boundary) for token in self.tokens]
        )
        self.breaks: Any = self.begins | (np.arange(len(self.tokens)) == self.silence)
        if boundary is not None and not self.breaks.any():
            expected = "a boundary that tokens are, or begin with"
            raise OptionError(where, expected, repr(boundary), "Pass one of the tokens, or None.")

    def spell(self, word: str) -> list[int] | None:
        """The numbers of a word's tokens, the longest first that fits; None if there are none."""
        numbers = {token: number for number, token in enumerate(self.tokens) if token}
        text = f"{self.boundary}{word}" if self.begins.any() else word
        spelling, at = [], 0
        longest = max(map(len, numbers), default=0)
        while at < len(text):
            ends = range(min(at + longest, len(text)), at, -1)
            end = next((end for end in ends if text[at:end] in numbers), None)
            if end is None:
                return None
            spelling.append(numbers[text[at:end]])
            at = end
        return spelling


class Lexicon:
    """Words by their spellings: node 0 is the root; -1, -2 … are outside of the trie, by so many
    tokens.

    `words` are strings, spelled by the alphabet, or {word: spellings}, each a list of tokens or of
    their numbers. With `strict` a word that cannot be spelled is an error, without it is left out.

    Raises: OptionError for a word that cannot be spelled.
    Example:
        >>> lexicon = Lexicon(["ab", "a"], Alphabet("example", ["", " ", "a", "b"], 0, " "))
        >>> lexicon.follow(np.array([0, 0]), np.array([2, 3])).tolist(), lexicon.words[1]
        ([1, -1], ['a'])
    """

    def __init__(
        self, words: Iterable[str] | Mapping[str, Any], alphabet: Alphabet, strict: bool = True
    ) -> None:
        self.size: int = len(alphabet.tokens)
        numbers = {token: number for number, token in enumerate(alphabet.tokens)}
        self.words: dict[int, list[str]] = {}  # that end at a node
        self.children: dict[int, int] = {}  # node · size + token -> node
        if not isinstance(words, Mapping):
            words = dict.fromkeys(check_several("Lexicon", words, "words", "Pass a list."))
        for word, spellings in words.items():
            for spelling in [alphabet.spell(word)] if spellings is None else spellings:
                path = [numbers.get(token, token) for token in spelling or ()]
                if not path or not all(isinstance(n, int) and 0 <= n < self.size for n in path):
                    if strict:
                        fix = "Leave it out, or give a spelling in the tokens."
                        raise OptionError("Lexicon", "words that tokens spell", repr(word), fix)
                    continue
                node = 0
                for number in path:
                    key = node * self.size + number
                    node = self.children.setdefault(key, len(self.children) + 1)
                self.words.setdefault(node, []).append(word)
        self.nodes: int = len(self.children) + 1
        self.keys: np.ndarray = np.array(sorted(self.children), np.int64)
        self.below: np.ndarray = np.array(
            [self.children[key] for key in self.keys.tolist()], np.int64
        )

    def follow(self, nodes: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The nodes below by these tokens, or outside, one token further."""
        outside = np.maximum(np.minimum(nodes, 0) - 1, -OUTSIDE)
        if not len(self.keys):
            return outside
        wanted = nodes * self.size + tokens
        at = self.keys.searchsorted(wanted) % len(self.keys)
        return np.where((self.keys[at] == wanted) & (nodes >= 0), self.below[at], outside)

    def step(self, node: int, token: int) -> int:
        """`follow` of one node and token."""
        key = node * self.size + token
        outside = max(min(node, 0) - 1, -OUTSIDE)
        return self.children.get(key, outside) if node >= 0 else outside

    def best_below(self, values: Mapping[int, float]) -> np.ndarray:
        """The best of the values of each node and all below it; the root is node 0."""
        best = np.full(self.nodes, -np.inf)
        best[list(values)] = list(values.values())
        parents = np.zeros(len(best), np.int64)
        parents[self.below] = self.keys // self.size
        for node in range(len(best) - 1, 0, -1):  # children have higher numbers
            best[parents[node]] = max(best[parents[node]], best[node])
        return best
