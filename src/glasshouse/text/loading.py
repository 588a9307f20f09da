"""`gh.load`: the objects of `gh.save`, and whole models with their tokenizers."""

import json
from pathlib import Path
from typing import Any

from glasshouse.base import upper_storeys
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import CheckpointError, OptionError
from glasshouse.interop import saved_trees
from glasshouse.interop.gguf import MAGIC, GgufFile
from glasshouse.ops.checks import check_path
from glasshouse.text.models.gguf import from_gguf
from glasshouse.text.models.pretrained import from_pretrained
from glasshouse.text.tokenizers import Tokenizer
from glasshouse.text.vocabularies import PREFIX, tokenizer_from_metadata

__all__ = ["load", "load_model"]


def load(f: Any, map_location: Any = None, *, weights_only: bool = True, **options: Any) -> Any:
    """Load an object that `gh.save` wrote to the path or binary file `f`; from other safetensors
    files their tensors by name, from checkpoints their parts; from a GGUF file, or a folder with
    config.json, a model with its tokenizer, for which `options` are those of `text.load_model`;
    from a file that ends in .onnx its network, by `gh.onnx.load`. Tensors have no requires_grad,
    except a network's. `map_location` has no effect: there is one device.

    Raises: CheckpointError for a missing, damaged or pickled file; OptionError for weights_only
        =False, which would unpickle, and for options of a model where there is none.
    Source: PyTorch.
    """
    is_open = hasattr(f, "read")
    path = None if is_open else check_path("load", f)
    if path is not None and is_model(path):
        return load_model(path, **options)
    if path is not None and path.suffix == ".onnx" and not options:
        return upper_storeys.load(upper_storeys.ONNX)(path)
    if options:
        fix = "Pass a GGUF file, or a folder with config.json."
        raise OptionError("load", "no options but of models", ", ".join(options), fix)
    return saved_trees.load(f, map_location, weights_only=weights_only)


def is_model(path: Path) -> bool:
    """Whether a path is a folder, or a GGUF file."""
    if path.is_dir():
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def load_model(
    path: str | Path,
    *,
    packed: bool = True,
    dtype: DTypeLike | None = None,
    tokenizer: str | Path | None = None,
    **options: Any,
) -> Any:
    """The model of a GGUF file, or of a folder with config.json and safetensors files (or with one
    GGUF file), in evaluation mode. Its attribute `tokenizer` is the one of the file or folder, or
    of the path `tokenizer`; None if there is none. Quantized matrices stay `packed`; other weights
    have `dtype`. Files are mapped into memory and must not be written to while the model is in use.
    `options` are those of `text.models.from_pretrained`.

    Raises: CheckpointError for a missing or damaged file; OptionError for another kind of model.
    Source: transformers and llama.cpp, for the files.
    """
    path = check_path("load_model", path)
    ggufs = [] if not path.is_dir() or (path / "config.json").exists() else [*path.glob("*.gguf")]
    path = ggufs[0] if len(ggufs) == 1 else path
    if path.is_dir():
        model = from_pretrained(path, dtype=dtype, **options)
        own = tokenizer_of_folder(path) if tokenizer is None else None
    elif options:
        got, fix = ", ".join(options), "Leave them out: the file says it."
        raise OptionError("load_model", "no such options for a GGUF file", got, fix)
    else:
        file = GgufFile(path)
        model = from_gguf(file, packed, dtype)
        has_own = tokenizer is None and f"{PREFIX}model" in file.metadata
        own = tokenizer_from_metadata(file.metadata) if has_own else None
    model.tokenizer = own if tokenizer is None else Tokenizer.from_file(tokenizer)
    return model


def tokenizer_of_folder(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, with its chat template and marks; None if there is none."""
    if not (folder / "tokenizer.json").is_file():
        return None
    tokenizer = Tokenizer.from_file(folder)
    try:
        values = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tokenizer
    except (OSError, ValueError) as error:
        expected = "tokenizer_config.json to be JSON"
        raise CheckpointError("load_model", expected, error, "Get it again.") from error
    values = values if isinstance(values, dict) else {}
    template = values.get("chat_template")
    tokenizer.chat_template = template if isinstance(template, str) else None
    for name in ("bos", "eos"):
        mark = values.get(f"{name}_token")
        mark = mark.get("content") if isinstance(mark, dict) else mark
        number = tokenizer.backend.token_to_id(mark) if isinstance(mark, str) else None
        setattr(tokenizer, f"{name}_id", number)
    return tokenizer
