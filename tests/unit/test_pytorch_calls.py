"""Random calls of PyTorch's names give the same here, or are refused, or are listed with a reason
(tools/judges/pytorch_calls.py)."""

import runpy
import warnings
from pathlib import Path

import pytest

import glasshouse as gh

pytest.importorskip("torch")
TOOL = Path(__file__).parents[2] / "tools" / "judges" / "pytorch_calls.py"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    JUDGE = runpy.run_path(str(TOOL))


def names() -> list[str]:
    return [
        f"{space}.{name}"
        for space, (theirs, ours, _) in JUDGE["SPACES"].items()
        for name in sorted(set(dir(theirs)) & set(dir(ours)))
        if not name.startswith("_")
    ]


def outcomes_of(name: str, tries: int):
    space, _, name = name.rpartition(".")
    with gh.backends.use("numpy"):
        return JUDGE["compared"](space, name, seed=1, tries=tries)


def check(name: str, tries: int):
    assert [o for o in outcomes_of(name, tries) if o.kind == "different"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_call_differs_in_silence(name):
    check(name, 30)


@pytest.mark.parametrize("name", JUDGE["BY_SPELLING"])
@pytest.mark.parametrize("space", ["torch.Tensor", "torch"])
def test_names_with_two_meanings_have_that_of_the_spelling(space, name):
    if hasattr(JUDGE["SPACES"][space][0], name):
        check(f"{space}.{name}", 60)


@pytest.mark.parametrize("name", [n for n in JUDGE["BY_SPELLING"] if hasattr(gh.Tensor, n)])
def test_methods_mean_what_pytorch_means(name):
    outcomes = outcomes_of(f"torch.Tensor.{name}", 40)
    assert outcomes and {o.kind for o in outcomes} <= {"same", "refused"}


def test_each_reason_is_of_a_name_that_is_there():
    everywhere = {name.rpartition(".")[2] for name in names()}
    match = JUDGE["fnmatchcase"]
    for patterns in (*(row[0] for row in JUDGE["DIFFERENT"]), *JUDGE["RANDOM"]):
        assert all(any(match(n, p) for n in everywhere) for p in patterns.split()), patterns


def test_a_difference_is_found():
    """The judge is no better than what it sees: of two libraries that differ it says so."""
    judged = JUDGE["difference"]
    assert judged((1.0,), (2.0,)) and judged(gh.ones(2).numpy(), (1, 2)) and not judged(1, 1.0)
