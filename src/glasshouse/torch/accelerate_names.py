"""The name of our backend in accelerate, which has a list of its own of what torch.compile takes.

transformers' Trainer compiles through it, and refuses a name that is not in the list. The list is
an enumeration, so the name is added to it, as soon as accelerate is imported."""

import importlib.abc
import importlib.util
import sys

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


class ListFinder(importlib.abc.MetaPathFinder):
    """Finds that module as others do, and adds our name when it has run."""

    def find_spec(self, name, path, target=None):
        """The spec of the one module; None for all others."""
        if name != LIST:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_add(module):
                run(module)
                add_backend(module)

            spec.loader.exec_module = run_and_add
        return spec


def tell_accelerate() -> None:
    """Add our name to accelerate's list, now or when accelerate is imported."""
    if LIST in sys.modules:
        add_backend(sys.modules[LIST])
    else:
        sys.meta_path.insert(0, ListFinder())


tell_accelerate()
