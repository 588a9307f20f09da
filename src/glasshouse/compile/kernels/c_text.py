"""Values and elementwise cards in C: types, numbers, conversions of narrow floats, kernel texts.

A card declares its text (`KernelText`); `is_written` tests whether that covers a call. Other calls
run otherwise: by a lowerer, or on the host."""

import hashlib
import math
from typing import Any, NamedTuple

from glasshouse.base.dtype import DType, float64, real_dtype
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.dispatch.kernel_text import OPERANDS, KernelText
from glasshouse.dispatch.primitive import Primitive, primitives
from glasshouse.graph.node import Node

C_TYPES = {
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
} | {f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)}
SUFFIX = {"float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64", "bool": "u8"} | {
    f"{u}int{n}": f"{u or 'i'}{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
SUFFIX |= {"complex64": "c64", "complex128": "c128"}
SHORT = {"float16": "f16", "bfloat16": "bf16"}
COMPLEX_TYPES = {"complex64": "float _Complex", "complex128": "double _Complex"}


def memory_type(dtype: DType) -> str:
    """The C type of an element as it lies in memory."""
    return C_TYPES.get(dtype.name) or COMPLEX_TYPES[dtype.name]


def compute_type(dtype: DType) -> str:
    return "float" if dtype.name in SHORT else memory_type(dtype)


def literal(value: Any, dtype: DType) -> str:
    if dtype.is_complex:
        value, real = complex(value), real_dtype(dtype)
        return f"__builtin_complex({literal(value.real, real)}, {literal(value.imag, real)})"
    if dtype.is_bool:
        return "1" if value else "0"
    if dtype.is_integer:
        value = int(value)
        suffix = "ULL" if dtype.kind == "uint" else "LL"
        text = f"(-{-value - 1}LL - 1)" if value == -(2**63) else f"{value}{suffix}"
        return f"(({C_TYPES[dtype.name]}){text})"
    value = float(dtype.np.type(value))
    if math.isnan(value):
        return f"(({compute_type(dtype)})NAN)"
    text = "INFINITY" if math.isinf(value) else value.hex().lstrip("-")
    sign = "-" if math.copysign(1, value) < 0 else ""
    return f"(({compute_type(dtype)}){sign}{text})"


def loaded(element: str, dtype: DType) -> str:
    """Convert a stored element to its type in computations."""
    short = SHORT.get(dtype.name)
    return f"gh_{short}_to_f32({element})" if short else element


def stored(value: str, dtype: DType) -> str:
    """Convert a computed value to its stored form."""
    short = SHORT.get(dtype.name)
    return f"gh_f32_to_{short}({value})" if short else value


def stored_exactly(value: str, dtype: DType) -> str:
    """Convert a value that its dtype has exactly to its stored form."""
    if SHORT.get(dtype.name) == "bf16":
        return f"gh_bits_bf16({value})"
    return stored(value, dtype)


def rounded(value: str, dtype: DType) -> str:
    """Round a result to its dtype: narrow floats are computed in float32, and rounded at once."""
    short = SHORT.get(dtype.name)
    return f"gh_round_{short}({value})" if short else value


def bitcast_text(value: str, source: DType, target: DType) -> str:
    """The bits of a value, as it is stored, as a value of another dtype."""
    c, bits = memory_type(target), stored(value, source)
    if {source.kind, target.kind} <= {"int", "uint"}:  # a loop with gh_bitcast stays scalar
        return loaded(f"(({c}){bits})", target)
    return loaded(f"gh_bitcast({memory_type(source)}, {c}, {bits})", target)


# -- cards ------------------------------------------------------------------------------------


class CardCall(NamedTuple):
    """A call of an elementwise card, as far as its text depends on it; `attrs` are its numbers."""

    card: str
    operands: tuple[DType, ...]
    result: DType
    attrs: tuple[tuple[str, Any], ...] = ()


# Faults of calls' kernel texts: a compiler's message, or a name that could not be filled in. Such
# calls are steps of the host.
faults: dict[CardCall, str] = {}


def call_of_node(node: Node) -> CardCall:
    operands = tuple(x.spec.dtype for x in node.inputs)
    return CardCall(node.op, operands, node.spec.dtype, numbers_of(node.attrs))


def numbers_of(attrs: dict[Any, Any]) -> tuple[tuple[str, Any], ...]:
    """Attrs that a text can contain."""
    return tuple((k, v) for k, v in attrs.items() if isinstance(v, (bool, int, float)))


def is_written(node: Node) -> bool:
    """Whether a fused kernel can compute a node: by the kernel text of its card."""
    card = primitives.get(node.op)
    if card is None or card.kernel is None or not node.inputs:
        return False
    call = call_of_node(node)
    return has_text(card, call) and call not in faults


def has_text(card: Primitive, call: CardCall) -> bool:
    """Whether the card declares a text for operands and a result of these dtypes."""
    assert card.kernel is not None
    return "elementwise" in card.traits and bool(card.kernel.template(call.operands, call.result))


def text_of_call(call: CardCall, args: list[str]) -> str:
    """The result of a call in C, in its dtype, from its operands in C.

    Raises: CompileError for a text with an unknown placeholder
    """
    kernel = kernel_of(call.card)
    last = call.operands[-1]
    template = kernel.template(call.operands, call.result)
    assert template is not None, f"{call.card} has no kernel text for {last.name}"
    names = {name: literal_of(value, call.result) for name, value in call.attrs}
    names |= dict(zip(OPERANDS, args, strict=False))
    names |= {"type": compute_type(call.result), "suffix": SUFFIX[last.name]}
    names |= {"f": "f" if compute_type(last).startswith("float") else ""}
    try:
        text = template.format(*args, **names)
    except (KeyError, IndexError, ValueError) as error:
        has = ", ".join(names)
        raise CompileError(f"{error!r} in {template!r}, which can have {has}") from error
    return text if kernel.exact else rounded(text, call.result)


def kernel_of(name: str) -> KernelText:
    kernel = primitives[name].kernel
    assert kernel is not None, f"{name} has no kernel text"
    return kernel


def literal_of(value: Any, dtype: DType) -> str:
    """A number among a call's attrs: of the result's dtype if it is a float."""
    if isinstance(value, float):
        return literal(value, dtype if dtype.is_floating else float64)
    return f"({int(value)}LL)"


def guarded(helpers: str) -> str:
    """Guard C that several kernels of a file may contain, so that it is there once."""
    name = f"GH_HELPERS_{hashlib.sha256(helpers.encode()).hexdigest()[:16]}"
    return f"#ifndef {name}\n#define {name}\n{helpers.strip()}\n#endif\n"
