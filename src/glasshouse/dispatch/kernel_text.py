"""Kernel text: the part of an elementwise card that says how a fused kernel writes one element."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glasshouse.base import DType, all_dtypes, check_known

OPERANDS = "xyz"  # names of the first operands in a text; all of them are {0}, {1}, …
KINDS = frozenset(d.kind for d in all_dtypes) | frozenset(d.name for d in all_dtypes)


@dataclass(frozen=True)
class KernelText:
    """One element of an elementwise card in C, from the operands' elements at the same place.

    `text` is an expression with operands {x}, {y}, {z} (or {0}, {1}, …), attrs by their names, and
    {type}     the C type of the result as it is computed (float for the 16-bit floats)
    {suffix}   f32, f64, i8 … u64, u8 for booleans: the type that the last operand is computed in
    {f}        "f" where that is float, else nothing: `exp2{f}({x})`, `1.0{f}`
    Braces of C itself are doubled. One text serves all dtypes; a dict has texts by dtype or kind of
    the last operand, and a function of (operands' dtypes, result's dtype) gives the text or None.
    For dtypes without text, the card is a step of the host.
    `of_complex` is the text where an operand or the result is complex, `float _Complex` or
    `double _Complex` in C, with the suffixes c64 and c128; without it those are the host's.

    cost      about how many cycles a vector of results takes, an addition being 1: whether a value
              is stored or computed again depends on it
    exact     whether a narrow float's result, computed in float, needs no rounding
    helpers   C in front of the kernels that use the text, as it is: `static inline` functions,
              with the card's name in theirs
    """

    text: str | Mapping[str, str] | Callable[..., Any]
    cost: int = 4
    exact: bool = False
    helpers: str = ""
    of_complex: str | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.text, Mapping):
            for key in self.text:
                check_known("kernel text", "the name or kind of a dtype", key, KINDS)

    def template(self, operands: tuple[DType, ...], result: DType) -> str | None:
        """The text for operands of these dtypes, to be filled in; None if there is none."""
        text = self.text
        if any(dtype.is_complex for dtype in (*operands, result)):
            text = self.of_complex
        if callable(text):
            return text(operands, result)
        if not isinstance(text, Mapping):
            return text
        last = operands[-1]
        return text.get(last.name, text.get(last.kind))

    def lines(self) -> list[str]:
        """Lines to show: the text, by dtype where it differs, the cost, the helpers."""
        text = self.text
        if isinstance(text, Mapping):
            kinds: dict[str, list[str]] = {}
            for key, each in text.items():
                kinds.setdefault(each, []).append(key)
            lines = [f"{each}  ({', '.join(keys)})" for each, keys in kinds.items()]
        else:
            lines = [text] if isinstance(text, str) else ["by its operands' and result's dtypes"]
        if isinstance(self.of_complex, str):
            lines.append(f"{self.of_complex}  (complex)")
        rounding = ", exact in 16-bit floats" if self.exact else ""
        lines.append(f"cost {self.cost}{rounding}")
        return lines + self.helpers.strip().splitlines()

    @classmethod
    def of(cls, kernel: Any) -> "KernelText | None":
        """A card's kernel as it may be given: a KernelText, its text alone, or None."""
        return kernel if kernel is None or isinstance(kernel, cls) else cls(kernel)


def operator_text(sign: str, of_booleans: str = "", of_complex: str | None = None) -> KernelText:
    """The text of one of C's operators, and the one that booleans have in its place; integers
    narrower than int are brought back to their type."""
    plain, logic = (f"{{x}} {s} {{y}}" for s in (sign, of_booleans or sign))
    whole = f"({{type}})({plain})"
    texts = {"bool": logic, "float": plain, "int": whole, "uint": whole}
    return KernelText(texts, cost=1, of_complex=of_complex)


def function_text(
    name: str, cost: int = 1, exact: bool = False, operands: int = 1, of_complex: str | None = None
) -> KernelText:
    """The text of a call of `gh_<name>_<suffix>` of native/gh_math.h."""
    arguments = ", ".join(f"{{{x}}}" for x in OPERANDS[:operands])
    text = f"gh_{name}_{{suffix}}({arguments})"
    return KernelText(text, cost, exact, of_complex=of_complex)
