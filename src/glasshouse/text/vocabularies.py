"""Tokenizers from the metadata of GGUF files."""

from collections.abc import Mapping
from typing import Any

from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.text.tokenizers import Tokenizer, package

__all__ = ["tokenizer_from_metadata"]

PREFIX = "tokenizer.ggml."
UNKNOWN, CONTROL, OWN, BYTE = 2, 3, 4, 6  # types of tokens
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
AROUND = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# How texts are split before bytes are joined, by tokenizer.ggml.pre. Source: llama.cpp's list.
SPLITS = {
    "default": "", "gpt-2": "", "smollm": "digits",
    "llama-bpe": rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{AROUND}",
    "qwen2": rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{AROUND}",
}  # fmt: skip


def tokenizer_from_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file holds: byte pairs ("gpt2") or pieces with scores ("llama"),
    with the marks that it puts around texts, `chat_template`, `bos_id` and `eos_id`.

    Raises: OptionError for another kind; CheckpointError for one that is damaged; BackendError
        where tokenizers is not installed.
    """
    where, values = "load", {n.removeprefix(PREFIX): v for n, v in metadata.items()}
    kind, pre = values.get("model"), values.get("pre", "default")
    if kind not in ("gpt2", "llama") or (kind == "gpt2" and pre not in SPLITS):
        expected = f"{PREFIX}model of gpt2 with pre of {', '.join(SPLITS)}, or llama"
        fix = "Pass tokenizer= with the path of a tokenizer.json."
        raise OptionError(where, expected, f"{kind!r:.40} with pre {pre!r:.40}", fix)
    tokens = strings(values, "tokens")
    types = values.get("token_type") or [1] * len(tokens)
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise damaged(f"{len(tokens)} tokens that differ, each with a type", len(types))
    try:
        backend = (byte_pairs if kind == "gpt2" else pieces)(values, tokens)
        add_marks(backend, values, tokens, types, kind == "llama")
    except (CheckpointError, OptionError):
        raise
    except Exception as error:  # the package raises Exception itself
        raise damaged("a vocabulary that fits its merges", error) from None
    pad = values.get("padding_token_id")
    name = tokens[pad] if type(pad) is int and 0 <= pad < len(tokens) else None
    tokenizer = Tokenizer(backend, name)
    template = metadata.get("tokenizer.chat_template")
    tokenizer.chat_template = template if isinstance(template, str) else None
    tokenizer.bos_id, tokenizer.eos_id = (
        number_of(values, name, tokens) for name in ("bos_token_id", "eos_token_id")
    )
    return tokenizer


def damaged(expected: str, got: Any) -> CheckpointError:
    fix = "Pass tokenizer= with the path of a tokenizer.json."
    return CheckpointError("load", f"{expected} in {PREFIX}*", f"{got!s:.200}", fix)


def strings(values: Mapping[str, Any], name: str) -> list[str]:
    texts = values.get(name)
    if not isinstance(texts, list) or not all(isinstance(x, str) for x in texts):
        raise damaged(f"a list of strings {name!r}", type(texts).__name__)
    return texts


def number_of(values: Mapping[str, Any], name: str, tokens: list[str]) -> int | None:
    """The number of a token that the metadata name, or None."""
    number = values.get(name)
    if number is None or (type(number) is int and 0 <= number < len(tokens)):
        return number
    raise damaged(f"{name} below {len(tokens)}", number)


def byte_pairs(values: Mapping[str, Any], tokens: list[str]) -> Any:
    """A tokenizer that joins bytes, as GPT-2's."""
    library, split = package(), SPLITS[values.get("pre", "default")]
    pairs = [tuple(merge.split(" ")) for merge in strings(values, "merges")]
    if any(len(pair) != 2 for pair in pairs):
        raise damaged("merges of two parts", "others")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    ignores = values.get("pre") == "llama-bpe"
    backend = library.Tokenizer(library.models.BPE(vocabulary, pairs, ignore_merges=ignores))
    rules = library.pre_tokenizers
    steps = [rules.ByteLevel(add_prefix_space=False, use_regex=split in ("", "digits"))]
    if split == "digits":
        steps.insert(0, rules.Digits(individual_digits=True))
    elif split:
        steps.insert(0, rules.Split(library.Regex(split), "isolated"))
    backend.pre_tokenizer = rules.Sequence(steps)
    backend.decoder = library.decoders.ByteLevel()
    return backend


def pieces(values: Mapping[str, Any], tokens: list[str]) -> Any:
    """A tokenizer that joins characters to the pieces with the highest scores, as Llama 2's."""
    library, scores = package(), values.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise damaged("a score for each token", type(scores).__name__)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs: list[Any] = []
    for token, i in vocabulary.items():
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        fits = [(a, b) for a, b in cuts if a in vocabulary and b in vocabulary]
        fits.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        pairs += [(-scores[i], len(pairs) + k, pair) for k, pair in enumerate(fits)]
    pairs.sort()
    types = values.get("token_type") or [1] * len(tokens)
    unknown = next((t for t, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None)
    options = {"byte_fallback": True, "fuse_unk": True, "unk_token": unknown}
    backend = library.Tokenizer(library.models.BPE(vocabulary, [p[2] for p in pairs], **options))
    normalizers, decoders = library.normalizers, library.decoders
    begins = values.get("add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if begins else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    rest = [decoders.Strip(" ", 1, 0)] if begins else []
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *rest]
    backend.decoder = decoders.Sequence(chain)
    return backend


def add_marks(
    backend: Any, values: Mapping[str, Any], tokens: list[str], types: list[int], begins: bool
) -> None:
    """Tell the tokenizer which tokens are no text, and which stand around texts."""
    library = package()
    marked = {CONTROL: True, OWN: False, UNKNOWN: True}
    added = [(t, marked[k]) for t, k in zip(tokens, types, strict=True) if k in marked]
    backend.add_tokens([library.AddedToken(t, special=s, normalized=False) for t, s in added])
    frame, marks = ["$A"], []
    ends = (("bos_token_id", "add_bos_token", begins), ("eos_token_id", "add_eos_token", False))
    for place, (name, flag, usual) in enumerate(ends):
        number = number_of(values, name, tokens)
        if values.get(flag, usual) and number is not None:
            frame.insert(place * len(frame), tokens[number])
            marks.append((tokens[number], number))
    if marks:
        backend.post_processor = library.processors.TemplateProcessing(
            single=" ".join(frame), special_tokens=marks
        )
