"""The cache folder as one file: what is exported, imported and refused."""

import gzip
import io
import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from click.testing import CliRunner

from glasshouse.base.errors import CheckpointError
from glasshouse.cli.main import main
from glasshouse.compile.building.disk_cache import library_of, link_kernel, write_entry
from glasshouse.compile.building.portable_cache import export_entries, import_entries

PROGRAM = """
import glasshouse as gh
from glasshouse.compile.building import toolchain
calls, run = [], toolchain.run
toolchain.run = lambda *args, **kwargs: calls.append(args) or run(*args, **kwargs)
with gh.base.flags.flags.override(compile="always"):
    print(((gh.ones(3) + 2.0) * 5.0).tolist())
print(sum("-shared" in command for command, *_ in calls))
"""


COMMAND = "from glasshouse.cli.main import main; main()"


def filled(folder):
    folder.mkdir(mode=0o700)
    write_entry(folder / "a.so", b"library")
    write_entry(folder / "b.code", b"code")
    link_kernel(folder, "gh_1", "a.so")
    return folder


def archive_of(path, **members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_entries_and_links_arrive_in_another_folder(tmp_path):
    folder, other, file = filled(tmp_path / "one"), tmp_path / "two", tmp_path / "file"
    assert len(export_entries(folder, file)) == 2
    assert import_entries(file, other) == 2
    assert (other / "a.so").read_bytes() == (folder / "a.so").read_bytes()
    assert library_of(other, "gh_1") == other / "a.so"


def test_bad_files_are_refused_and_nothing_is_written(tmp_path):
    folder, other, file = filled(tmp_path / "one"), tmp_path / "two", tmp_path / "file"
    export_entries(folder, file)
    good, whole = file.read_bytes(), (folder / "a.so").read_bytes()
    bad = tmp_path / "bad"
    for contents in (b"", good[: len(good) // 2], gzip.compress(b"x" * 600)):
        bad.write_bytes(contents)
        with pytest.raises(CheckpointError, match="cache"):
            import_entries(bad, other)
    for name, data in (("a.so", whole[:-1] + b"?"), ("../a.so", whole), ("a.txt", whole)):
        archive_of(bad, **{"b.code": (folder / "b.code").read_bytes(), name: data})
        with pytest.raises(CheckpointError, match="cache"):
            import_entries(bad, other)
    archive_of(bad, **{"gh_1.kernel": b"/lib/other.so"})
    with pytest.raises(CheckpointError, match="names no library"):
        import_entries(bad, other)
    with pytest.raises(CheckpointError, match="No such file"):
        import_entries(tmp_path / "none", other)
    assert not other.exists() or not any(other.iterdir())


def test_the_command_takes_one_of_its_options(tmp_path):
    result = CliRunner().invoke(main, ["cache", "--clear", "--export", str(tmp_path / "file")])
    assert result.exit_code == 2 and "one of" in result.output


@pytest.mark.slow
def test_a_process_with_an_imported_cache_compiles_nothing(tmp_path):
    def run(folder, *command):
        env = {**os.environ, "GH_CACHE": str(tmp_path / folder)}
        command = [sys.executable, *command]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    first = run("one", "-c", PROGRAM).split("\n")
    assert int(first[1]) > 0
    run("one", "-c", COMMAND, "cache", "--export", str(tmp_path / "file"))
    run("two", "-c", COMMAND, "cache", "--import", str(tmp_path / "file"))
    assert run("two", "-c", PROGRAM).split("\n")[:2] == [first[0], "0"]
    np.testing.assert_array_equal(eval(first[0]), [15.0, 15.0, 15.0])
