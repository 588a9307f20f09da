"""Tokenizers: texts as numbers of words and parts of words, by the `tokenizers` package."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    OptionError,
    ShapeError,
    optional,
    type_name,
)
from glasshouse.ops.checks import check_integer, check_option, check_path, check_several

__all__ = ["Tokenizer", "TokenBatch"]

PADS = ("<pad>", "[PAD]", "<|endoftext|>", "<|im_end|>", "</s>")  # the first that a vocabulary has
BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BPE_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
KINDS = ("bpe", "wordpiece")


class TokenBatch(NamedTuple):
    """Texts of one length: integers (N, L); the mask is 0 at padding. The types tell the second
    text of a pair from the first."""

    tokens: np.ndarray
    attention_mask: np.ndarray
    token_type_ids: np.ndarray


def package() -> Any:
    """The `tokenizers` package."""
    return optional("Tokenizer", "tokenizers to be installed", "tokenizers", "text")


class Tokenizer:
    """Texts to numbers and back. Make one with `from_file` or `train`; `backend` is a tokenizer of
    the `tokenizers` package, for all that it can do beside. Those of models may have the numbers of
    the marks around texts, `bos_id` and `eos_id`, and `chat_template`, in Jinja.

    Raises: BackendError where tokenizers is not installed.
    Example:
        >>> tokenizer = Tokenizer.train(["low lower lowest"] * 2, vocab_size=270)
        >>> batch = tokenizer.encode(["low", "lower low"])
        >>> batch.tokens.shape == batch.attention_mask.shape
        True
        >>> tokenizer.decode(batch.tokens)
        ['low', 'lower low']
    """

    chat_template: str | None = None
    bos_id: int | None = None
    eos_id: int | None = None

    def __init__(self, backend: Any, pad_token: str | None = None) -> None:
        names = PADS if pad_token is None else (pad_token,)
        ids = [i for i in map(backend.token_to_id, names) if i is not None]
        if not ids and pad_token is not None:
            raise OptionError("Tokenizer", "a pad_token of the vocabulary", pad_token, "Check it.")
        self.backend = backend
        self.pad_id: int | None = ids[0] if ids else None
        backend.no_padding()

    @classmethod
    def from_file(cls, path: str | Path, pad_token: str | None = None) -> Self:
        """The tokenizer of a tokenizer.json, or of a folder with one.

        Raises: CheckpointError for a missing or damaged file.
        """
        path = check_path("Tokenizer.from_file", path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            fix = "Pass tokenizer.json, or its folder."
            raise CheckpointError("Tokenizer.from_file", "a file", str(path), fix)
        return cls.from_text(path.read_text(encoding="utf-8", errors="replace"), pad_token, path)

    @classmethod
    def from_text(
        cls, text: str, pad_token: str | None = None, path: str | Path = "the text"
    ) -> Self:
        """The tokenizer that the text of a tokenizer.json describes, which was read from `path`.

        Raises: CheckpointError for another text.
        """
        library = package()
        try:
            backend = library.Tokenizer.from_str(text)
        except Exception as error:  # the package raises Exception itself
            expected, fix = f"{path} to be a tokenizer.json", "Get it again."
            raise CheckpointError("Tokenizer.from_file", expected, error, fix) from None
        return cls(backend, pad_token)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        kind: str = "bpe",
        *,
        lowercase: bool = False,
        min_frequency: int = 2,
        end: bool = False,
    ) -> Self:
        """A tokenizer of `vocab_size` tokens (of fewer, if the texts have no more) that are learned
        from texts: "bpe" joins bytes that are often adjacent, so that it can write all texts;
        "wordpiece" has BERT's marks around each text, and [UNK] for characters that it has not
        seen. `end` puts </s> after each text of "bpe".

        Raises: OptionError for another kind or size, DTypeError for texts that are not strings.
        Source: Sennrich et al. 2016, arXiv:1508.07909; Wu et al. 2016, arXiv:1609.08144.
        """
        where = "Tokenizer.train"
        check_option(where, "kind", kind, KINDS)
        check_integer(where, "vocab_size", vocab_size, 5)
        texts = checked_texts(where, texts)
        make = train_bpe if kind == "bpe" else train_wordpiece
        backend, trainer = make(lowercase, vocab_size=vocab_size, min_frequency=min_frequency)
        backend.train_from_iterator(texts, trainer)
        frame = ("$A </s>", "$A </s> $B </s>") if end else ("$A", "$A $B:1")
        if kind == "wordpiece":
            frame = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
        marks = [(t, backend.token_to_id(t)) for t in ("[CLS]", "[SEP]", "</s>")]
        backend.post_processor = package().processors.TemplateProcessing(
            single=frame[0], pair=frame[1], special_tokens=[m for m in marks if m[1] is not None]
        )
        return cls(backend)

    def __len__(self) -> int:
        return self.backend.get_vocab_size()

    def __repr__(self) -> str:
        return f"Tokenizer({type(self.backend.model).__name__}, {len(self)} tokens)"

    def token_id(self, token: str) -> int:
        """The number of a token of the vocabulary.

        Raises: OptionError for an unknown token.
        """
        number = self.backend.token_to_id(token)
        if number is None:
            fix = "Take one of backend.get_vocab()."
            raise OptionError("Tokenizer", "a token of the vocabulary", repr(token), fix)
        return number

    def encode(
        self,
        texts: str | Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        length: int | None = None,
        multiple: int = 1,
        side: str = "right",
        special: bool = True,
    ) -> TokenBatch:
        """Texts, or pairs of them, as numbers. Longer ones than `max_length` are cut; all are
        padded on that `side` to `length`, or to the longest, in whole multiples of `multiple`.
        `special` adds the marks around texts.

        Shapes: N texts -> three times (N, L).
        Raises: DTypeError for texts that are not strings, ShapeError for texts that do not fit,
            OptionError for a vocabulary without a token for padding where texts differ in length.
        """
        where = "Tokenizer.encode"
        texts = checked_texts(where, [texts] if isinstance(texts, str) else texts)
        inputs: list[Any] = texts
        if pairs is not None:
            pairs = checked_texts(where, pairs)
            if len(pairs) != len(texts):
                got = f"{len(texts)} and {len(pairs)}"
                raise ShapeError(where, "a second text for each", got, "Pass as many.")
            inputs = list(zip(texts, pairs, strict=True))
        self.backend.no_truncation()
        if max_length is not None:
            most = check_integer(where, "max_length", max_length, 1)
            marks = self.backend.num_special_tokens_to_add(pairs is not None) * special
            check_integer(where, "max_length", most, marks + 1)
            self.backend.enable_truncation(most)
        rows = self.backend.encode_batch(inputs, add_special_tokens=special)
        lengths = [len(row.ids) for row in rows]
        whole = check_integer(where, "multiple", multiple, 1)
        size = -(-max(lengths, default=0) // whole) * whole if length is None else length
        if max(lengths, default=0) > size:
            got = f"one of {max(lengths)} tokens"
            raise ShapeError(where, f"texts of at most {size} tokens", got, "Set max_length too.")
        if self.pad_id is None and any(n < size for n in lengths):
            fix = "Pass pad_token to Tokenizer.from_file."
            raise OptionError(where, "a token for padding", "none in the vocabulary", fix)
        return self.padded(rows, size, check_option(where, "side", side, ("right", "left")))

    def padded(self, rows: Any, size: int, side: str) -> TokenBatch:
        """The package's encodings as arrays of one length."""
        shape = (len(rows), size)
        fill = self.pad_id or 0
        batch = TokenBatch(np.full(shape, fill), np.zeros(shape, int), np.zeros(shape, int))
        for i, row in enumerate(rows):
            start = 0 if side == "right" else size - len(row.ids)
            part = slice(start, start + len(row.ids))
            values = (row.ids, 1, row.type_ids)
            for array, value in zip(batch, values, strict=True):
                array[i, part] = value
        return batch

    def decode(self, tokens: Any, skip_special: bool = True) -> list[str]:
        """The texts of rows of numbers, without marks and padding unless skip_special is False.

        Shapes: (N, L) -> N texts.
        Raises: ShapeError for another number of axes, OptionError for a number that is not a token.
        """
        where = "Tokenizer.decode"
        rows = np.asarray(tokens)
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            got = f"{rows.dtype.name} {rows.shape}"
            raise ShapeError(where, "integers (N, L)", got, "Pass rows of tokens.")
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            got = rows.max() if rows.max() >= len(self) else rows.min()
            raise OptionError(where, f"tokens from 0 to {len(self) - 1}", got, "Check the model.")
        return self.backend.decode_batch(rows.tolist(), skip_special_tokens=skip_special)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, which `from_file` and transformers read; a folder gets one."""
        path = check_path("Tokenizer.save", path)
        path = path / "tokenizer.json" if path.is_dir() else path
        path.write_text(self.backend.to_str(), encoding="utf-8")


def checked_texts(where: str, texts: Any) -> list[str]:
    """The texts as a list."""
    fix = "Pass strings that can be written as UTF-8."
    texts = check_several(where, texts, "texts", fix)
    for i, text in enumerate(texts):
        is_whole = isinstance(text, str) and not any("\ud800" <= c <= "\udfff" for c in text)
        if not is_whole:
            got = repr(text) if isinstance(text, str) else type_name(text)
            raise DTypeError(where, f"text {i} to be a string of characters", got, fix)
    return texts


def train_bpe(lowercase: bool, **options: Any) -> tuple[Any, Any]:
    """An empty tokenizer of bytes, and its trainer."""
    library = package()
    backend = library.Tokenizer(library.models.BPE())
    if lowercase:
        backend.normalizer = library.normalizers.Lowercase()
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    options |= {"initial_alphabet": sorted(alphabet), "show_progress": False}
    return backend, library.trainers.BpeTrainer(special_tokens=list(BPE_TOKENS), **options)


def wordpiece(
    vocabulary: Any = None,
    unknown: str = "[UNK]",
    lowercase: bool = True,
    strip_accents: bool | None = None,
) -> Any:
    """A tokenizer as BERT's."""
    library = package()
    backend = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token=unknown))
    options = {"lowercase": lowercase, "strip_accents": strip_accents}
    backend.normalizer = library.normalizers.BertNormalizer(**options)
    backend.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    backend.decoder = library.decoders.WordPiece()
    return backend


def train_wordpiece(lowercase: bool, **options: Any) -> tuple[Any, Any]:
    """An empty tokenizer as BERT's, and its trainer."""
    marks = list(BERT_TOKENS)
    trainers = package().trainers
    trainer = trainers.WordPieceTrainer(special_tokens=marks, show_progress=False, **options)
    return wordpiece(lowercase=lowercase), trainer
