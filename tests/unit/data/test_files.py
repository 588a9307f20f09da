"""Readers of files against the formats' definitions, Python's own modules and pyarrow."""

import csv
import gzip
import io
import json
import pickle
import struct
import tarfile

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import (
    BackendError,
    CheckpointError,
    DTypeError,
    OptionError,
    ShapeError,
)
from glasshouse.data import (
    ArrowDataset,
    BlobDataset,
    ColumnDataset,
    DataLoader,
    HuggingFaceDataset,
    HuggingFaceStream,
    JSONLinesDataset,
    LineDataset,
    LineStream,
    TarShards,
    cifar,
    decode_sample,
    memory_mapped,
    mnist,
    read_cifar,
    read_csv,
    read_idx,
    write_blob,
    write_idx,
    write_shards,
)
from glasshouse.data import text as text_module


def rng():
    return np.random.default_rng(0)


# -- IDX and CIFAR -------------------------------------------------------------------------------


def test_idx_is_what_its_definition_says(tmp_path):
    x = rng().integers(-99, 99, (2, 3, 4))
    data = struct.pack(">BBBB3I", 0, 0, 0x0B, 3, 2, 3, 4) + struct.pack(">24h", *x.ravel())
    (tmp_path / "x").write_bytes(data)
    (tmp_path / "y.gz").write_bytes(gzip.compress(data))
    for name in ("x", "y.gz"):
        out = read_idx(tmp_path / name)
        assert out.dtype == np.int16 and (out == x).all()
    write_idx(tmp_path / "z", x.astype(np.int16))
    assert (tmp_path / "z").read_bytes() == data


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_idx_round_trip(tmp_path, dtype, shape):
    x = rng().integers(0, 99, shape).astype(dtype)
    write_idx(tmp_path / "x", x)
    out = read_idx(tmp_path / "x")
    assert out.dtype == x.dtype and out.shape == shape and (out == x).all()


def test_mnist(tmp_path):
    images, labels = rng().integers(0, 256, (4, 28, 28), np.uint8), np.arange(4, dtype=np.uint8)
    write_idx(tmp_path / "t10k-images-idx3-ubyte", images)
    write_idx(tmp_path / "labels", labels)
    packed = gzip.compress((tmp_path / "labels").read_bytes())
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(packed)
    data = mnist(tmp_path, "test")
    assert len(data) == 4 and data[2][1] == 2
    np.testing.assert_array_equal(data[2][0], images[2])
    with pytest.raises(CheckpointError, match="train-images"):
        mnist(tmp_path)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(tmp_path, classes):
    images = rng().integers(0, 256, (5, 3, 32, 32), np.uint8)
    heads = [bytes([i]) if classes == 10 else bytes([90, i]) for i in range(5)]
    rows = b"".join(head + image.tobytes() for head, image in zip(heads, images, strict=True))
    (tmp_path / ("test_batch.bin" if classes == 10 else "test.bin")).write_bytes(rows)
    data = cifar(tmp_path, "test", classes)
    np.testing.assert_array_equal(np.stack([image for image, _ in data]), images)
    assert [int(label) for _, label in data] == list(range(5))


# -- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "a", "a\n", "ä\n\nb", "one\r\ntwo\r\n", "\n" * 5])
def test_lines_are_pythons(tmp_path, text, monkeypatch):
    monkeypatch.setattr(text_module, "CHUNK", 3)
    (tmp_path / "t").write_bytes(text.encode())
    expected = io.StringIO(text, newline=None).read().split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    data = LineDataset(tmp_path / "t")
    assert list(data) == expected
    assert list(pickle.loads(pickle.dumps(data))) == expected


def test_json_lines(tmp_path):
    (tmp_path / "t").write_text('{"a": 1}\n[2]\nbroken\n')
    data = JSONLinesDataset(tmp_path / "t")
    assert [data[0], data[1]] == [{"a": 1}, [2]]
    with pytest.raises(CheckpointError, match="line 3 of"):
        data[2]


