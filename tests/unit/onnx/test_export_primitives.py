"""Each primitive as ONNX: what onnxruntime and our importer give for its samples, and refusals."""

import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.dtype import by_name, real_dtype
from glasshouse.base.errors import Explained
from glasshouse.dispatch import primitives
from glasshouse.onnx.writing.table import ABSENT, WRITERS

onnx = pytest.importorskip("onnx", minversion="1.18")
bitcast = primitives["bitcast"]
WRITTEN = sorted(set(WRITERS) & set(primitives))
DTYPES = ("float32", "float64", "int64", "int32", "bool", "uint8", "int8", "complex64")
# onnxruntime lacks these operators for these types; ONNX, and our importer, have them.
NOT_IN_RUNTIME = {
    *((name, "float64") for name in ("conv", "conv_data_grad", "fold", "erf", "atan2")),
    *(("fold", name) for name in ("int64", "int32", "uint8", "int8")),
}  # fmt: skip
# What is refused beside functions of complex numbers: bits as numbers, an exchange with nobody.
REFUSED = {"bitcast", "collective_permute"}


def arrays_of(primitive, sample, dtype):
    arrays = [np.asarray(x) for x in sample.fill(np.random.default_rng(0), by_name[dtype])]
    if primitive.name in ("div", "remainder"):
        arrays[1][arrays[1] == 0] = 1
    return arrays


def function_of(primitive, sample, dtypes):
    """The call of a primitive on real tensors: complex ones come and go as their parts."""

    def call(*xs):
        xs = [
            bitcast(x, dtype=by_name[name]) if by_name[name].is_complex else x
            for x, name in zip(xs, dtypes, strict=True)
        ]
        if not sample.args:
            results = primitive(**sample.attrs)
        else:
            results = primitive(*(xs[0],) * 2 if len(sample.args) > len(xs) else xs, **sample.attrs)
        results = results if isinstance(results, tuple) else (results,)
        return tuple(
            bitcast(y, dtype=real_dtype(y.dtype)) if y.dtype.is_complex else y for y in results
        )

    return call


def real(array):
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], axis=-1)


def run_in_onnxruntime(path, arrays):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def assert_near(got, expected, tolerance):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def samples(name):
    primitive = primitives[name]
    own = {d.name for d in primitive.dtypes}
    for sample in primitive.samples:
        for dtype in [d for d in DTYPES if d in own]:
            yield sample, dtype


def checked_sample(name, sample, dtype, path):
    """Export a sample; compare what comes out of it with the primitive's own result."""
    primitive = primitives[name]
    arrays = arrays_of(primitive, sample, dtype)
    dtypes = [x.dtype.name for x in arrays]
    call = function_of(primitive, sample, dtypes)
    inputs = [real(x) for x in arrays]
    if not inputs:
        inputs, plain = [np.zeros(1, np.float32)], call
        call = lambda x: (*plain(), x)  # noqa: E731
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        try:
            expected = [x.numpy() for x in call(*map(gh.asarray, inputs))]
        except Explained:  # not for this dtype
            return False
        try:
            gh.onnx.export(call, tuple(inputs), path)
        except Explained:
            if name in REFUSED or any(by_name[d].is_complex for d in dtypes):
                return False
            raise
    onnx.checker.check_model(onnx.load(path), full_check=True)
    y = gh.onnx.load(path)(*map(gh.asarray, inputs))
    mine = [x.numpy() for x in (y if isinstance(y, tuple) else (y,))]
    assert_near(mine, expected, 1e-5)
    if (name, dtype) not in NOT_IN_RUNTIME:
        assert_near(run_in_onnxruntime(path, inputs), expected, 1e-5)
    return True


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_primitive_gives_the_same_as_onnx(name, tmp_path):
    pytest.importorskip("onnxruntime")
    compared = [checked_sample(name, *one, tmp_path / "one.onnx") for one in samples(name)]
    assert any(compared)


def test_every_primitive_is_written_or_refused():
    custom = {name for name, card in primitives.items() if card.kind == "custom"}
    assert set(primitives) - custom == (set(WRITERS) | set(ABSENT)) & set(primitives)
