"""The name of our backend in accelerate, which has a list of its own of what torch.compile takes.

transformers' Trainer compiles through it, and refuses a name that is not in the list. The list is
an enumeration, so the name is added to it, as soon as accelerate is imported."""

from glasshouse.base.import_watch import when_imported

LIST = "accelerate.utils.dataclasses"  # the module of the enumeration
NAME = "GLASSHOUSE"


def add_backend(module) -> None:
    """Add our name to the enumeration; nothing where it is there, or there is no enumeration."""
    names = getattr(module, "DynamoBackend", None)
    if names is None or NAME in names.__members__:
        return
    member = str.__new__(names, NAME)
    member._name_ = member._value_ = NAME
    names._member_map_[NAME] = names._value2member_map_[NAME] = member
    names._member_names_.append(NAME)


when_imported(LIST, add_backend)
