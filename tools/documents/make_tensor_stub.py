"""Makes src/glasshouse/tensor/attached.pyi, the types of the methods that `tensor/methods.py` gives
Tensor when it is imported: `python tools/documents/make_tensor_stub.py`. A test compares it."""

import ast
import builtins
import inspect
import re
import sys
from pathlib import Path

from glasshouse.dispatch import value
from glasshouse.tensor import Tensor, handle, methods

STUB = Path(handle.__file__).with_name("attached.pyi")
HEAD = '''"""Types of the methods of Tensor that are made from tables. Made by
tools/documents/make_tensor_stub.py; not edited by hand."""

'''
# What short functions of methods.py give, which have no room for annotations.
INTEGERS = "element_size numel nelement dim ndimension storage_offset"
FLAGS = "is_contiguous is_conj is_neg is_inference is_cpu retains_grad equal is_same_size "
FLAGS += "is_complex is_floating_point is_nonzero is_signed allclose"
RESULTS = dict.fromkeys(INTEGERS.split(), "builtins.int")
RESULTS |= dict.fromkeys(FLAGS.split(), "builtins.bool") | {"grad_fn": "Any", "at": "Any"}
SHADOWED = set(methods.CASTS) | {"type"}  # methods with names of types


def in_class(module) -> set[str]:
    """The names that the text of the class Tensor defines."""
    tree = ast.parse(Path(module.__file__).read_text())
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    names = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    names |= {n.target.id for n in body if isinstance(n, ast.AnnAssign)}
    return names | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets}


def text_of(annotation) -> str:
    """An annotation as text; Any where there is none."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text.replace("ForwardRef", ""))
    text = re.sub(r"\('(\w+)'\)", r"\1", text).replace("numpy.", "np.").replace("'", "")
    shadowed = "|".join(sorted(SHADOWED & set(dir(builtins))))
    text = re.sub(rf"\b({shadowed})\b", r"builtins.\1", text)
    return text.replace(text_of_array_like(), "ArrayLike")


def text_of_array_like() -> str:
    text = inspect.formatannotation(value.ArrayLike)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("numpy.", "np.")


def parameters_of(name: str, function) -> list[str]:
    """The parameters after self, as text."""
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()
    texts, before = [], None
    for parameter in others:
        kind, star = parameter.kind, {2: "*", 4: "**"}.get(parameter.kind, "")
        if before == 0 and kind != before:
            texts.append("/")
        if kind == parameter.KEYWORD_ONLY and before not in (2, 3):
            texts.append("*")
        default = "" if parameter.default is parameter.empty else " = ..."
        texts.append(f"{star}{parameter.name}: {text_of(parameter.annotation)}{default}")
        before = kind
    return texts + ["/"] * (before == 0)


def method_text(name: str, function, attached: dict) -> str:
    base = attached.get(name[:-1]) if name.endswith("_") and name[:-1] in attached else None
    source, result = function, inspect.signature(function).return_annotation
    if base is not None and "args" in inspect.signature(function).parameters:
        source = base
    if re.fullmatch(r"(?!_).*_|__i\w+__", name):
        annotation = "Self"
    elif name in RESULTS:
        annotation = RESULTS[name]
    else:
        annotation = "Tensor" if result is inspect.Signature.empty else text_of(result)
    parameters = ", ".join(["self", *parameters_of(name, source)])
    return f"    def {name}({parameters}) -> {annotation}: ..."


def stub() -> str:
    """The text of the stub."""
    own = in_class(handle) | {"__doc__", "__module__", "__dict__", "__weakref__", "data"}
    attached = {
        n: f
        for n, f in vars(Tensor).items()
        if n not in own and n not in ("__abs__", "__getattr__")
    }
    lines = []
    for name, function in sorted(attached.items()):
        if isinstance(function, property):
            result = RESULTS.get(name, "Tensor")
            lines += ["    @property", f"    def {name}(self) -> {result}: ..."]
        elif callable(function):
            lines.append(method_text(name, function, attached))
    operators = [n for n in vars(value.Value) if n.startswith("__") and n[2:-2] in OPERATORS]
    for name in sorted(operators):
        other = "" if name in ("__invert__", "__neg__", "__pos__") else ", other: Any"
        ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        lines.append(f"    def {name}(self{other}) -> Tensor: ...{ignored}")
    body = "\n".join(["    data: Any", "    def __abs__(self) -> Tensor: ...", *lines])
    return HEAD + imports_of(body) + "\nclass AttachedMethods(Value):\n" + body + "\n"


OPERATORS = set(
    """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow
and rand or ror xor rxor lshift rlshift rshift rrshift lt gt le ge eq ne invert neg pos""".split()
)


def imports_of(body: str) -> str:
    """The imports of the names in the body's annotations."""
    names = set(re.findall(r"(?<![\w.])([A-Z]\w*)", re.sub(r"def \w+|\w+: (?!\.)", "", body)))
    lines = ["import builtins", "from typing import Any, Self"]
    lines += ["from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence"]
    lines += ["import numpy as np", "from glasshouse.dispatch.value import Value"]
    modules = [m for n, m in sorted(sys.modules.items()) if n.startswith("glasshouse.")]
    of_python = set("Any Self Callable Iterable Iterator Mapping Sequence".split())
    for name in sorted(names - of_python):
        module = next((m.__name__ for m in modules if defines(m, name)), None)
        if module is not None and name != "Value":
            lines.append(f"from {module} import {name}")
    return "\n".join(lines) + "\n"


def defines(module, name: str) -> bool:
    """Whether a module is where a class, or a name of a type, is made."""
    result = vars(module).get(name)
    if isinstance(result, type):
        return result.__module__ == module.__name__
    return result is not None and f"\n{name} = " in Path(module.__file__).read_text()


if __name__ == "__main__":
    STUB.write_text(stub())
