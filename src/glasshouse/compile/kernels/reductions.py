"""Reductions in C: the type of partial results, their start, and the operation."""

from glasshouse.base.dtype import complex128
from glasshouse.compile.kernels.c_text import SUFFIX, compute_type
from glasshouse.compile.steps.steps import Root

SIGNS = {"sum": "+", "prod": "*", "any": "|", "all": "&"}


def total_type(root: Root) -> str:
    """C type of partial results: float64 for sums and products of floats, complex128 of complex."""
    wide = root.expr.dtype.is_floating and root.reduce in ("sum", "prod")
    if root.expr.dtype.is_complex:
        return compute_type(complex128)
    return "double" if wide else compute_type(root.expr.dtype)


def start(root: Root) -> str:
    """The result of reducing nothing."""
    dtype = root.expr.dtype
    if root.reduce in SIGNS:
        return "1" if root.reduce in ("prod", "all") else "0"
    if dtype.is_floating:
        return "-INFINITY" if root.reduce == "max" else "INFINITY"
    name = dtype.name.replace("int", "INT").replace("u", "U")
    if root.reduce == "max":
        return "0" if dtype.kind == "uint" else f"{name}_MIN"
    return f"{name}_MAX"


def combined(root: Root, total: str, value: str) -> str:
    """Combine a running result with `value`."""
    op, dtype = str(root.reduce), root.expr.dtype
    if op == "prod" and dtype.is_complex:
        return f"gh_mul_c128({total}, {value})"
    if op in SIGNS:
        return f"{total} {SIGNS[op]} {value}"
    return f"gh_{op}imum_{SUFFIX[dtype.name]}({total}, {value})"
