"""`tools/judges/torch_operators.py` judges results that are not close by their errors in
float64."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[3] / "tools" / "judges"))
from near_results import NEAR, as_near, difference  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def truth_of(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, dtype=torch.float64, generator=generator) * 100


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("units, near", [(0.5, True), (1.5, True), (3, False), (40, False)])
def test_two_roundings_are_as_near_and_more_are_not(dtype, units, near):
    truth = truth_of(64).to(dtype).double()  # eager's result is exact
    ours = truth + units * torch.finfo(dtype).eps * truth.norm() / 8
    if dtype in (torch.float32, torch.float64):
        ours = ours.to(dtype)
    theirs = truth.to(dtype)
    assert as_near(ours, theirs, truth) is near


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_close_is_near_only_by_the_result_in_float64(dtype):
    truth = truth_of(64)
    theirs = truth.to(dtype)
    ours = (truth * (1 + torch.finfo(dtype).eps * 3)).to(dtype)
    ours[0] = ours[0] + 1
    assert difference([ours], [theirs], [truth]) not in ("", NEAR)
    assert difference([ours], [theirs]) not in ("", NEAR)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_infinities_and_nans_have_to_stand_at_the_same_places(value):
    truth = truth_of(8)
    theirs, ours = truth.float(), truth.float()
    ours[3] = value
    assert not as_near(ours, theirs, truth)
    theirs[3] = value
    assert as_near(ours, theirs, truth)