def test_line_streams_are_shared_out_by_file(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"3\n4"))
    assert list(LineStream(str(tmp_path / "a"))) == list(LineStream([tmp_path / "a"]))
    data = LineStream([tmp_path / "a", tmp_path / "b.gz"])
    assert list(data) == list("1234")
    assert list(data.read_from(3)) == ["4"]
    assert sorted(sum(DataLoader(data, 2, num_workers=2), [])) == list("1234")


def test_csv(tmp_path):
    rows = [["x", "n", "s"], ["1.5", "1", "a,b"], ["-2", "3", 'say "hi"\nthere']]
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    data = read_csv(tmp_path / "t.csv")
    assert data[1] == {"x": -2.0, "n": 3, "s": rows[2][2]}
    (batch,) = DataLoader(data, 2)
    assert (batch["x"].dtype, batch["n"].dtype) == (gh.float64, gh.int64)
    assert batch["s"] == ["a,b", rows[2][2]]
    (tmp_path / "t.csv").write_text("1;2\n3;4\n")
    assert list(read_csv(tmp_path / "t.csv", ";", header=False)) == [
        {"0": 1, "1": 2},
        {"0": 3, "1": 4},
    ]


# -- shards --------------------------------------------------------------------------------------


def samples(count):
    for i in range(count):
        yield {"__key__": f"d/{i:03d}", "txt": f"text {i}", "cls": i, "npy": np.arange(i)}


def test_shards_round_trip(tmp_path):
    paths = write_shards(samples(7), tmp_path, per_shard=3)
    assert [path[-9:] for path in paths] == ["00000.tar", "00001.tar", "00002.tar"]
    for pattern in (paths, tmp_path / "*.tar", f"{tmp_path}/shard-{{000000..000002}}.tar"):
        data = TarShards(pattern).decode()
        assert [s["__key__"] for s in data] == [f"d/{i:03d}" for i in range(7)]
        assert all(s["txt"] == f"text {s['cls']}" and len(s["npy"]) == s["cls"] for s in data)
    for start in (0, 2, 3, 7):
        assert [s["cls"] for s in data.read_from(start)] == list(range(start, 7))


