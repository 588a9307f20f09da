"""Products of matrices, and operators of linear algebra."""

from typing import Any

import glasshouse as gh
from glasshouse.onnx.table import operator


@operator("MatMul")
def product(x: Any, y: Any) -> Any:
    return gh.matmul(x, y)


@operator("Gemm")
def scaled_product(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    y = (a.mT if transA else a) @ (b.mT if transB else b)
    y = y if alpha == 1 else y * alpha
    if c is None:
        return y
    return y + (c if beta == 1 else c * beta)


@operator("Einsum")
def einsum(*values: Any, equation: str) -> Any:
    return gh.einsum(equation.replace(" ", ""), *values)


@operator("Det")
def determinant(x: Any) -> Any:
    return gh.det(x)
