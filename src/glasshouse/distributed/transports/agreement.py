"""Descriptions of calls in words, which ranks exchange when they call different things."""

from typing import Any

import numpy as np

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.transports.collectives import place_of_call
from glasshouse.ops.collective_requests import CollectiveRequest, current
from glasshouse.ops.exchange import EXCHANGES
from glasshouse.ops.process import ProcessGroup

TEXT_BYTES = 512  # of a rank's text; a longer one is cut


def call_text(name: str, array: np.ndarray, option: Any, group: ProcessGroup) -> str:
    """Name a call of a transport's method for errors, with the user's line."""
    return f"{call_words(name, array, option, group)}{place_of_call()}"


def call_words(name: str, array: np.ndarray, option: Any, group: ProcessGroup) -> str:
    """Name a call of a transport's method for errors: by the user's call."""
    call = CollectiveRequest(name, array.dtype.name, array.shape, EXCHANGES[name].words(option))
    text = str(current.request or call)
    if current.request is not None and current.request.name != name:
        text = f"{current.request}, by {call}"
    return f"{'barrier' if name == 'barrier' else text} of group {group.name}"


def bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def in_bytes(text: str) -> np.ndarray:
    """Encode a text in a fixed number of bytes, the same on all ranks."""
    return np.frombuffer(text.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0"), np.uint8).copy()


def in_words(data: np.ndarray) -> str:
    """Decode the text of `in_bytes`."""
    return data.tobytes().rstrip(b"\0").decode(errors="ignore")


def disagreement(where: str, group: ProcessGroup, data: Any) -> CollectiveError:
    """Error of ranks that call different things, from the texts of all in bytes."""
    texts = zip(group.ranks, map(in_words, data), strict=True)
    return CollectiveError(
        where,
        f"the same call on all ranks of group {group.name}",
        ", ".join(f"rank {rank} {text}" for rank, text in texts),
        "Let all ranks make the same calls in the same order.",
    )
