"""Names and devices that are not there: errors suggest the nearest, and say which there are."""

import pickle

import pytest

import glasshouse as gh
from glasshouse.dispatch import backend

OWNERS = {
    "sofmax": (gh, "softmax"),
    "Linaer": (gh.nn, "Linear"),
    "cross_entrpy": (gh.nn.functional, "cross_entropy"),
    "AdamWW": (gh.optim, "AdamW"),
    "choleski": (gh.linalg, "cholesky"),
    "DataLoadr": (gh.data, "DataLoader"),
    "reshap": (gh.ones(2), "reshape"),
    "requires_gard": (gh.nn.Parameter([1.0]), "requires_grad"),
    "bias_": (gh.nn.Linear(1, 1), "bias"),
}


@pytest.mark.parametrize("name", OWNERS)
def test_a_misspelled_attribute_suggests_the_nearest(name):
    owner, nearest = OWNERS[name]
    with pytest.raises(AttributeError, match=f"'{name}'.* Did you mean '{nearest}'"):
        getattr(owner, name)
    assert not hasattr(owner, name) and getattr(owner, name, None) is None


def test_special_names_are_not_misspelled_and_errors_are_copied():
    for owner in (gh, gh.ones(2)):
        with pytest.raises(AttributeError, match="has no attribute '__nothing__'$"):
            getattr(owner, "__nothing__")  # noqa: B009
    with pytest.raises(AttributeError) as caught:
        getattr(gh, "sofmax")  # noqa: B009
    assert "softmax" in str(pickle.loads(pickle.dumps(caught.value)))


def test_captured_code_asks_for_attributes_that_are_not_there():
    def fn(x):
        named = hasattr(x, "missing") or hasattr(gh, "missing")
        return x * 2 if not named else x

    captured = gh.optimize("eager")(fn)
    assert [captured(gh.ones(1)).item() for _ in range(3)] == [2, 2, 2]
    with pytest.raises(AttributeError, match="Did you mean 'shape'"):
        gh.optimize("eager")(lambda x: x.shpe)(gh.ones(1))


CALLS = [
    lambda device: gh.ones(2, device=device),
    lambda device: gh.ones(2).to(device),
    lambda device: gh.nn.Linear(2, 2, device=device),
    lambda device: gh.nn.Linear(2, 2).to(device),
    lambda device: gh.random.normal((2,)).to_device(device),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_device_that_is_not_there_says_which_are(call, monkeypatch, tmp_path):
    monkeypatch.setattr(backend, "CUDA_DEVICES", tmp_path / "none")
    with pytest.raises(gh.DeviceError, match="no CUDA device.*got 'cuda'. Leave it out"):
        call("cuda")
    monkeypatch.setattr(backend, "CUDA_DEVICES", tmp_path)
    (tmp_path / "0000:01:00.0").mkdir()
    with pytest.raises(gh.DeviceError, match=r"CUDA devices here: 1.*use\('torch:cuda:0'\)"):
        call("cuda:0")
    with pytest.raises(gh.DeviceError, match="got 'mps'. Leave it out, or write device='cpu'"):
        call("mps")


def test_the_first_cpu_is_the_cpu():
    assert gh.ones(2, device="cpu:0").to("cpu:0").device == "cpu"
