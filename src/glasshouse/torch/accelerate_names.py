"""Adds our backend to accelerate's own list of torch.compile backends.

transformers' Trainer compiles through it, and refuses a name that is not in the list. The list is
an enumeration, so we add the name to it as soon as accelerate is imported."""

from typing import Any

from glasshouse.base.import_watch import when_imported

LIST = "accelerate.utils.dataclasses"  # the module of the enumeration
NAME = "GLASSHOUSE"


def add_backend(module: Any) -> None:
    """Add our name to the enumeration, unless it has it, or there is no enumeration."""
    names = getattr(module, "DynamoBackend", None)
    if names is None or NAME in names.__members__:
        return
    member = str.__new__(names, NAME)
    member._name_ = member._value_ = NAME
    names._member_map_[NAME] = names._value2member_map_[NAME] = member
    names._member_names_.append(NAME)


when_imported(LIST, add_backend)
