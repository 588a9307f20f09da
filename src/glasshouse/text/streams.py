"""Texts that appear token by token: whole characters, and ends that are texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from glasshouse.base.errors import BackendError, DTypeError, OptionError, optional, type_name
from glasshouse.ops.checks import check_several

__all__ = ["TextStream", "chat_prompt"]

BROKEN = "\ufffd"  # a tokenizer's text for the bytes of an incomplete character


class TextStream:
    """A text that tokens are added to. `add` returns its certain new characters: bytes wait until
    they form one, and a possible beginning of a stop until it is ruled out. A stop and all after it
    are not part of the text. `finish` returns the rest, without incomplete characters.

    Example:
        >>> tokenizer = gh.text.Tokenizer.train(["a b. c"] * 2, vocab_size=262)
        >>> stream = TextStream(tokenizer, stops=["."])
        >>> tokens = tokenizer.encode("a b. c").tokens[0]
        >>> "".join(stream.add(token) for token in tokens) + stream.finish(), stream.is_ended
        ('a b', True)
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str):
            stops = [stops]
        self.stops: list[str]
        self.stops = check_several("TextStream", stops, "stops as texts", "Pass a list of them.")
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                fix = "Pass texts of at least one character."
                raise DTypeError("TextStream", "stops as texts", repr(stop), fix)
        self.tokenizer = tokenizer
        self.text: str = ""
        self.is_ended: bool = False
        self.tokens: list[int] = []
        self.start: int = 0
        self.decoded: int = 0  # tokens before `decoded` are in the text
        self.shown: int = 0  # characters

    def add(self, token: int) -> str:
        """The text's further characters, as far as they are certain."""
        if self.is_ended:
            return ""
        self.tokens.append(int(token))
        before = self.decode(self.tokens[self.start : self.decoded])
        after = self.decode(self.tokens[self.start :])
        if len(after) > len(before) and not after.endswith(BROKEN):
            self.text += after[len(before) :]
            self.start, self.decoded = self.decoded, len(self.tokens)
        return self.certain()

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode([list(tokens)])[0] if tokens else ""

    def certain(self) -> str:
        """The characters that were not given yet, but for the beginning of a stop."""
        places = [at for stop in self.stops if (at := self.text.find(stop)) >= 0]
        if places:
            self.text, self.is_ended = self.text[: min(places)], True
        end = len(self.text)
        if not self.is_ended:
            end -= max((overlap(self.text, stop) for stop in self.stops), default=0)
        result, self.shown = self.text[self.shown : end], max(end, self.shown)
        return result

    def finish(self) -> str:
        """The rest of the text."""
        if not self.is_ended and self.decoded < len(self.tokens):
            before = self.decode(self.tokens[self.start : self.decoded])
            after = self.decode(self.tokens[self.start :])
            self.text += after[len(before) :].rstrip(BROKEN)
            self.decoded = len(self.tokens)
        result = self.certain() + self.text[self.shown :]
        self.is_ended, self.shown = True, len(self.text)
        return result


def overlap(text: str, stop: str) -> int:
    """How many last characters of a text are the first of a stop."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((n for n in sizes if text.endswith(stop[:n])), 0)


def chat_prompt(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    """The text that asks a model for the next message of a chat, by its tokenizer's template.

    `messages` have a "role" (system, user, assistant) and a "content" each.

    Raises: OptionError for a model without a template, a chat without messages, and messages that
        the template refuses; DTypeError for invalid messages; BackendError if jinja2 is not
        installed.
    Source: transformers, for the templates.
    """
    where, fix = "chat_prompt", "Pass messages with role and content, both texts."
    for message in check_several(where, messages, "messages", fix):
        texts = isinstance(message, Mapping) and [message.get("role"), message.get("content")]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DTypeError(where, "messages with role and content", type_name(message), fix)
    if not messages:
        raise OptionError(where, "at least one message", "none", fix)
    template = getattr(tokenizer, "chat_template", None)
    if template is None:
        raise OptionError(where, "a model with a chat template", "one without", "Write a prompt.")
    sandbox = optional(where, "jinja2 to be installed", "jinja2.sandbox", "text")
    marks = {f"{name}_token": token_of(tokenizer, f"{name}_id") for name in ("bos", "eos")}
    jinja = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(text: str) -> None:
        raise OptionError(where, "messages that the template takes", text, "Change them.")

    jinja.globals["raise_exception"] = refuse
    try:
        compiled = jinja.from_string(template)
        return compiled.render(messages=messages, add_generation_prompt=True, **marks)
    except (OptionError, BackendError):
        raise
    except Exception as error:  # whatever a template of others does
        fix = "Look into the template of the tokenizer."
        raise OptionError(where, "a template that works", error, fix) from error


def token_of(tokenizer: Any, name: str) -> str:
    """The text of a mark of the tokenizer, or none."""
    number = getattr(tokenizer, name, None)
    return "" if number is None else tokenizer.backend.id_to_token(number)