def test_shards_are_tar_files_of_webdatasets_form(tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        for name in ("a/1.left.txt", "a/1.json", "a.b/2.left.txt", "a.b/2.json"):
            info = tarfile.TarInfo(name)
            data = b"{}" if name.endswith("json") else name.encode()
            info.size = len(data)
            shard.addfile(info, io.BytesIO(data))
    first, second = TarShards(tmp_path / "s.tar").decode()
    assert first == {"__key__": "a/1", "left.txt": "a/1.left.txt", "json": {}}
    assert second["__key__"] == "a.b/2"
    (path,) = write_shards([{"json": {"a": 1}, "bin": b"\0"}], tmp_path / "out")
    with tarfile.open(path) as shard:
        assert shard.getnames() == ["000000000.json", "000000000.bin"]
        assert json.load(shard.extractfile("000000000.json")) == {"a": 1}


def test_images_in_shards(tmp_path):
    image = pytest.importorskip("PIL.Image").fromarray(rng().integers(0, 256, (4, 4, 3), np.uint8))
    (path,) = write_shards([{"png": image, "cls": 3}], tmp_path)
    (sample,) = TarShards(path).decode()
    assert np.asarray(sample["png"]).tolist() == np.asarray(image).tolist() and sample["cls"] == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_shards_go_on_in_the_middle(tmp_path, workers):
    write_shards(samples(12), tmp_path, per_shard=2)
    data = TarShards(tmp_path / "*.tar", shuffle=True, seed=1).shuffle(3).map(decode_sample)
    data = data.map(lambda sample: sample["cls"])

    def make():
        return DataLoader(data, 2, num_workers=workers)

    first = make()
    running = iter(first)
    items = [next(running).tolist() for _ in range(3)]
    state = first.state_dict()
    rest = [batch.tolist() for batch in running]
    resumed = make()
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == rest
    assert sorted(sum(items + rest, [])) == list(range(12))
    assert [batch.tolist() for batch in resumed] != items + rest


def test_a_shard_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(DTypeError, match=r"as .raw; got object"):
        write_shards([{"raw": object()}], tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- blobs and maps ------------------------------------------------------------------------------


def test_blobs_keep_fields_whose_names_come_in_another_order(tmp_path):
    samples = [{"x": 1, "n": 2.5}, {"n": 3.5, "x": 4}]
    write_blob(tmp_path / "b", samples)
    assert list(BlobDataset(tmp_path / "b")) == samples


def test_blobs_round_trip(tmp_path):
    values = [
        ({"x": rng().random((i, 2), np.float32), "n": i}, "text ä" * i, b"\0" * i, np.uint8(i))
        for i in range(5)
    ]
    write_blob(tmp_path / "b", values)
    data = BlobDataset(tmp_path / "b")
    assert len(data) == 5
    for (fields, text, raw, number), expected in zip(data, values, strict=True):
        np.testing.assert_array_equal(fields["x"], expected[0]["x"])
        assert fields["x"].dtype == np.float32 and number.dtype == np.uint8
        assert (fields["n"], text, raw, number) == (expected[0]["n"], *expected[1:])
    x = data[4][0]["x"]
    assert not x.flags.writeable and x.base is not None
    assert x.__array_interface__["data"][0] % 64 == 0
    assert pickle.loads(pickle.dumps(data))[3][1] == values[3][1]
    write_blob(tmp_path / "one", [np.arange(3), np.arange(4)])
    assert [x.tolist() for x in BlobDataset(tmp_path / "one")] == [[0, 1, 2], [0, 1, 2, 3]]
    write_blob(tmp_path / "none", [])
    assert len(BlobDataset(tmp_path / "none")) == 0


def test_a_blob_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ShapeError, match="at 1"):
        write_blob(tmp_path / "b", [(1, 2), {"a": 1}])
    assert list(tmp_path.iterdir()) == []


def test_memory_mapped(tmp_path):
    x, y = rng().random((6, 3)), np.arange(6)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = memory_mapped(tmp_path / "x.npy", tmp_path / "y.npy")
    (batch,) = DataLoader(data, 6, num_workers=1)
    np.testing.assert_array_equal(batch[0].numpy(), x)
    np.testing.assert_array_equal(batch[1].numpy(), y)


# -- tables --------------------------------------------------------------------------------------


def table():
    arrow = pytest.importorskip("pyarrow")
    pairs = arrow.FixedSizeListArray.from_arrays(arrow.array(np.arange(6.0, dtype=np.float32)), 2)
    return arrow.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "s": ["x", "y", "z"], "v": pairs})


def test_arrow_tables_and_files(tmp_path):
    whole = table()
    parquet = pytest.importorskip("pyarrow.parquet")
    feather = pytest.importorskip("pyarrow.feather")
    parquet.write_table(whole, tmp_path / "t.parquet")
    feather.write_feather(whole, str(tmp_path / "t.arrow"))
    for source in (whole, tmp_path / "t.parquet", str(tmp_path / "t.arrow")):
        data = ArrowDataset(source)
        assert data[1]["a"] == 2 and data[1]["s"] == "y" and data[-1]["v"].tolist() == [4, 5]
        (batch,) = DataLoader(data, 3)
        assert batch["a"].tolist() == [1, 2, 3] and batch["s"] == ["x", "y", "z"]
        assert (batch["b"].dtype, batch["v"].dtype) == (gh.float64, gh.float32)
        assert batch["v"].shape == (3, 2)
    both = ArrowDataset([tmp_path / "t.parquet"] * 2, columns=["v", "a"])
    assert len(both) == 6 and list(both[4]) == ["v", "a"] and both[4]["a"] == 2
    with pytest.raises(CheckpointError, match="'q'"):
        ArrowDataset(whole, columns=["q"])


