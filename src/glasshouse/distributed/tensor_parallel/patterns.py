"""Patterns of module names: "layers.*.linear1", where * stands for one part and ** for any."""

import re

from glasshouse.base.errors import OptionError, suggest
from glasshouse.nn.module import Module


def matching(where: str, module: Module, pattern: str) -> dict[str, Module]:
    """The modules within `module` whose dotted names fit the pattern; "" is the module itself.

    Raises: OptionError, with the nearest name, where there are none
    """
    parts = re.split(r"(\*\*|\*)", pattern)
    stands_for = {"*": r"[^.]*", "**": r".*"}
    expression = re.compile("".join(stands_for.get(part) or re.escape(part) for part in parts))
    modules = dict(module.named_modules(remove_duplicate=False))
    fitting = {name: m for name, m in modules.items() if expression.fullmatch(name)}
    if not fitting:
        fix = suggest(pattern, [name for name in modules if name])
        raise OptionError(where, "a pattern of module names", repr(pattern), fix)
    return fitting
