"""Texts of a given form, by the package llguidance."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from glasshouse.base.errors import OptionError, optional
from glasshouse.text.tokenizers import Tokenizer

__all__ = ["Grammar"]


class Grammar:
    """The tokens that may follow, so that a text matches a regular expression, or is JSON of a
    schema; `generate` takes it as `allowed`. The end may follow a complete text: `end_token`, or by
    default the tokenizer's.

    Raises: OptionError unless exactly one of the two is passed, and for an unusable one;
        BackendError if llguidance is not installed.
    Source: llguidance, for expressions and schemas.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        regex: str | None = None,
        json_schema: Any = None,
        end_token: int | None = None,
    ) -> None:
        where = "Grammar"
        library = optional(where, "llguidance to be installed", "llguidance", "grammar")
        if (regex is None) == (json_schema is None):
            fix = "Pass regex=… or json_schema=…."
            raise OptionError(where, "a regular expression or a schema", "both or none", fix)
        end = getattr(tokenizer, "eos_id", None) if end_token is None else end_token
        self.size: int = len(tokenizer)
        self.matcher_class: Any = library.LLMatcher
        options = {} if end is None else {"eos_token": end}
        self.tokenizer: Any = library.LLTokenizer(
            tokenizer.backend.to_str(), n_vocab=self.size, **options
        )
        if regex is not None:
            self.grammar: Any = self.matcher_class.grammar_from_regex(regex)
        else:
            text = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
            self.grammar = self.matcher_class.grammar_from_json_schema(text)
        error = self.matcher_class(self.tokenizer, self.grammar).get_error()
        if error:
            raise OptionError(where, "a usable form", error.splitlines()[0], "Correct it.")
        self.rows: dict[int, tuple[Any, list[int]]] = {}

    def __call__(self, row: int, tokens: Sequence[int]) -> np.ndarray:
        """Which tokens may follow those of a row.

        Shapes: -> booleans (vocabulary,).
        """
        matcher, before = self.rows.get(row, (None, []))
        if matcher is None or list(tokens[: len(before)]) != before:
            matcher, before = self.matcher_class(self.tokenizer, self.grammar), []
        for token in tokens[len(before) :]:
            matcher.consume_token(int(token))
        self.rows[row] = matcher, list(tokens)
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.size].astype(bool)
