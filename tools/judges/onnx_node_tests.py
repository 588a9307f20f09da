"""The node tests that the package onnx makes, run by our importer: passed, failed and listed.

python tools/judges/onnx_node_tests.py [PATTERN] [--backend NAME] [--names]

Listed are tests of what is not computed here: strings, numbers of 2 and 4 bits, float8. Of random
draws shapes and dtypes are compared. Needs `pip install 'onnx>=1.23'`."""

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import glasshouse as gh

LISTED = {8: "strings", 17: "float8", 18: "float8", 19: "float8", 20: "float8", 21: "4 bits",
          22: "4 bits", 23: "4 bits", 24: "float8", 25: "2 bits", 26: "2 bits"}  # fmt: skip
DRAWS = re.compile("bernoulli|training_dropout(?!_zero)")
LEAST = 0.98  # of those that are not listed


def cases(pattern: str = "") -> list[Any]:
    """The cases whose names match."""
    with warnings.catch_warnings(action="ignore"):
        from onnx.backend.test.loader import load_model_tests

        return [case for case in load_model_tests(kind="node") if re.search(pattern, case.name)]


def types_in(proto: Any) -> Iterator[int]:
    """The codes of all element types in a TypeProto."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield getattr(proto, kind).elem_type
    elif kind in ("sequence_type", "optional_type"):
        yield from types_in(getattr(proto, kind).elem_type)


def listed(case: Any) -> str:
    """Why a case is not for us; empty where it is."""
    graph = case.model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for code in types_in(value.type):
            if code in LISTED:
                return LISTED[code]
    for node in graph.node:
        for a in node.attribute:
            is_type = a.name in ("to", "output_dtype", "dtype")
            if (is_type and a.i in LISTED) or (a.strings and node.op_type == "LabelEncoder"):
                return LISTED.get(a.i, "strings")
    return ""


def plain(value: Any) -> Any:
    """A test's value as an array, or a list of arrays."""
    if isinstance(value, list):
        return [plain(x) for x in value]
    if hasattr(value, "data_type"):
        from onnx import numpy_helper

        return numpy_helper.to_array(value)
    return value


def compare(result: Any, wanted: Any, rtol: float, atol: float, draws: bool) -> None:
    """As onnx's own runner compares.

    Raises: AssertionError for another value
    """
    if isinstance(wanted, list):
        assert len(result) == len(wanted)
        for pair in zip(result, wanted):
            compare(*pair, rtol, atol, draws)
        return
    if wanted is None:
        assert result is None
        return
    result, wanted = result.numpy(), np.asarray(wanted)
    assert result.shape == wanted.shape, f"shape {result.shape}, not {wanted.shape}"
    assert result.dtype == wanted.dtype, f"dtype {result.dtype}, not {wanted.dtype}"
    if draws:
        return
    if result.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
        result, wanted = result.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(result, wanted, rtol=rtol, atol=atol)


def fault(case: Any) -> str:
    """The difference that a case shows, or its error; empty where it passes."""
    draws = DRAWS.search(case.name) is not None
    try:
        network = gh.onnx.load(case.model)
        for inputs, outputs in case.data_sets:
            result = network(*plain(inputs))
            result = result if isinstance(result, tuple) else (result,)
            assert len(result) == len(outputs)
            for pair in zip(result, outputs):
                compare(pair[0], plain(pair[1]), case.rtol, case.atol, draws)
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--backend", help="a backend of ours; numpy has the references")
    parser.add_argument("--names", action="store_true", help="print the names that are listed")
    options = parser.parse_args()
    if options.backend:
        gh.backends.use(options.backend)
    why: Counter[str] = Counter()
    passed, failed = 0, 0
    for case in cases(options.pattern):
        reason = listed(case)
        if reason:
            why[reason] += 1
            if options.names:
                print(f"listed {case.name}: {reason}")
            continue
        text = fault(case)
        passed, failed = passed + (not text), failed + bool(text)
        if text:
            print(f"FAILED {case.name}: {text:.200}")
    share = passed / max(passed + failed, 1)
    print(f"passed {passed}, failed {failed}, listed {why.total()} ({dict(why)}); {share:.1%}")
    sys.exit(share < LEAST)


if __name__ == "__main__":
    main()
