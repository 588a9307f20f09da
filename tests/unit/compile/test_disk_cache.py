"""The folder of compiled code stays within its bytes, and loses first what was used longest ago."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glasshouse.base.flags import flags
from glasshouse.cli.main import main
from glasshouse.compile.building import disk_cache
from glasshouse.compile.building.disk_cache import (
    clear_entries,
    library_of,
    link_kernel,
    list_entries,
    prune_entries,
    read_entry,
    work_folder,
    write_entry,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache with four entries of 1000 bytes, `a` used longest ago, and a kernel in `b`."""
    monkeypatch.setattr(disk_cache.Written, "nbytes", 0)
    with flags.override(cache=str(tmp_path), cache_bytes=0):
        for age, name in enumerate(("d.code", "c.so", "b.so", "a.so")):
            write_entry(tmp_path / name, bytes(936))  # and 64 of its digest
            when = time.time() - 10_000 * age
            os.utime(tmp_path / name, (when, when))
        link_kernel(tmp_path, "gh_1", "b.so")
        yield tmp_path


def names(folder: Path) -> list[str]:
    return [entry.path.name for entry in list_entries(folder)]


def test_entries_are_listed_by_use(folder):
    assert names(folder) == ["a.so", "b.so", "c.so", "d.code"]
    assert [entry.nbytes for entry in list_entries(folder)] == [1000] * 4
    assert read_entry(folder / "a.so") == bytes(936)
    assert names(folder)[-1] == "a.so"


def test_what_was_used_longest_ago_goes_first(folder):
    removed = prune_entries(folder, 2500)
    assert [entry.path.name for entry in removed] == ["a.so", "b.so"]
    assert names(folder) == ["c.so", "d.code"]
    assert library_of(folder, "gh_1") is None  # no links to nowhere
    assert sorted(os.listdir(folder)) == ["c.so", "d.code"]


def test_an_entry_that_lost_bytes_is_none(folder):
    contents = (folder / "a.so").read_bytes()
    for torn in (b"", contents[:50], contents[:-1], contents[1:], contents + b"x"):
        (folder / "a.so").write_bytes(torn)
        assert read_entry(folder / "a.so") is None


def test_an_entry_that_others_write_meanwhile_is_whole(folder):
    """Two processes that make one entry at once write unequal data: a compiler's files differ."""
    stop = threading.Event()

    def write(value: bytes) -> None:
        while not stop.is_set():
            write_entry(folder / "a.so", value * 100)

    writers = [threading.Thread(target=write, args=(value,)) for value in (b"0", b"1")]
    for writer in writers:
        writer.start()
    try:
        read = [read_entry(folder / "a.so") for _ in range(500)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert None not in read


def test_kernels_are_found_by_name(folder):
    assert library_of(folder, "gh_1") == folder / "b.so"
    assert library_of(folder, "gh_2") is None


def test_writing_keeps_the_folder_within_its_bytes(folder):
    with flags.override(cache_bytes=5000):
        for k in range(20):
            write_entry(folder / f"new{k}.so", bytes(936))
            assert sum(entry.nbytes for entry in list_entries(folder)) <= 5000
    assert "a.so" not in names(folder) and "new19.so" in names(folder)


def test_many_short_processes_prune_as_often_as_one_that_writes_as_much(folder, monkeypatch):
    pruned, most = [], 1000
    monkeypatch.setattr(disk_cache, "prune_entries", lambda *args: pruned.append(args))
    monkeypatch.setattr(disk_cache.os, "urandom", np.random.default_rng(0).bytes)
    with flags.override(cache_bytes=most * disk_cache.PRUNE_PARTS):
        for _ in range(400):
            monkeypatch.setattr(disk_cache.Written, "nbytes", None)  # as a process begins
            disk_cache.Written.count(folder, most // 10)
    assert 25 <= len(pruned) <= 60  # about 40 times `most` were written


def test_clearing_leaves_what_is_being_made(folder):
    with work_folder(folder) as work:
        os.utime(work, (0, 0))
        assert len(clear_entries(folder)) == 4
        assert os.listdir(folder) == [work.name]
    assert os.listdir(folder) == []


def test_a_young_work_folder_is_left_alone(folder):
    (folder / "work-abc").mkdir()
    disk_cache.remove_stale(folder, "work-")
    assert (folder / "work-abc").exists()
    os.utime(folder / "work-abc", (0, 0))
    disk_cache.remove_stale(folder, "work-")
    assert not (folder / "work-abc").exists()


def run_cache(*args) -> str:
    done = CliRunner().invoke(main, ["cache", *args])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_shows_prunes_and_clears(folder):
    shown = run_cache()
    assert str(folder) in shown and "4, 4KB, no limit" in shown
    assert "libraries of kernels: 3, 3KB" in shown and "Programs: 1, 1KB" in shown
    assert "8 hours ago: a.so" in shown
    assert run_cache("--to", "2.5KB").startswith("removed  2, 2KB")
    assert names(folder) == ["c.so", "d.code"]
    assert run_cache("--clear").startswith("removed  2, 2KB")
    assert os.listdir(folder) == []
    with flags.override(cache_bytes=disk_cache.flags.by_name["cache_bytes"].default):
        assert "0, 0B, at most 2GiB (GH_CACHE_BYTES)" in run_cache()


def test_the_command_shows_a_folder_that_is_not_there(folder):
    with flags.override(cache=str(folder / "none")):
        assert "entries  0, 0B" in run_cache() and "removed  0, 0B" in run_cache("--clear")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--to", "much"], "is no number of bytes"),
        (["--to", "1MB", "--clear"], "Give one of --to, --clear"),
    ],
)
def test_the_command_refuses_what_it_does_not_understand(folder, args, text):
    done = CliRunner().invoke(main, ["cache", *args])
    assert done.exit_code == 2 and text in done.output
    assert len(names(folder)) == 4