def test_columns_with_gaps_and_lists_are_read_by_row():
    arrow = pytest.importorskip("pyarrow")
    data = ArrowDataset(arrow.table({"l": [[1], [2, 3]], "n": [1, None]}))
    assert data[1]["l"].tolist() == [2, 3] and data[1]["n"] is None and data[0]["n"] == 1


def test_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset(table(), fingerprint="glasshouse")
    data = HuggingFaceDataset(source)
    batches = list(DataLoader(data, 2, num_workers=1))
    assert [b["a"].tolist() for b in batches] == [[1, 2], [3]]
    assert batches[0]["v"].tolist() == [[0, 1], [2, 3]] and batches[1]["s"] == ["z"]
    for shards in (1, 2):
        stream = HuggingFaceStream(source.to_iterable_dataset(num_shards=shards))
        for workers in (0, 2):
            read = [b["a"].tolist() for b in DataLoader(stream, 1, num_workers=workers)]
            assert sorted(sum(read, [])) == [1, 2, 3]


def path_of(tmp_path, data, name="f"):
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


BAD_CALLS = {
    "idx-missing": (lambda p: read_idx(p / "no"), CheckpointError, "a readable file"),
    "idx-other": (lambda p: read_idx(path_of(p, b"PNG.")), CheckpointError, "an IDX file"),
    "idx-short": (
        lambda p: read_idx(path_of(p, bytes([0, 0, 8, 1, 0, 0, 0, 9, 1]))),
        CheckpointError,
        "17 bytes",
    ),
    "idx-dtype": (lambda p: write_idx(p / "x", [1j]), OptionError, "complex128"),
    "mnist-split": (lambda p: mnist(p, "tset"), OptionError, "'test'"),
    "cifar-classes": (lambda p: cifar(p, classes=7), OptionError, "10 or 100"),
    "cifar-rows": (lambda p: read_cifar([path_of(p, b"123")]), CheckpointError, "3 bytes"),
    "lines": (lambda p: LineDataset(p / "no"), CheckpointError, "no"),
    "lines-index": (lambda p: LineDataset(path_of(p, b"a"))[1], IndexError, "got 1"),
    "line-stream": (lambda p: LineStream([p / "no"]), CheckpointError, "no"),
    "csv-ragged": (lambda p: read_csv(path_of(p, b"a,b\n1\n")), ShapeError, "in row 2"),
    "csv-empty": (lambda p: read_csv(path_of(p, b"")), ShapeError, "rows"),
    "csv-delimiter": (lambda p: read_csv(p, ", "), OptionError, "one character"),
    "columns": (lambda p: ColumnDataset({"a": [1], "b": []}), ShapeError, "'b': 0"),
    "shards": (lambda p: TarShards(p / "*.tar"), OptionError, "shards"),
    "shard": (lambda p: list(TarShards(path_of(p, b"no tar"))), CheckpointError, "a tar file"),
    "per-shard": (lambda p: write_shards([], p, 0), OptionError, "per_shard"),
    "blob": (lambda p: BlobDataset(path_of(p, b"no blob" * 9)), CheckpointError, "write_blob"),
    "blob-leaf": (lambda p: write_blob(p / "b", [object()]), DTypeError, "object"),
    "map": (lambda p: memory_mapped(path_of(p, b"no array")), CheckpointError, ".npy"),
    "hugging-face": (lambda p: HuggingFaceDataset([1]), DTypeError, "list"),
    "hugging-face-stream": (lambda p: HuggingFaceStream([1]), DTypeError, "list"),
    "table": (lambda p: ArrowDataset(3), (DTypeError, BackendError), "int|pyarrow"),
    "table-file": (
        lambda p: ArrowDataset(path_of(p, b"no table", "t.parquet")),
        (CheckpointError, BackendError),
        "t.parquet|pyarrow",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name, tmp_path):
    call, error, text = BAD_CALLS[name]
    with pytest.raises(error, match=text):
        call(tmp_path)
