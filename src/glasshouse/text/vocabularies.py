"""Tokenizers from the metadata of GGUF files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.text.tokenizers import Tokenizer, package, wordpiece

__all__ = ["tokenizer_from_metadata"]

PREFIX = "tokenizer.ggml."
UNKNOWN, CONTROL, OWN, BYTE = 2, 3, 4, 6  # types of tokens
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
AROUND = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Numbers of marks that a file may leave out, and whether the first and last mark stand around texts
# if it does not say so. Source: llama.cpp's defaults.
NUMBERS = {"bert": {"bos": 101, "seperator": 102, "unknown": 100, "padding": 0},
           "t5": {"eos": 1, "unknown": 2, "padding": 0}}  # fmt: skip
AROUND_TEXTS = {"gpt2": (False, False), "llama": (True, False), "t5": (False, True),
                "bert": (True, True)}  # fmt: skip
# How texts are split before bytes are joined, by tokenizer.ggml.pre. Source: llama.cpp's list.
SPLITS = {
    "default": "", "gpt-2": "", "smollm": "digits",
    "llama-bpe": rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{AROUND}",
    "qwen2": rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{AROUND}",
}  # fmt: skip


def tokenizer_from_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file holds: byte pairs ("gpt2"), pieces with scores ("llama", "t5")
    or parts of words ("bert"), with the marks that it puts around texts, `chat_template`, `bos_id`
    and `eos_id`.

    Raises: OptionError for another kind; CheckpointError for one that is damaged; BackendError
        where tokenizers is not installed.
    """
    where, values = "load", {n.removeprefix(PREFIX): v for n, v in metadata.items()}
    kind, pre = str(values.get("model")), str(values.get("pre", "default"))
    if kind not in AROUND_TEXTS or (kind == "gpt2" and pre not in SPLITS):
        others = ", ".join(list(AROUND_TEXTS)[1:])
        expected = f"{PREFIX}model of gpt2 with pre of {', '.join(SPLITS)}, or of {others}"
        fix = "Pass tokenizer= with the path of a tokenizer.json."
        raise OptionError(where, expected, f"{kind!r:.40} with pre {pre!r:.40}", fix)
    usual = {f"{name}_token_id": number for name, number in NUMBERS.get(kind, {}).items()}
    if "cls_token_id" in values:
        usual["bos_token_id"] = values["cls_token_id"]
    values = usual | values
    tokens = strings(values, "tokens")
    types = values.get("token_type") or [1] * len(tokens)
    if len(types) == len(tokens) and kind == "bert":
        tokens = [t if k == CONTROL else t[1:] if t.startswith("▁") else f"##{t}"
                  for t, k in zip(tokens, types, strict=True)]  # fmt: skip
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise damaged(f"{len(tokens)} tokens that differ, each with a type", len(types))
    try:
        backend = {"gpt2": byte_pairs, "bert": word_parts}.get(kind, pieces)(values, tokens)
        add_marks(backend, values, tokens, types)
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


def word_parts(values: Mapping[str, Any], tokens: list[str]) -> Any:
    """A tokenizer of the longest parts of words, as BERT's."""
    unknown = number_of(values, "unknown_token_id", tokens)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    options: dict[str, Any] = {"strip_accents": values.get("normalizer.strip_accents")}
    options["lowercase"] = values.get("normalizer.lowercase", True)
    return wordpiece(vocabulary, "" if unknown is None else tokens[unknown], **options)


def merged(tokens: list[str], scores: list[float], **options: Any) -> Any:
    """A model that joins characters to the pieces with the highest scores, as Llama 2's."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs: list[Any] = []
    for token, i in vocabulary.items():
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        fits = [(a, b) for a, b in cuts if a in vocabulary and b in vocabulary]
        fits.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        pairs += [(-scores[i], len(pairs) + k, pair) for k, pair in enumerate(fits)]
    pairs.sort()
    return package().models.BPE(vocabulary, [p[2] for p in pairs], fuse_unk=True, **options)


def pieces(values: Mapping[str, Any], tokens: list[str]) -> Any:
    """A tokenizer of pieces with scores: Llama 2's joins characters, T5's takes the pieces that are
    the likeliest together."""
    library, scores = package(), values.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise damaged("a score for each token", type(scores).__name__)
    if values["model"] == "t5":
        unknown = number_of(values, "unknown_token_id", tokens)
        model = library.models.Unigram(list(zip(tokens, scores, strict=True)), unknown)
    else:
        types = values.get("token_type") or [1] * len(tokens)
        mark = next((t for t, kind in zip(tokens, types, strict=True) if kind == UNKNOWN), None)
        model = merged(tokens, scores, byte_fallback=True, unk_token=mark)
    backend = library.Tokenizer(model)
    normalizers, decoders = library.normalizers, library.decoders
    steps: list[Any] = []
    if table := values.get("precompiled_charsmap"):
        steps.append(normalizers.Precompiled(character_table(table)))
    if values.get("remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(library.Regex(" {2,}"), " ")]
    begins = values.get("add_space_prefix", True)
    steps += [normalizers.Prepend("▁")] if begins else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    rest = [decoders.Strip(" ", 1, 0)] if begins else []
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *rest]
    backend.decoder = decoders.Sequence(chain)
    return backend


def character_table(values: list[int]) -> bytes:
    """Sentencepiece's table of the characters that stand for others: the bytes of a trie's units,
    their number first, then texts. The package does not check where units point to.

    Source: Yata et al. 2007, for the trie; sentencepiece, for units that hold a text's place.
    """
    table = np.asarray(values).astype(np.uint8)
    size = int(table[:4].view("<u4")[0])
    units, texts = table[4 : 4 + size].view("<u4"), table[4 + size :]
    is_leaf = units >> 31 == 1
    places = units[is_leaf] & 0x7FFFFFFF
    steps = (units >> 10) << ((units & 512) >> 6)
    follow = ((np.arange(len(units)) ^ steps) | 255)[~is_leaf]
    is_whole = len(units) and len(texts) and texts[-1] == 0 and follow.max(initial=0) < len(units)
    if not is_whole or places.max(initial=0) >= len(texts) or (texts[places] >> 6 == 2).any():
        raise damaged("a table of characters whose places exist", "others")
    return table.tobytes()


def add_marks(backend: Any, values: Mapping[str, Any], tokens: list[str], types: list[int]) -> None:
    """Tell the tokenizer which tokens are no text, and which stand around texts."""
    library = package()
    marked = {CONTROL: True, OWN: False, UNKNOWN: True}
    added = [(t, marked[k]) for t, k in zip(tokens, types, strict=True) if k in marked]
    backend.add_tokens([library.AddedToken(t, special=s, normalized=False) for t, s in added])
    end = "seperator" if values["model"] == "bert" else "eos"
    around: list[list[str]] = []
    for name, usual in zip(("bos", end), AROUND_TEXTS[values["model"]], strict=True):
        number = number_of(values, f"{name}_token_id", tokens)
        is_there = number is not None and values.get(f"add_{name[:3]}_token", usual)
        around.append([tokens[number or 0]] if is_there else [])
    if any(around):
        single = [*around[0], "$A", *around[1]]
        pair = [*single, "$B:1", *(f"{mark}:1" for mark in around[1])]
        marks = [(mark, backend.token_to_id(mark)) for mark in around[0] + around[1]]
        backend.post_processor = library.processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=marks
        )
