"""gh.save and gh.load."""

import io

import pytest

import glasshouse as gh

TREE = {"w": [1, (2.5, "x", None)], 3: float("inf"), "lr": True}


@pytest.fixture(params=["path", "file"])
def target(request, tmp_path):
    return tmp_path / "object.gh" if request.param == "path" else io.BytesIO()


def loaded(target):
    if isinstance(target, io.BytesIO):
        target.seek(0)
    return gh.load(target, map_location="cpu")


def test_trees_come_back(target):
    gh.save(TREE, target)
    assert loaded(target) == TREE


def test_a_models_state_comes_back(target):
    gh.random.seed(0)
    model, other = gh.nn.Linear(2, 3), gh.nn.Linear(2, 3)
    gh.save(model.state_dict(), target)
    other.load_state_dict(loaded(target))
    assert other.weight.tolist() == model.weight.tolist()


def test_other_safetensors_files_give_their_tensors(tmp_path):
    from glasshouse.interop import save_safetensors

    save_safetensors(tmp_path / "x.safetensors", {"a": gh.ones(2)})
    assert gh.load(tmp_path / "x.safetensors")["a"].tolist() == [1, 1]


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x80\x02"])
def test_pickles_are_refused(start, tmp_path):
    (tmp_path / "x.pt").write_bytes(start)
    with pytest.raises(gh.CheckpointError, match="got pickles"):
        gh.load(tmp_path / "x.pt")


def test_unpickling_is_refused(tmp_path):
    with pytest.raises(gh.OptionError, match="weights_only"):
        gh.load(tmp_path / "x", weights_only=False)


def test_modules_are_refused(target):
    with pytest.raises(gh.DTypeError, match="Linear"):
        gh.save(gh.nn.Linear(2, 2), target)
