"""`gh.save` and `gh.load`: numbers, strings, tensors, and dicts, lists and tuples of them, in one
safetensors file. Nothing is pickled, so loading runs no code."""

import json
from typing import Any

from glasshouse.base import CheckpointError, OptionError
from glasshouse.dispatch.value import adopt
from glasshouse.interop.checkpoint import FORMAT, decode, encode
from glasshouse.interop.safetensors import read_safetensors, serialize, write_whole
from glasshouse.ops.checks import check_path

OBJECT = "glasshouse.object"


def save(obj: Any, f: Any) -> None:
    """Write an object to the path or binary file `f`: state dicts, numbers, strings, tensors, and
    dicts, lists and tuples of them. An existing file is replaced in one step.

    Raises: DTypeError for objects that cannot be stored (save a module's state_dict()),
        CheckpointError if the file cannot be written.
    Source: PyTorch, whose files are pickles.
    """
    tensors: dict[Any, Any] = {}
    text = json.dumps(encode(obj, "object", tensors), allow_nan=False)
    data = serialize(tensors, {OBJECT: text})
    if hasattr(f, "write"):
        f.write(data)
    else:
        write_whole(check_path("save", f), data)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Load the object that `gh.save` wrote to the path or binary file `f`; from other safetensors
    files the tensors by name, from checkpoints the parts. Tensors do not require grad.
    `map_location` has no effect: there is one device.

    Raises: CheckpointError for a missing, damaged or pickled file, OptionError for weights_only
        =False, which would unpickle.
    Source: PyTorch.
    """
    if not weights_only:
        fix = "Leave it out: files hold no pickles."
        raise OptionError("load", "weights_only=True", weights_only, fix)
    refuse_pickles(f)
    arrays, metadata = read_safetensors(f)
    for key in (OBJECT, FORMAT):
        if key in metadata:
            return decode(json.loads(metadata[key]), arrays)
    return {name: adopt(array) for name, array in arrays.items()}


def refuse_pickles(f: Any) -> None:
    """Refuse the files of torch.save: a zip file, or a pickle."""
    if hasattr(f, "read"):
        begin, start = f.tell(), f.read(2)
        f.seek(begin)
    else:
        start = first_bytes(check_path("load", f))
    if start in (b"PK", b"\x80\x02"):
        fix = "Load it with torch.load, and gh.save what interop.state_dict_from_torch makes of it."
        raise CheckpointError("load", "a file of gh.save or safetensors", "pickles", fix)


def first_bytes(path: Any) -> bytes:
    """The first 2 bytes of a file; none of one that is not there."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(2)
