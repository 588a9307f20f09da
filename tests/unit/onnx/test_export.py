"""gh.onnx.export: names, sizes that vary, weights outside, refusals; compared with onnxruntime and
with our importer."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.errors import (
    CheckpointError,
    DTypeError,
    Explained,
    OptionError,
    TransformError,
)
from glasshouse.onnx.writing import protobuf

onnx = pytest.importorskip("onnx", minversion="1.18")
F = nn.functional


def arrays_in(tree):
    return [x.numpy() for x in gh.tree.leaves(tree)]


def assert_same(path, fn, *calls):
    """The file is valid, and gives what fn gives for each tuple of arguments."""
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
    network = gh.onnx.load(path)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    for arguments in calls:
        arrays = [np.asarray(x) for x in arguments]
        with gh.no_grad():
            expected = arrays_in(fn(*map(gh.asarray, arrays)))
            mine = network(*map(gh.asarray, arrays))
        mine = arrays_in(mine if isinstance(mine, tuple) else (mine,))
        theirs = session.run(None, dict(zip(names, arrays, strict=True)))
        for results in (mine, theirs):
            for got, want in zip(results, expected, strict=True):
                scale = max(1.0, float(np.abs(want).max(initial=0)))
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * scale)
    return model


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.quick
def test_parameters_keep_their_names_and_the_module_its_mode(tmp_path):
    gh.random.seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)
    )
    path = gh.onnx.export(model, gh.asarray(normal(3, 4)), tmp_path / "m.onnx")
    assert model.training and all(x.training for x in model.modules())
    own = {name for name in model.state_dict() if "num_batches" not in name}
    assert {x.name for x in onnx.load(str(path)).graph.initializer} == own
    proto = assert_same(path, model.eval(), (normal(3, 4, seed=1),))
    assert [node.op_type for node in proto.graph.node] == [
        "Gemm",
        "BatchNormalization",
        "Relu",
        "Gemm",
    ]
    assert set(dict(gh.onnx.load(path).named_parameters())) == own


def test_axes_vary_by_name(tmp_path):
    def f(x, y):
        z = x.reshape((x.shape[0] * x.shape[1], x.shape[2])) @ y
        return {"mean": z.mean(), "z": z.reshape((*x.shape[:2], -1)), "last": z[-1]}

    inputs = normal(2, 3, 4), normal(4, 5)
    path = gh.onnx.export(
        f, inputs, tmp_path / "f.onnx", dynamic_axes={"x": {0: "batch", -2: "time"}}
    )
    proto = assert_same(
        path, f, inputs, (normal(5, 7, 4), normal(4, 5)), (normal(1, 1, 4), inputs[1])
    )
    sizes = [d.dim_param or d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch", "time", 4]
    assert [x.name for x in proto.graph.output] == ["last", "mean", "z"]


SIZED = {
    "strided": lambda x: x[:, 1::2, :-1],
    "halves": lambda x: x[:, : x.shape[1] // 2],
    "windows": lambda x: gh.nn.functional.unfold(x[:, None], 3, stride=2),
    "joined": lambda x: gh.concat([x, gh.flip(x, axis=1), x[:, :2]], axis=1),
    "counted": lambda x: x + gh.arange(x.shape[1])[None, :, None],
    "outer": lambda x: x[:, :, None] * x[:, None],
    "padded": lambda x: F.pad(x, (1, 2, 0, 3), value=1.5),
    "sorted": lambda x: gh.sort(x, axis=1),
    "deviation": lambda x: x.std((0, 1)),
    "running": lambda x: gh.cumulative_sum(x, axis=1),
    "softmax": lambda x: F.softmax(x * x.shape[1] ** -0.5, 1),
    "repeated table": lambda x: x[:, :3, 0] * gh.asarray(np.tile([[1, 2, 3]], (len(x), 1))),
    "counted table": lambda x: x * gh.asarray(np.arange(x.shape[1])[:, None] / 2),
    "looped": lambda x: gh.scan(lambda c, r: (c + r, c * r), x[0], x)[1],
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_follow_through_what_a_function_does_with_them(name, tmp_path):
    fn = SIZED[name]
    axes = {"x": {0: "n", 1: "t"}}
    path = gh.onnx.export(fn, normal(3, 6, 4), tmp_path / "f.onnx", dynamic_axes=axes)
    assert_same(path, fn, (normal(3, 6, 4),), (normal(7, 12, 4),), (normal(2, 10, 4),))


def test_loops_and_branches_stay_loops_and_branches(tmp_path):
    def f(x):
        y = gh.while_loop(lambda v: (v * v).sum() < 1000, lambda v: v * 2, x)
        return gh.cond(y[0, 0] > 0, lambda v: v + 1, lambda v: -v, y)

    path = gh.onnx.export(f, normal(2, 3), tmp_path / "f.onnx")
    proto = assert_same(path, f, (normal(2, 3),), (normal(2, 3, seed=1) / 100,))
    assert {"Loop", "If"} <= {node.op_type for node in proto.graph.node}


def test_large_weights_lie_beside_the_file(tmp_path):
    model = nn.Linear(64, 32)
    path = gh.onnx.export(model, normal(2, 64), tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 64 * 32 * 4 > path.stat().st_size
    assert sorted(x.name for x in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(str(path), full_check=True)
    assert_same(path, model, (normal(2, 64),))


def test_arguments_by_name_and_fixed_ones(tmp_path):
    def f(x, scale, *, mask=None):
        return x * scale if mask is None else gh.where(mask, x, scale)

    options = {"x": normal(2, 3), "scale": 2.5, "mask": normal(2, 3) > 0}
    path = gh.onnx.export(
        f, options, tmp_path / "f.onnx", input_names=["a", "b"], output_names=["c"]
    )
    proto = assert_same(path, lambda a, b: f(a, 2.5, mask=b), (options["x"], options["mask"]))
    assert [x.name for x in (*proto.graph.input, *proto.graph.output)] == ["a", "b", "c"]


class Model(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn, self.seen = fn, nn.Buffer(gh.zeros(3))

    def forward(self, x):
        return self.fn(self, x)


def counting(model, x):
    model.seen[...] = model.seen + x.sum()
    return x


REFUSED = {
    "cholesky": (lambda m, x: gh.linalg.cholesky(x), OptionError, "cholesky in Model at .*py:"),
    "branch": (lambda m, x: x if x.sum() > 0 else -x, TransformError, "test_export.py:"),
    "value": (lambda m, x: x * x.max().item(), TransformError, "contents of tensors"),
    "mask": (lambda m, x: x[x > 0], TransformError, "contents of tensors"),
    "chance": (lambda m, x: x + gh.random.normal(x.shape), OptionError, "random_bits"),
    "state": (counting, Explained, "seen|contents"),
    "complex": (lambda m, x: gh.fft.fft(x), DTypeError, "a real output"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_does_not_say_is_refused_by_its_place(name, tmp_path):
    fn, error, text = REFUSED[name]
    model = Model(fn)
    with pytest.raises(error, match=text):
        gh.onnx.export(model, normal(3, 3), tmp_path / "m.onnx")
    assert model.seen.mode is None and model.seen.tolist() == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_calls_that_depend_on_a_size_are_refused(tmp_path):
    def f(x):
        for i in range(x.shape[0]):
            x = x + i
        return x

    with pytest.raises(OptionError, match="do not depend on size 'n'"):
        gh.onnx.export(f, normal(3, 3), tmp_path / "m.onnx", dynamic_axes={"x": {0: "n"}})


@pytest.mark.parametrize(
    "options, text",
    [
        ({"dynamic_axes": {"z": {0: "n"}}}, "inputs in dynamic_axes"),
        ({"dynamic_axes": {"x": {2: "n"}}}, "axes of 'x'"),
        ({"dynamic_axes": {"x": {0: 3}}}, "a name for a size"),
        ({"dynamic_axes": {"x": {0: "n", 1: "n"}}}, "one size 'n'"),
        ({"dynamic_axes": ["x"]}, "dynamic_axes by input"),
        ({"opset": 12}, "an opset from 21"),
        ({"input_names": ["a", "b"]}, "1 input_names"),
        ({"output_names": []}, "1 output_names"),
    ],
)
def test_options_that_do_not_fit_are_named(options, text, tmp_path):
    with pytest.raises(OptionError, match=text):
        gh.onnx.export(lambda x: x + 1, normal(2, 3), tmp_path / "m.onnx", **options)


def test_inputs_and_paths_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(DTypeError, match="inputs of a call"):
        gh.onnx.export(lambda x: x, 3, tmp_path / "m.onnx")
    with pytest.raises(OptionError, match="tensors among the inputs"):
        gh.onnx.export(lambda x: x, (3,), tmp_path / "m.onnx")
    with pytest.raises(DTypeError, match="a real input 'x'"):
        gh.onnx.export(lambda x: x, normal(2) + 1j, tmp_path / "m.onnx")
    with pytest.raises(DTypeError, match="a module or a function"):
        gh.onnx.export(3, normal(2), tmp_path / "m.onnx")
    with pytest.raises(CheckpointError, match="a path that can be written"):
        gh.onnx.export(lambda x: x + 1, normal(2), tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(DTypeError, match="a path"):
        gh.onnx.export(lambda x: x + 1, normal(2), 5)


def test_threads_export_and_trace_beside_each_other(tmp_path):
    def f(x):
        return F.softmax(x @ x.mT, -1)

    def other(i):
        if i % 2:
            return gh.jit(f)(gh.asarray(normal(3, 3, seed=i)))
        path = gh.onnx.export(f, normal(3, 3, seed=i), tmp_path / f"{i}.onnx")
        return gh.onnx.load(path)(gh.asarray(normal(3, 3, seed=i)))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(other, range(12)))
    for i, y in enumerate(results):
        np.testing.assert_allclose(y.numpy(), f(gh.asarray(normal(3, 3, seed=i))).numpy(), 1e-5)


def test_weights_beyond_what_protobuf_holds_lie_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(protobuf, "MOST_INSIDE", 4000)
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 2))
    path = gh.onnx.export(model, normal(2, 64), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists()
    assert_same(path, model, (normal(2, 64),))


@pytest.mark.parametrize("opset", [21, 23])
def test_newer_opsets_are_written(opset, tmp_path):
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    path = gh.onnx.export(model, normal(2, 5, 8), tmp_path / "m.onnx", opset=opset)
    proto = assert_same(path, model, (normal(2, 5, 8),))
    assert proto.opset_import[0].version == opset


@pytest.mark.parametrize("pair", [("int8", "uint8"), ("int16", "uint16"), ("int32", "uint32")])
def test_bits_of_integers_keep_their_values_modulo_a_power_of_two(pair, tmp_path):
    for a, b in (pair, pair[::-1]):
        ends = np.iinfo(a)
        x = np.array([ends.min, 0, 1, ends.max // 2 + 1, ends.max], a)
        fn = lambda x, b=b: gh.dispatch.primitives["bitcast"](x, dtype=getattr(gh, b))  # noqa: E731
        assert_same(gh.onnx.export(fn, x, tmp_path / "b.onnx"), fn, (x,))


def test_bits_read_as_floats(tmp_path):
    ends = np.array([0, 1, -1, 1.5, -0.1, 3e38, 1e-40, -1e-45, np.inf, -np.inf, np.nan], np.float32)
    for kind in ("int32", "uint32"):
        fn = lambda x: gh.dispatch.primitives["bitcast"](x, dtype=gh.float32)  # noqa: E731
        path = gh.onnx.export(fn, ends.view(kind), tmp_path / "b.onnx")
        got = gh.onnx.load(path)(ends.view(kind)).numpy()
        np.testing.assert_array_equal(got, ends)


def test_layers_that_compute_in_integers_do_so_in_the_file(tmp_path):
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 8)
    model = gh.quantize(nn.Sequential(*layers).eval(), "int8_dynamic")
    path = gh.onnx.export(
        model, normal(2, 3, 4, 4), tmp_path / "m.onnx", dynamic_axes={"input": {0: "n"}}
    )
    assert_same(path, model, (normal(2, 3, 4, 4),), (normal(3, 3, 4, 4),))


def operators(proto):
    return [node.op_type for node in proto.graph.node]


QDQ, WHOLE_NUMBERS = "QuantizeLinear", "DynamicQuantizeLinear"


@pytest.mark.parametrize(
    "scheme, options, words",
    [
        ("int8_static", {}, {QDQ: 2, "DequantizeLinear": 4, "Conv": 1, "Gemm": 1}),
        ("int8_dynamic", {"per_row": False}, {WHOLE_NUMBERS: 1, "MatMulInteger": 1}),
        ("int8_dynamic", {}, {WHOLE_NUMBERS: 0, "MatMulInteger": 1, "ConvInteger": 1}),
    ],
)
def test_layers_of_8_bits_are_onnx_own_words(scheme, options, words, tmp_path):
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 8)
    if scheme == "int8_static":
        options = {"calibrate": [gh.asarray(normal(2, 3, 4, 4))]}
    model = gh.quantize(nn.Sequential(*layers).eval(), scheme, **options)
    axes = {"input": {0: "n"}}
    path = gh.onnx.export(model, normal(2, 3, 4, 4), tmp_path / "m.onnx", dynamic_axes=axes)
    onnxruntime, proto = pytest.importorskip("onnxruntime"), onnx.load(str(path))
    onnx.checker.check_model(proto, full_check=True)
    assert {name: operators(proto).count(name) for name in words} == words
    kinds = {x.name: x.data_type for x in proto.graph.initializer}
    assert kinds["0.codes"] == kinds["3.codes"] == onnx.TensorProto.INT8
    x = normal(3, 3, 4, 4)
    wanted = model(gh.asarray(x)).numpy()
    np.testing.assert_array_equal(gh.onnx.load(path)(gh.asarray(x)).numpy(), wanted)
    # onnxruntime joins a convolution and what makes codes of it, and rounds once less
    step = float(np.ptp(wanted)) / 255
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"input": x})
    np.testing.assert_allclose(theirs, wanted, rtol=0, atol=step)


class Block(nn.Module):
    """Layers as a transformer has them, with a sum that other layers read."""

    def __init__(self, size):
        super().__init__()
        self.norm, self.rise = nn.LayerNorm(size), nn.Linear(size, 2 * size)
        self.fall = nn.Linear(2 * size, size, bias=False)

    def forward(self, x):
        return x + self.fall(nn.functional.gelu(self.rise(self.norm(x))))


@pytest.mark.parametrize("axes", [None, {"input": {0: "n"}}])
@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8), (2, 3, 4, 8)])
def test_blocks_of_8_bits_load_in_onnxruntime(shape, axes, tmp_path):
    """Its optimizers join products of more than two axes with their sums, and move the codes."""
    onnxruntime, x = pytest.importorskip("onnxruntime"), normal(*shape)
    model = nn.Sequential(Block(8), Block(8)).eval()
    gh.quantize(model, "int8_static", calibrate=[gh.asarray(x)])
    path = gh.onnx.export(model, x, tmp_path / "m.onnx", dynamic_axes=axes)
    assert_same(path, model, (x,))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"input": x})
    wanted = model(gh.asarray(x)).numpy()
    np.testing.assert_allclose(theirs, wanted, rtol=0, atol=float(np.ptp(wanted)) / 255)


def test_one_image_has_one_scale(tmp_path):
    model = gh.quantize(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)).eval(), "int8_dynamic")
    path = gh.onnx.export(model, normal(1, 3, 4, 4), tmp_path / "m.onnx")
    proto = assert_same(path, model, (normal(1, 3, 4, 4),))
    assert operators(proto)[:2] == [WHOLE_NUMBERS, "ConvInteger"]


def test_a_layer_of_8_bits_in_a_loop_is_exported(tmp_path):
    make = lambda: nn.Sequential(nn.Linear(4, 4)).eval()  # noqa: E731
    model = gh.quantize(make(), "int8_static", calibrate=[gh.asarray(normal(5, 4))])
    fn = lambda x: gh.scan(lambda h, y: (model(h + y), h), gh.zeros((2, 4)), x)[0]  # noqa: E731
    path = gh.onnx.export(fn, normal(3, 2, 4), tmp_path / "s.onnx")
    assert_same(path, fn, (normal(3, 2, 4),))


def test_quantised_layers_keep_their_packed_weights(tmp_path):
    model = gh.quantize(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), "int8")
    path = gh.onnx.export(model, normal(2, 64), tmp_path / "m.onnx")
    assert path.stat().st_size < 64 * 64 * 4
    assert_same(path, model, (normal(2, 64),))


def test_a_function_of_derivatives_is_exported(tmp_path):
    fn = gh.grad(lambda x: (gh.sin(x) * x).sum())
    path = gh.onnx.export(fn, normal(3, 2), tmp_path / "g.onnx")
    assert_same(path, fn, (normal(3, 2),))
    with pytest.raises(OptionError, match="returns a tensor"):
        gh.onnx.export(lambda x: None, normal(3), tmp_path / "n.onnx")


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_one_node_a_direction(name, tmp_path):
    model = getattr(nn, name)(4, 3, bidirectional=True)
    axes = {"input": {0: "t", 1: "n"}}
    path = gh.onnx.export(model, normal(5, 2, 4), tmp_path / "m.onnx", dynamic_axes=axes)
    proto = assert_same(path, model, (normal(5, 2, 4),), (normal(8, 3, 4),))
    assert sum(node.op_type == name for node in proto.graph.node) == 2
    assert not any(node.op_type in ("Scan", "Loop") for node in proto.graph.node)
