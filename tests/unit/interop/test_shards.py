"""Safetensors files that are mapped, and states in several files, as Hugging Face has them."""

import json

import numpy as np
import pytest
import safetensors.numpy

import glasshouse as gh
from glasshouse import nn
from glasshouse.base.dtype import all_dtypes
from glasshouse.interop import load_safetensors, open_safetensors, save_safetensors, save_shards
from glasshouse.interop.shards import INDEX, MappedTensors

rng = np.random.default_rng(0)


def tensors(count=6):
    return {f"layer.{i}": gh.asarray(rng.normal(size=(5, i)).astype("f")) for i in range(count)}


def sizes(folder) -> dict:
    """The bytes of tensors in each file."""
    files = sorted(folder.glob("*.safetensors"))
    return {f.name: sum(x.nbytes for x in safetensors.numpy.load_file(f).values()) for f in files}


@pytest.mark.parametrize("dtype", all_dtypes, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_every_dtype_is_mapped_as_it_was_saved(tmp_path, dtype, shape):
    array = rng.integers(0, 2, shape).astype(dtype.np)
    save_safetensors(tmp_path / "t.safetensors", {"x": array, "y": np.ones(3, np.int8)})
    loaded = open_safetensors(tmp_path / "t.safetensors")["x"]
    assert (loaded.shape, loaded.dtype) == (shape, dtype)
    np.testing.assert_array_equal(loaded.numpy(), array)


def test_shards_are_cut_by_size_and_read_together(tmp_path):
    state = tensors()  # 0, 20, 40, 60, 80, 100 bytes
    names = save_shards(tmp_path, state, 100)
    assert names == [f"model-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    assert list(sizes(tmp_path).values()) == [60, 60, 80, 100]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 300
    assert index["weight_map"]["layer.4"] == names[2]
    loaded = open_safetensors(tmp_path)
    assert set(loaded) == set(state) and len(loaded) == 6
    for name, x in state.items():
        np.testing.assert_array_equal(loaded[name].numpy(), x.numpy())


def test_a_tensor_above_the_size_has_a_file_of_its_own(tmp_path):
    assert len(save_shards(tmp_path, tensors(4), 30)) == 3


def test_one_file_has_no_index_and_an_old_one_goes(tmp_path):
    save_shards(tmp_path, tensors(), 100)
    assert save_shards(tmp_path, {"x": gh.ones(2)}) == ["model.safetensors"]
    assert not (tmp_path / INDEX).exists() and list(open_safetensors(tmp_path)) == ["x"]
    assert load_safetensors(tmp_path / "model.safetensors")["x"].tolist() == [1, 1]


def test_only_files_that_are_asked_for_are_opened(tmp_path):
    save_shards(tmp_path, tensors(), 100)
    (tmp_path / "model-00004-of-00004.safetensors").unlink()
    loaded = open_safetensors(tmp_path)
    assert loaded["layer.1"].shape == (5, 1)
    assert [path.name for path in loaded.files] == ["model-00001-of-00004.safetensors"]
    with pytest.raises(gh.CheckpointError, match="No such file"):
        loaded["layer.5"]


def test_a_file_larger_than_what_is_read_costs_what_is_read(tmp_path):
    """8 GiB of holes, of which one row is real."""
    rows, width = 1 << 12, 1 << 19
    header = {"x": {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, rows * width * 4]}}
    text = json.dumps(header).encode()
    with open(tmp_path / "t.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + rows * width * 4)
    mapped = MappedTensors(tmp_path / "t.safetensors").read("x")
    assert mapped.nbytes == 8 << 30 and not mapped[rows - 1].any()


def test_training_a_mapped_model_leaves_its_file_alone(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    save_shards(tmp_path, model.state_dict(), 200)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    other.load_state_dict(open_safetensors(tmp_path))
    for name, x in model.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name].numpy(), x.numpy())
    optimizer = gh.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        (other(gh.asarray(rng.normal(size=(16, 8)).astype("f"))) ** 2).sum().backward()
        optimizer.step()
    assert not np.array_equal(other[0].weight.numpy(), model[0].weight.numpy())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_transformers_reads_our_shards_and_we_read_its(tmp_path):
    torch = pytest.importorskip("torch")
    hub = pytest.importorskip("huggingface_hub")
    state = {name: torch.randn(20, 10) for name in ("a.weight", "b.weight", "c.weight")}
    (tmp_path / "theirs").mkdir()
    hub.save_torch_state_dict(state, tmp_path / "theirs", max_shard_size=900)
    assert (tmp_path / "theirs" / INDEX).exists()
    loaded = open_safetensors(tmp_path / "theirs" / INDEX)
    for name, x in state.items():
        np.testing.assert_array_equal(loaded[name].numpy(), x.numpy())
    save_shards(tmp_path / "ours", loaded, 900)
    read = torch.nn.Module()
    for name in "abc":
        read.add_module(name, torch.nn.Linear(10, 20, bias=False))
    hub.load_torch_model(read, tmp_path / "ours")
    for name, x in read.state_dict().items():
        assert torch.equal(x, state[name])


def written(path, header, data=b"\0" * 16, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def index(path, weight_map):
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return open_safetensors(path)


def open_file(header, **options):
    return lambda path: open_safetensors(written(path / "t", header, **options))


BAD_CALLS = {
    "missing": (lambda path: open_safetensors(path / "none"), "No such file"),
    "empty-folder": (lambda path: open_safetensors(path), "model.safetensors"),
    "empty-file": (lambda path: (path / "e").touch() or open_safetensors(path / "e"), "empty"),
    "no-json": (open_file(b"{"), "whole safetensors file"),
    "long-header": (open_file(entry(), length=10**9), "whole safetensors file"),
    "cut": (open_file(entry(), data=b"\0" * 12), "16 bytes at 0 for 'x'"),
    "shape": (open_file(entry(shape=(3, 2))), "(3, 2)"),
    "negative": (open_file(entry(offsets=(-8, 8))), "-8"),
    "dtype": (open_file(entry("F8_E4M3", offsets=(0, 4))), "F8_E4M3"),
    "no-map": (lambda path: index(path, None), "weight_map"),
    "outside": (lambda path: index(path, {"x": "../t"}), "../t"),
    "not-in-file": (
        lambda path: written(path / "t", entry()) and index(path, {"y": "t"})["y"], "'y'"),
    "size": (lambda path: save_shards(path, {}, "5 parsecs"), "parsecs"),
    "list": (lambda path: save_shards(path, [gh.ones(2)]), "list"),
    "number": (lambda path: save_shards(path, {"x": 3.0}), "'x'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_wrong_call_or_file_is_told_from_the_rest(name, tmp_path):
    call, part = BAD_CALLS[name]
    with pytest.raises((gh.CheckpointError, gh.DTypeError, gh.OptionError)) as caught:
        call(tmp_path)
    assert part in str(caught.value) and "expected" in str(caught.value)


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    save_shards(tmp_path, {"weight": gh.ones(2)})
    with pytest.raises(KeyError, match="'weight'"):
        open_safetensors(tmp_path)["wieght"]


def test_tensors_of_a_mapped_file_are_no_copies(tmp_path):
    save_safetensors(tmp_path / "t.safetensors", {"x": gh.arange(6.0)})
    files = open_safetensors(tmp_path / "t.safetensors")
    memory = np.frombuffer(files.file(tmp_path / "t.safetensors").memory, np.uint8)
    assert np.shares_memory(files["x"].numpy(), memory)
