"""safetensors files: all dtypes, whole or not at all, damage found."""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import glasshouse as gh
from glasshouse.base.dtype import all_dtypes
from glasshouse.base.errors import CheckpointError, DTypeError
from glasshouse.interop import load_safetensors, save_safetensors
from glasshouse.interop.safetensors import read_safetensors

pytestmark = pytest.mark.quick

rng = np.random.default_rng(0)


def sample(dtype, shape=(2, 3)):
    values = rng.integers(0, 2 if dtype.is_bool else 100, shape).astype(dtype.np)
    return values * dtype.np.type(1 + 2j) if dtype.is_complex else values


@pytest.mark.parametrize("dtype", all_dtypes, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_every_dtype_survives(tmp_path, dtype, shape):
    tensor = gh.asarray(sample(dtype, shape))
    save_safetensors(tmp_path / "t.safetensors", {"a.b": tensor})
    loaded = load_safetensors(tmp_path / "t.safetensors")["a.b"]
    assert isinstance(loaded, gh.Tensor)
    assert (loaded.shape, loaded.dtype) == (shape, dtype)
    np.testing.assert_array_equal(loaded.numpy(), tensor.numpy())


def test_transposed_and_read_only_arrays(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    save_safetensors(tmp_path / "t", {"t": gh.asarray(array).T, "n": array.T, "s": array[:, ::2]})
    loaded = load_safetensors(tmp_path / "t")
    assert loaded["t"].tolist() == loaded["n"].tolist() == array.T.tolist()
    assert loaded["s"].tolist() == array[:, ::2].tolist()


def test_loaded_tensors_can_be_written_to(tmp_path):
    save_safetensors(tmp_path / "t", {"a": np.zeros(3)})
    loaded = load_safetensors(tmp_path / "t")["a"]
    loaded[0] = 1.0
    loaded += 1.0
    assert loaded.tolist() == [2.0, 1.0, 1.0]


def test_files_are_exchanged_with_the_safetensors_library(tmp_path):
    arrays = {"w": np.arange(4, dtype=np.float32), "h": np.ones(2, ml_dtypes.bfloat16)}
    save_safetensors(tmp_path / "ours", arrays, {"note": "hello"})
    with safetensors.safe_open(tmp_path / "ours", framework="np") as file:
        np.testing.assert_array_equal(file.get_tensor("w"), arrays["w"])
        assert file.metadata()["note"] == "hello"
    safetensors.numpy.save_file(arrays, tmp_path / "theirs")
    loaded = load_safetensors(tmp_path / "theirs")
    assert loaded["w"].tolist() == [0, 1, 2, 3]
    assert loaded["h"].dtype == gh.bfloat16


@pytest.mark.parametrize("cut", [0, 4, 8, 60, -1])
def test_a_cut_off_file(tmp_path, cut):
    path = tmp_path / "t"
    save_safetensors(path, {"a": np.arange(100.0)})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match="whole safetensors file"):
        load_safetensors(path)


def test_every_flipped_byte_is_found(tmp_path):
    path = tmp_path / "t"
    save_safetensors(path, {"a": np.arange(4.0), "b": np.arange(3)}, {"note": "x"})
    data = path.read_bytes()
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x01
        path.write_bytes(broken)
        with pytest.raises(CheckpointError):
            read_safetensors(path, needs_checksum=True)


def test_other_files(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        load_safetensors(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="readable file"):
        load_safetensors(tmp_path)
    (tmp_path / "text").write_text("not a checkpoint, but long enough to have a header")
    with pytest.raises(CheckpointError, match="whole safetensors file"):
        load_safetensors(tmp_path / "text")


def test_bad_calls_leave_the_old_file(tmp_path):
    path = tmp_path / "t"
    save_safetensors(path, {"a": np.ones(2)})
    before = path.read_bytes()
    for tensors, text in [
        ([np.ones(2)], "got list"),
        ({1: np.ones(2)}, "other keys"),
        ({"a": [1.0]}, "got list for 'a'"),
        ({"a": np.array(["x"])}, "numeric array"),
        ({"a": None}, "NoneType"),
    ]:
        with pytest.raises(DTypeError, match=text):
            save_safetensors(path, tensors)
    with pytest.raises(DTypeError, match="metadata of strings"):
        save_safetensors(path, {}, {"epoch": 3})
    with pytest.raises(CheckpointError, match="expected to write"):
        save_safetensors(tmp_path / "missing" / "t", {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t"]


def test_a_failing_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t"
    save_safetensors(path, {"a": np.ones(2)})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_safetensors(path, {"a": np.zeros(2)})
    assert load_safetensors(path)["a"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["t"]


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    gone = tmp_path / ".t.4194999.1.tmp"  # above the largest process number of Linux
    running = tmp_path / f".t.{os.getpid()}.1.tmp"
    other = tmp_path / ".u.4194999.1.tmp"
    for leftover in (gone, running, other):
        leftover.write_text("half")
    save_safetensors(tmp_path / "t", {})
    assert sorted(os.listdir(tmp_path)) == sorted(["t", running.name, other.name])


def test_metadata_is_plain_json_in_the_header(tmp_path):
    save_safetensors(tmp_path / "t", {"z": np.ones(1, np.complex128)}, {"k": "v"})
    data = (tmp_path / "t").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["z"]["dtype"] == "F64"
    assert header["__metadata__"]["k"] == "v"
