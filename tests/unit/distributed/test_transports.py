"""The same cases over every transport; what they check stands in `collective_cases.py`."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).with_name("collective_cases.py")
spec = importlib.util.spec_from_file_location("collective_cases", PATH)
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

IDS = ["-".join(case) for case in cases.CASES]


@pytest.mark.parametrize("case", cases.CASES, ids=IDS)
def test_two_ranks_over_local(ranks, case):
    ranks(cases.run, *case)


@pytest.mark.parametrize("case", cases.CASES, ids=IDS)
def test_two_ranks_over_shared_files(clear_ranks, case):
    clear_ranks(cases.run, *case)
