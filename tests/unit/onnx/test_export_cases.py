"""Layers of nn, and models of vision, speech and text, as ONNX: the same as ours in onnxruntime."""

import runpy
from pathlib import Path

import pytest

import glasshouse as gh

pytest.importorskip("onnx", minversion="1.18")
pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "judges" / "onnx_export_cases.py"))
NEAR = 1e-5  # as a part of the largest number
# Layers that are no functions of tensors, draw while they run, or train only.
OTHERS = """Container Module ModuleDict ModuleList ParameterDict ParameterList Sequential Transform
    KVCache GrowingKVCache LayerDropSequential PrecisionCast RNNBase RNNCellBase QuantizedEmbedding
    QuantizedLinear FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
    ALiBi RelativePositionBias TransformerDecoder TransformerEncoder
    UpsamplingBilinear2d UpsamplingNearest2d DropPath Dropout1d Dropout2d Dropout3d
    FeatureAlphaDropout Int8Linear Int8Conv1d Int8Conv2d Int8Conv3d
    SeparableConv2d SeparableConv3d LPPool3d""".split()


def check(case, folder):
    result = TOOL["outcome"](case, folder)
    assert result.refusal == ""
    assert result.runtime <= NEAR and result.importer <= NEAR


def parameters(family):
    return [pytest.param(case, id=case.name) for case in TOOL["FAMILIES"][family]()]


@pytest.mark.sample(90)
@pytest.mark.parametrize("case", parameters("nn"))
def test_a_layer_gives_the_same_as_onnx(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", parameters("quantised"))
def test_a_layer_of_8_bits_gives_the_same_as_onnx(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", parameters("text"))
def test_a_model_of_text_gives_the_same_as_onnx(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", parameters("speech"))
def test_a_model_of_speech_gives_the_same_as_onnx(case, tmp_path):
    check(case, tmp_path)


SMALL = ("VisionTransformer", "UNet")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(*p.values, id=p.id, marks=() if p.id in SMALL else pytest.mark.slow)
        for p in parameters("vision")
    ],
)
def test_a_model_of_vision_gives_the_same_as_onnx(case, tmp_path):
    check(case, tmp_path)


def test_each_layer_of_nn_is_a_case():
    names = {case.name.split(",")[0].split(" ")[0] for case in TOOL["FAMILIES"]["nn"]()}
    own = {
        name
        for name, kind in vars(gh.nn).items()
        if isinstance(kind, type) and issubclass(kind, gh.nn.Module)
    }
    rest = {
        n for n in own - names if not n.startswith("Lazy") and not n.endswith(("Loss", "Loss2d"))
    }
    assert rest == set(OTHERS)
