"""oneDNN's objects in C: the calls that make those of a program, and tables of its primitives."""

from typing import Any

from glasshouse.targets.cpu.onednn.library import OnednnCall, OnednnObject, library

# Of gh_onednn.c; other functions are oneDNN's.
FUNCTIONS = {"query": "gh_onednn_query", "attributes": "gh_onednn_attributes"}


class OnednnCalls:
    """The objects of a program by number, in the order in which C makes them: `lines` make them,
    `kinds` has a letter for each."""

    def __init__(self) -> None:
        self.numbers: dict[OnednnObject, int] = {}
        self.lines: list[str] = []
        self.kinds: str = ""

    def number(self, item: OnednnObject) -> int:
        """The number of an object, which is added after those that it is made of."""
        if item not in self.numbers:
            name, *args = item.made_by
            words = [self.word(arg) for arg in args]
            at = self.numbers[item] = len(self.numbers)
            function = FUNCTIONS.get(name, f"dnnl_{name}")
            self.lines.append(f"  GH_TRY({function}({', '.join([f'o + {at}', *words])}));")
            self.kinds += name[0] if name in FUNCTIONS else "d" if "memory" in name else "p"
        return self.numbers[item]

    def word(self, arg: Any) -> str:
        """An argument of a call: a tuple is sizes, None no object."""
        if isinstance(arg, OnednnObject):
            return f"o[{self.number(arg)}]"
        if isinstance(arg, tuple):
            return f"(const int64_t[12]){{{', '.join(map(str, arg)) or 0}}}"
        return "0" if arg is None else str(arg)

    def arguments(self, call: OnednnCall) -> list[tuple[int, int, int]]:
        """The arguments of a primitive: (argument, number of its layout, bytes)."""
        dnnl = library()
        assert dnnl is not None
        return [(arg, self.number(layout), dnnl.size(layout)) for arg, layout in call.args]

    def text(self, name: str) -> list[str]:
        """The function that makes the objects, and the library of a program, under a name."""
        return [
            f"static int {name}_make(void **o, void *engine, const char **call) {{",
            *self.lines,
            "  return 0;",
            "}",
            f"static const gh_library {name} = {{",
            f'  gh_prepare_onednn, gh_release_onednn, {name}_make, "{self.kinds}"',
            "};",
            "",
        ]
