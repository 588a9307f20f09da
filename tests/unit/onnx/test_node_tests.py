"""Tests that ONNX has for its operators, by tools/judges/onnx_node_tests.py."""

import importlib
import runpy
import warnings
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.onnx.table import OPERATORS

pytest.importorskip("onnx", minversion="1.23")
TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "judges" / "onnx_node_tests.py"))

MODULES = """add batch_normalization cast causal_conv_with_state concat conv convtranspose cumsum
deformconv einsum gather gemm groupnormalization if_ instance_normalization layernormalization
loop lstm mod nonmaxsuppression onehot pad quantizelinear reducesum reshape resize roialign scan
scatternd sequence_map slice softmax split stft topk unique where"""
FEW_BITS = """test_attention_4d_fp16 test_attention_4d_causal_fp16
test_attention_4d_causal_fp16_expanded""".split()  # sums of half precision, in another order
NOISE = ["test_dft_inverse", "test_dft_inverse_opset19"]  # 2e-7 of the reference where 0 is right
ABSENT = [
    "test_ai_onnx_ml_tree_ensemble_set_membership",
    "test_ai_onnx_ml_tree_ensemble_single_tree",
]


@pytest.fixture(scope="module")
def chosen() -> list:
    """The cases that some modules of onnx make."""
    with warnings.catch_warnings(action="ignore"):
        node = importlib.import_module("onnx.backend.test.case.node")
        before = len(node._NodeTestCases)
        for name in MODULES.split():
            importlib.import_module(f"onnx.backend.test.case.node.{name}")
        return node._NodeTestCases[before:]


@pytest.mark.parametrize("backend", ["lazy", "numpy"])
def test_chosen_operators_do_as_onnx_says(backend, chosen):
    with gh.backends.use(backend):
        mine = [case for case in chosen if not TOOL["listed"](case)]
        faults = [f"{case.name}: {text}" for case in mine if (text := TOOL["fault"](case))]
    assert len(mine) > 300
    assert faults == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["lazy", "numpy"])
def test_all_operators_do_as_onnx_says(backend):
    with gh.backends.use(backend):
        mine = [case for case in TOOL["cases"]() if not TOOL["listed"](case)]
        failed = {case.name for case in mine if TOOL["fault"](case)}
    assert len(mine) > 1600
    assert failed <= {*FEW_BITS, *NOISE, *ABSENT}


def test_the_page_of_operators_has_all_of_the_table():
    page = Path(__file__).parents[3] / "docs" / "reference" / "onnx_operators.md"
    names = {line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")}
    own = {f"{domain}:{name}".lstrip(":") for domain, name in OPERATORS}
    assert own <= names, "Run python tools/documents/make_onnx_table.py."
