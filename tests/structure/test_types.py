"""Public functions say the types of their parameters and results."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_stub_of_tensors_methods_is_current():
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_tensor_stub.py"))
    assert tool["STUB"].read_text() == tool["stub"]()
