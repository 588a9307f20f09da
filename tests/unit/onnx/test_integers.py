"""Networks whose products have operands of 8 bits: as exact sums say, computed from the codes."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags

onnx = pytest.importorskip("onnx")
from tests.unit.onnx.test_loading import network_of  # noqa: E402

node = onnx.helper.make_node
CODES = {"uint8": 2, "int8": 3, "float32": 1, "int32": 6}
KINDS = [("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")]
rng = np.random.default_rng(0)


def numbers(kind, shape):
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def result_of(nodes, feed, tensors, result="float32"):
    inputs = [(name, CODES[str(x.dtype)], list(x.shape)) for name, x in feed.items()]
    network = gh.onnx.load(network_of(nodes, inputs, [("y", CODES[result], None)], tensors))
    return network(**feed).numpy(), network


def windows_sum(x, w, pads, stride, group):
    """A convolution of whole numbers, window by window."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    own, per = w.shape[1], w.shape[0] // group
    size = [(x.shape[2 + i] - w.shape[2 + i]) // stride + 1 for i in range(2)]
    y = np.zeros((x.shape[0], w.shape[0], *size), np.int64)
    for o, i, j in np.ndindex(w.shape[0], *size):
        rows, columns = (slice(p * stride, p * stride + k) for p, k in zip((i, j), w.shape[2:]))
        part = x[:, o // per * own : (o // per + 1) * own, rows, columns]
        y[:, o, i, j] = (part.astype(np.int64) * w[o]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize("zeros", ["none", "one", "each"])
@pytest.mark.parametrize(("kind", "w_kind"), KINDS)
def test_integer_products_are_exact(kind, w_kind, zeros):
    a, b = numbers(kind, (2, 3, 40)), numbers(w_kind, (40, 5))
    tensors, names = {"b": b}, ["a", "b"]
    a_zero = b_zero = np.zeros((), "i8")
    if zeros != "none":
        a_zero, b_zero = numbers(kind, ()), numbers(w_kind, () if zeros == "one" else (5,))
        tensors |= {"az": a_zero, "bz": b_zero}
        names += ["az", "bz"]
    result, _ = result_of([node("MatMulInteger", names, ["y"])], {"a": a}, tensors, "int32")
    exact = (a.astype("i8") - a_zero) @ (b.astype("i8") - b_zero)
    np.testing.assert_array_equal(result, exact)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("kind", "w_kind"), KINDS)
def test_integer_convolutions_are_exact(kind, w_kind, group):
    x, w = numbers(kind, (2, 4, 6, 5)), numbers(w_kind, (6, 4 // group, 3, 2))
    zero, w_zero = numbers(kind, ()), numbers(w_kind, ())
    pads, tensors = [1, 0, 2, 1], {"w": w, "xz": zero, "wz": w_zero}
    step = node(
        "ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=pads, strides=[2, 2], group=group
    )
    result, _ = result_of([step], {"x": x}, tensors, "int32")
    centred = x.astype("i8") - zero, w.astype("i8") - w_zero
    np.testing.assert_array_equal(result, windows_sum(*centred, pads, 2, group))


def real(codes, scale, zero, axis=None):
    shape = [1] * codes.ndim
    if axis is not None and np.ndim(scale):
        shape[axis] = -1
        scale, zero = scale.reshape(shape), np.reshape(zero, shape)
    return (codes.astype("f8") - zero) * scale


def joined(op, feed_kind, w, w_axis, w_scale, w_zero, x, **attributes):
    """(result, network) of DequantizeLinear, twice, then a product with a bias."""
    tensors = {
        "w": w, "ws": w_scale, "wz": w_zero, "xs": np.float32(0.02), "xz": numbers(feed_kind, ()),
        "b": rng.normal(size=w_scale.size if w_scale.ndim else 1).astype("f4"),
    }  # fmt: skip
    inputs = ["xf", "wf"] + (["b"] if op != "MatMul" else [])
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=w_axis),
        node(op, inputs, ["y"], **attributes),
    ]
    result, network = result_of(nodes, {"x": x}, tensors)
    xr = real(x, tensors["xs"].astype("f8"), tensors["xz"].astype("f8"))
    wr = real(w, w_scale.astype("f8"), w_zero.astype("f8"), w_axis)
    return result, network, xr, wr, tensors["b"].astype("f8")


def operators_of(network):
    return [step.node.op_type for step in network.run.graph.steps]


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize(("kind", "w_kind"), KINDS)
def test_products_of_dequantised_numbers_read_the_codes(kind, w_kind, each):
    x, w = numbers(kind, (3, 30)), numbers(w_kind, (30, 7))
    scale = rng.random(7 if each else ()).astype("f4") * np.float32(0.01)
    zero = numbers(w_kind, np.shape(scale))
    result, network, xr, wr, _ = joined("MatMul", kind, w, 1, np.asarray(scale), zero, x)
    assert operators_of(network) == ["MatMul"]
    np.testing.assert_allclose(result, xr @ wr, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_of_dequantised_numbers_reads_the_codes(turned):
    x, w = numbers("uint8", (3, 30)), numbers("int8", (7, 30) if turned else (30, 7))
    scale = rng.random(7).astype("f4") * np.float32(0.01)
    args = ("uint8", w, 1 - turned, scale, np.zeros(7, "i1"), x)
    result, network, xr, wr, b = joined("Gemm", *args, transB=turned, alpha=0.5, beta=2.0)
    assert operators_of(network) == ["Gemm"]
    expected = 0.5 * (xr @ (wr.T if turned else wr)) + 2 * b
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("each", [True, False])
def test_convolutions_of_dequantised_numbers_read_the_codes(each, monkeypatch):
    monkeypatch.setattr(flags, "compile", "always")
    x, w = numbers("uint8", (2, 4, 6, 5)), numbers("int8", (6, 2, 3, 2))
    scale = np.asarray(rng.random(6 if each else ()), "f4") * np.float32(0.01)
    zero, pads = np.zeros(np.shape(scale), "i1"), [1, 0, 2, 1]
    args = ("uint8", w, 0, np.asarray(scale), zero, x)
    result, network, xr, wr, b = joined("Conv", *args, pads=pads, strides=[2, 2], group=2)
    assert operators_of(network) == ["Conv"]
    xi, wi = np.rint(xr / 0.02).astype("i8"), w.astype("i8")
    factor = 0.02 * (scale.astype("f8")[:, None, None] if each else float(scale))
    expected = windows_sum(xi, wi, pads, 2, 2) * factor
    expected = expected + (b[:, None, None] if each else b)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_other_numbers_of_bits_are_real_products():
    x, w = numbers("uint8", (3, 30)), rng.integers(-999, 999, (30, 7)).astype("i2")
    CODES["int16"] = 5
    scale = np.asarray(0.01, "f4")
    result, _, xr, wr, _ = joined("MatMul", "uint8", w, 1, scale, np.zeros((), "i2"), x)
    np.testing.assert_allclose(result, xr @ wr, rtol=1e-4, atol=1e-3)


def test_real_numbers_that_others_read_are_made():
    x, w = numbers("uint8", (3, 30)), numbers("int8", (30, 7))
    nodes = [
        node("DequantizeLinear", ["x", "s"], ["xf"]),
        node("DequantizeLinear", ["w", "s"], ["wf"]),
        node("MatMul", ["xf", "wf"], ["p"]),
        node("ReduceMean", ["xf"], ["m"], keepdims=1),
        node("Add", ["p", "m"], ["y"]),
    ]
    result, network = result_of(nodes, {"x": x}, {"w": w, "s": np.float32(0.01)})
    assert operators_of(network) == ["DequantizeLinear", "MatMul", "ReduceMean", "Add"]
    xr = x * 0.01
    np.testing.assert_allclose(result, xr @ (w * 0.01) + xr.mean(), rtol=1e-4, atol=1e-4)


def test_nodes_without_outputs_are_no_products():
    nodes = [node("DequantizeLinear", ["x", "s"], []), node("MatMul", ["x", "x"], [])]
    nodes.append(node("DequantizeLinear", ["x", "s"], ["y"]))
    x = numbers("int8", (2, 2))
    result, network = result_of(nodes, {"x": x}, {"s": np.float32(0.5)})
    assert operators_of(network)[-1] == "DequantizeLinear"
    np.testing.assert_array_equal(result, x * np.float32(0.5))
