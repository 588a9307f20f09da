"""Check how many of the package's public names have a known type: `basedpyright --verifytypes`, or
pyright's, whichever is installed. `python tools/judges/known_types.py [--worst N]` prints the share
and the files with the most names without one; it fails below FLOOR, which is only ever raised."""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

FLOOR = 0.98  # of 25,000 public names; 1 is the aim
SOURCES = Path(__file__).parents[2] / "src"


def report() -> dict:
    """Run the checker on the sources of this checkout."""
    beside = Path(sys.executable).parent
    programs = [p for n in ("basedpyright", "pyright") if (p := shutil.which(n, path=beside))]
    programs += [p for n in ("basedpyright", "pyright") if (p := shutil.which(n))]
    if not programs:
        sys.exit("known_types: expected basedpyright; got none. pip install basedpyright")
    command = [programs[0], "--pythonpath", sys.executable, "--verifytypes", "glasshouse"]
    command += ["--ignoreexternal", "--outputjson"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    run = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=SOURCES.parent
    )
    return json.loads(run.stdout)["typeCompleteness"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worst", type=int, default=10, help="files to list")
    options = parser.parse_args()
    result = report()
    counts = result["exportedSymbolCounts"]
    with_type, total = counts["withKnownType"], sum(counts.values())
    print(
        f"{result['packageRootDirectory']}: {with_type} of {total} known, {with_type / total:.1%}"
    )
    files = collections.Counter(
        note["file"].rpartition("glasshouse/")[2]
        for symbol in result["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
        for note in symbol["diagnostics"]
        if "docstring" not in note["message"] and "file" in note
    )
    for name, count in files.most_common(options.worst):
        print(f"{count:6} {name}")
    if with_type / total < FLOOR:
        sys.exit(f"known_types: expected at least {FLOOR:.0%}; got {with_type / total:.1%}.")


if __name__ == "__main__":
    main()
