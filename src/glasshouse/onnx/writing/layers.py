"""Activations, norms, products, attention, pooling and resizing as whole nodes of ONNX."""

from math import sqrt
from typing import Any

import numpy as np

from glasshouse.onnx.writing.arrays import counted, reshaped
from glasshouse.onnx.writing.elementwise import elementwise
from glasshouse.onnx.writing.products import flat_batch
from glasshouse.onnx.writing.wholes import whole
from glasshouse.onnx.writing.writer import GraphWriter, WrittenValue

__all__: list[str] = []


# -- activations -------------------------------------------------------------------------------


def activation(name: str, op: str, fits: Any = None, **fixed: Any) -> None:
    """An activation that is one node; `fits` gives its attributes."""

    @whole(name, "input", fits=fits)
    def write(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
        options = {key: n for key, n in call.attrs.items() if key != "given"}
        return elementwise(w, call, w.node(op, [x.name], **fixed, **options), (x,))


activation("relu", "Relu")
activation("sigmoid", "Sigmoid")
activation("softsign", "Softsign")
activation("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
activation("hardswish", "HardSwish")
activation("mish", "Mish")
activation("selu", "Selu")
activation("elu", "Elu", fits=lambda *, alpha, **_: {"alpha": float(alpha)})
activation("celu", "Celu", fits=lambda *, alpha, **_: {"alpha": float(alpha)})
activation(
    "leaky_relu", "LeakyRelu",
    fits=lambda *, negative_slope, **_: {"alpha": float(negative_slope)},
)  # fmt: skip
activation("gelu", "Gelu", fits=lambda *, approximate, **_: {"approximate": approximate})
activation(
    "softplus", "Softplus",
    fits=lambda *, beta, threshold, **_: {} if beta == 1 and threshold >= 20 else None,
)  # fmt: skip


@whole("silu", "input")
def silu(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """x sigmoid(x)."""
    return elementwise(w, call, w.node("Mul", [x.name, w.node("Sigmoid", [x.name])]), (x,))


def one_axis(*, input: Any, dim: Any, dtype: Any, axis: Any) -> Any:
    """The axis of a softmax over one axis."""
    chosen = dim if axis is None else axis
    if dtype is not None or not isinstance(chosen, int) or not input.ndim:
        return None
    return {"axis": chosen % input.ndim} if -input.ndim <= chosen < input.ndim else None


@whole("softmax", "input", fits=one_axis)
def softmax(w: GraphWriter, call: Any, x: WrittenValue, op: str = "Softmax") -> WrittenValue:
    """Parts of 1 along an axis."""
    return w.value(w.node(op, [w.whole(x)], axis=call.attrs["axis"]), call.results[0])


@whole("log_softmax", "input", fits=one_axis)
def log_softmax(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Their logarithms."""
    return softmax(w, call, x, "LogSoftmax")


# -- norms -------------------------------------------------------------------------------------


def operands_of(call: Any, xs: Any) -> list[Any]:
    """Operands in their order, None where one is left out."""
    values = iter(xs)
    return [next(values) if is_given else None for is_given in call.attrs["given"]]


def or_constant(
    w: GraphWriter, x: WrittenValue | None, number: float, shape: Any, like: Any
) -> str:
    """A weight, or the same number everywhere."""
    if x is not None:
        return w.whole(x)
    return w.constant(np.full(shape, number, like.dtype.np))


def trailing(
    *, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, _where: str
) -> Any:
    shape = normalized_shape
    shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not shape or input.shape[-len(shape) :] != shape:
        return None
    if any(x is not None and x.shape != shape for x in (weight, bias)):
        return None
    return {"shape": shape, "eps": float(eps)}


@whole("layer_norm", "input", "weight", "bias", fits=trailing)
def layer_norm(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """A mean of 0 and a variance of 1 over the last axes."""
    x, weight, bias = operands_of(call, xs)
    shape = call.attrs["shape"]
    names = [w.whole(x), or_constant(w, weight, 1, shape, x)]
    if bias is not None:
        names.append(w.whole(bias))
    options = {"axis": -len(shape), "epsilon": call.attrs["eps"]}
    return w.value(w.node("LayerNormalization", names, **options), call.results[0])


def running_channels(*, input: Any, eps: float, where: str, **_: Any) -> Any:
    return {"eps": float(eps)} if input.ndim >= 2 else None


@whole(
    "by_running", "input", "running_mean", "running_var", "weight", "bias", fits=running_channels
)  # fmt: skip
def batch_norm(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """A batch normalisation by statistics that it keeps."""
    x, mean, var, weight, bias = operands_of(call, xs)
    channels = mean.shape
    names = [
        w.whole(x),
        or_constant(w, weight, 1, channels, x),
        or_constant(w, bias, 0, channels, x),
        w.whole(mean),
        w.whole(var),
    ]
    name = w.node("BatchNormalization", names, epsilon=call.attrs["eps"])
    return w.value(name, call.results[0])


def grouped(*, input: Any, num_groups: int, eps: float, **_: Any) -> Any:
    if input.ndim < 3 or num_groups < 1 or input.shape[1] % num_groups:
        return None
    return {"groups": num_groups, "eps": float(eps)}


@whole("group_norm", "input", "weight", "bias", fits=grouped)
def group_norm(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """An instance normalisation of groups, then a factor and a bias for each channel."""
    x, weight, bias = operands_of(call, xs)
    groups, channels = call.attrs["groups"], x.shape[1]
    name = w.node("Reshape", [w.whole(x), w.integers(0, groups, -1)])
    sides = [w.constant(np.full(groups, n, x.dtype.np)) for n in (1, 0)]
    name = w.node("InstanceNormalization", [name, *sides], epsilon=call.attrs["eps"])
    name = reshaped(w, name, (x.shape[0], groups), x.shape)
    sizes = w.integers(channels, *[1] * (len(x.shape) - 2))
    for op, side in (("Mul", weight), ("Add", bias)):
        if side is not None:
            name = w.node(op, [name, w.node("Reshape", [w.whole(side), sizes])])
    return w.value(name, call.results[0])


# -- products ----------------------------------------------------------------------------------


def matrices(*, input: Any, weight: Any, bias: Any, **_: Any) -> Any:
    fits = weight is not None and weight.ndim == 2 and input.ndim >= 1
    return {} if fits and input.shape[-1] == weight.shape[1] else None


def transposed(w: GraphWriter, weight: WrittenValue) -> str:
    """A weight as ONNX multiplies by it; written once."""
    key = "transposed", weight.name
    if key not in w.shapes:
        w.shapes[key] = w.node("Transpose", [w.whole(weight)], perm=[1, 0])
    return w.shapes[key]


@whole("linear", "input", "weight", "bias", fits=matrices)
def linear(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """x Wᵀ + b: one node for matrices."""
    x, weight, bias = operands_of(call, xs)
    biases = [] if bias is None else [w.whole(bias)]
    if len(x.shape) == 2:
        name = w.node("Gemm", [w.whole(x), w.whole(weight), *biases], transB=1)
        return w.value(name, call.results[0])
    name = w.node("MatMul", [w.whole(x), transposed(w, weight)])
    if biases:
        name = w.node("Add", [name, *biases])
    return w.value(name, call.results[0])


def scores(*, q: Any, k: Any, mask: Any, scale: Any, where: str = "") -> Any:
    if q.ndim < 2 or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        return None
    return {"scale": 1 / sqrt(q.shape[-1]) if scale is None else float(scale), "causal": False}


def attention_fits(
    *, query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool,
    scale: Any, enable_gqa: bool,
) -> Any:  # fmt: skip
    """Attention whose heads are alike, without chance."""
    lead = query.shape[:-2]
    if dropout_p or (is_causal and attn_mask is not None):
        return None
    if key is None or value is None or value.ndim < 2 or value.shape[:-2] != lead:
        return None
    if key.shape[-2] != value.shape[-2]:
        return None
    attrs = scores(q=query, k=key, mask=attn_mask, scale=scale)
    return None if attrs is None else {**attrs, "causal": bool(is_causal)}


def weights(w: GraphWriter, call: Any, q: Any, k: Any, mask: Any) -> str:
    """softmax(scale q kᵀ + mask), 0 in rows of which all is masked."""
    n = len(q.shape)
    scale = call.attrs["scale"]
    factor = w.constant(np.array(scale, q.dtype.np))
    turned = w.node("Transpose", [w.whole(k)], perm=[*range(n - 2), n - 1, n - 2])
    name = w.node("MatMul", [w.node("Mul", [w.whole(q), factor]), turned])
    lowest = w.constant(np.array(-np.inf, q.dtype.np))
    if call.attrs["causal"]:
        rows = w.node("Unsqueeze", [counted(w, q.shape[-2]), w.integers(1)])
        name = w.node("Where", [w.node("Less", [rows, counted(w, k.shape[-2])]), lowest, name])
    if mask is None:
        return w.node("Softmax", [name], axis=-1)
    added = mask.name
    if mask.dtype.is_bool:
        zero = w.constant(np.array(0, q.dtype.np))
        added = w.node("Where", [mask.name, zero, lowest])
    name = w.node("Softmax", [w.node("Add", [name, added])], axis=-1)
    best = w.node("ReduceMax", [added, w.integers(-1)], keepdims=1)
    zero = w.constant(np.array(0, q.dtype.np))
    return w.node("Where", [w.node("Equal", [best, lowest]), zero, name])


@whole("attention_weights", "q", "k", "mask", fits=scores)
def attention_weights(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """How much each query takes of each key."""
    return w.value(weights(w, call, *operands_of(call, xs)), call.results[0])


@whole("scaled_dot_product_attention", "query", "key", "value", "attn_mask", fits=attention_fits)
def attention(w: GraphWriter, call: Any, *xs: WrittenValue) -> WrittenValue:
    """Values by the weights of their keys."""
    q, k, v, mask = operands_of(call, xs)
    name = w.node("MatMul", [weights(w, call, q, k, mask), w.whole(v)])
    return w.value(name, call.results[0])


# -- pooling and resizing ----------------------------------------------------------------------


def tuple_of(x: Any, n: int) -> tuple[int, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,) * n


def average_fits(
    *, where: str, n: int, input: Any, kernel_size: Any, stride: Any, padding: Any,
    ceil_mode: bool, count_include_pad: bool, divisor_override: Any,
) -> Any:  # fmt: skip
    """Means of windows, the whole of which counts."""
    if ceil_mode or divisor_override is not None or input.ndim not in (n + 1, n + 2):
        return None
    kernel = tuple_of(kernel_size, n)
    stride = kernel if stride is None or stride == () else tuple_of(stride, n)
    pads = tuple_of(padding, n)
    if any(2 * p > k for p, k in zip(pads, kernel)) or any(p >= k for p, k in zip(pads, kernel)):
        return None
    return {"kernel": kernel, "stride": stride, "pads": pads, "counts": bool(count_include_pad)}


@whole("avg_pool", "input", fits=average_fits)
def avg_pool(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """Means of windows."""
    kernel, like = call.attrs["kernel"], call.results[0]
    lead = len(x.shape) - len(kernel)
    flat = flat_batch(x.shape, lead)
    name = w.node(
        "AveragePool", [reshaped(w, w.whole(x), x.shape, flat)], kernel_shape=kernel,
        strides=call.attrs["stride"], pads=[*call.attrs["pads"], *call.attrs["pads"]],
        count_include_pad=int(call.attrs["counts"]),
    )  # fmt: skip
    return w.value(reshaped(w, name, [*flat[:2], *like.shape[lead:]], like.shape), like)


RESIZES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear",
           "bicubic": "cubic"}  # fmt: skip


def resize_fits(
    *, x: Any, sizes: Any, factors: Any, mode: str, align_corners: bool, antialias: bool
) -> Any:
    """A resize whose elements are as far apart as the sizes say."""
    old = x.shape[x.ndim - len(sizes) :]
    is_even = all(f is None or n == m * f for f, n, m in zip(factors, sizes, old))
    if mode not in RESIZES or antialias or not is_even or x.ndim != len(sizes) + 2:
        return None
    return {"mode": mode, "aligned": bool(align_corners)}


@whole("resize", "x", fits=resize_fits)
def resize(w: GraphWriter, call: Any, x: WrittenValue) -> WrittenValue:
    """An image in other sizes."""
    mode, like = RESIZES[call.attrs["mode"]], call.results[0]
    places = "asymmetric" if mode == "nearest" else "half_pixel"
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": places}
    if call.attrs["aligned"]:
        options["coordinate_transformation_mode"] = "align_corners"
    if mode == "nearest":
        options["nearest_mode"] = "floor"
    name = w.node("Resize", [w.whole(x), "", "", w.shape(like.shape)], **options)
    return w.value(name, like)
