"""Products of numbers that come from 8 bits, computed from these. A file has DequantizeLinear
before MatMul, Gemm or Conv; the joined step reads the codes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glasshouse.onnx.operators import products, quantised, windows
from glasshouse.onnx.table import OnnxOperator

BYTES = ("int8", "uint8")
FLOATS: dict[str, Callable[..., Any]] = {
    "Conv": windows.convolve,
    "Gemm": products.scaled_product,
    "MatMul": products.product,
}


def join_products(steps: list[Any], constants: dict[str, np.ndarray], kept: Iterable[str]) -> Any:
    """The steps, in which products read the codes of their operands; a DequantizeLinear that
    nobody reads any more is left out. `kept`: names that are read elsewhere."""
    makers = {
        name: step
        for step in steps
        for name in step.outputs[:1]
        if step.operator is not None
        and step.node.op_type == "DequantizeLinear"
        and not step.attributes.get("block_size")
    }
    joined = [with_codes(step, makers, constants) for step in steps]
    read = {*kept, *(name for step in joined for name in step.inputs)}
    read.update(name for step in joined for n in step.graphs for name in step.attributes[n].free)
    unread = makers.keys() - read
    return [step for step in joined if not unread.intersection(step.outputs[:1])]


def with_codes(step: Any, makers: dict[str, Any], constants: dict[str, np.ndarray]) -> Any:
    """A step that reads codes, where both operands of a product come from them."""
    operands = step.inputs[:2]
    if step.operator is None or step.operator.domain or step.node.op_type not in FLOATS:
        return step
    if not all(name in makers for name in operands):
        return step
    names: list[str] = []
    sources = [makers[name] for name in operands]
    for source in sources:
        codes, scale, zero = (*source.inputs, "")[:3]
        is_zero = zero in constants and not np.any(constants[zero])
        names += [codes, scale, "" if is_zero else zero]
    function = JoinedProduct(step.node.op_type, tuple(s.attributes for s in sources))
    entry = OnnxOperator("", step.node.op_type, 1, function, False, (), False, False, (6, 7), None)
    return step._replace(operator=entry, inputs=(*names, *step.inputs[2:]))


@dataclass(frozen=True)
class JoinedProduct:
    """MatMul, Gemm or Conv of two operands as codes, scales and zero points; `attributes` are those
    of each operand's `dequantize`."""

    kind: str
    attributes: tuple[dict[str, Any], ...]

    def __call__(
        self,
        x: Any,
        x_scale: Any,
        x_zero: Any,
        w: Any,
        w_scale: Any,
        w_zero: Any,
        *bias: Any,
        **options: Any,
    ) -> Any:
        codes = (x, x_scale, x_zero), (w, w_scale, w_zero)
        if not self.is_of_bytes(x, x_scale, w, w_scale, options):
            operands = [
                quantised.dequantize(*parts, **attributes)
                for parts, attributes in zip(codes, self.attributes, strict=True)
            ]
            return FLOATS[self.kind](*operands, *bias, **options)
        if self.kind == "Conv":
            return self.convolution(codes, *bias, **options)
        turned = options.pop("transA", 0), options.pop("transB", 0)
        x, w = (a.mT if turn else a for a, turn in zip((x, w), turned, strict=True))
        whole = quantised.integer_product(x, w, x_zero, w_zero)
        y = whole.astype("float32") * (x_scale.reshape(()) * w_scale).astype("float32")
        y = (y * options.get("alpha", 1.0)).astype(x_scale.dtype)
        bias = tuple(c * options.get("beta", 1.0) for c in bias if c is not None)
        return y + bias[0] if bias else y

    def is_of_bytes(self, x: Any, x_scale: Any, w: Any, w_scale: Any, options: Any) -> bool:
        """Whether both have 8 bits, x one scale, and w one or one for each channel that is made."""
        if x.dtype not in BYTES or w.dtype not in BYTES or x_scale.size != 1:
            return False
        if w_scale.size == 1:
            return w_scale.ndim < 2 and w.ndim > 1 < x.ndim
        axis = self.attributes[1].get("axis", 1) % max(w.ndim, 1)
        channels = 0 if self.kind == "Conv" or options.get("transB") else w.ndim - 1
        plain = self.kind == "Conv" or w.ndim == 2
        return w_scale.ndim == 1 and axis == channels and plain and x.ndim > 1

    def convolution(self, codes: Any, bias: Any = None, **options: Any) -> Any:
        """A convolution; its factor and its bias are those of channels."""
        (x, x_scale, x_zero), (w, w_scale, w_zero) = codes
        each = (-1, *(1,) * (x.ndim - 2))
        whole = quantised.integer_convolution(x, w, x_zero, w_zero, **options)
        factor = x_scale.reshape(()) * w_scale.reshape(each if w_scale.size > 1 else ())
        y = (whole.astype("float32") * factor.astype("float32")).astype(x_scale.dtype)
        return y if bias is None else y + bias.reshape(each)
