"""Reasons of recompiles in terms of the user's program: the variable, its line, and the old and new
value."""

import re

from glasshouse.capture.guards.program import Guard, without_address

# Texts of guards and their form in the user's program, applied in this order.
WORDS = (
    (re.compile(r"G\['(\w+)'\]"), r"\1"),
    (re.compile(r"\.cell_contents\b"), ""),
    (re.compile(r"\._modules\['(\d+)'\]"), r"[\1]"),
    (re.compile(r"\._(?:parameters|modules|buffers)\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.__dict__\['tape_entry'\] is a Leaf"), " requires a gradient"),
    (re.compile(r"\.__dict__\['tape_entry'\] is None"), " requires no gradient"),
    (re.compile(r"\.__dict__\['(\w+)'\]"), r".\1"),
    (re.compile(r"\bstate\.records is True"), "gradients are recorded"),
    (re.compile(r"\bstate\.records is False"), "gradients are not recorded"),
)


def reason_of(guard: Guard) -> str:
    """The condition of a guard and the user's line that added it: "scale == 2, train.py:12"."""
    text = without_address(str(guard))
    for pattern, word in WORDS:
        text = pattern.sub(word, text)
    return f"{text}, {guard.line[0]}:{guard.line[1]}" if guard.line else text


def change_of(old: str, new: str) -> tuple[str, str]:
    """The old and the new value as text; where both are equal, the new one is "another …"."""
    return old, f"another {new}" if old == new else new
