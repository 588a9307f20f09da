"""Run the public conformance suite of the Array API standard on every way that we compute.

The suite is data-apis/array-api-tests, which is in no package index: give the folder of a checkout,
with its submodule. What it needs is in its requirements.txt.

    python tools/judges/array_api_suite.py PATH [--examples 20] [--seed 0] [pytest options]

It is copied first, for it writes beside itself. Exits non-zero if a test fails in any way."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
WAYS = (
    {"GH_BACKEND": "lazy", "GH_COMPILE": "auto"},
    {"GH_BACKEND": "lazy", "GH_COMPILE": "always"},
    {"GH_BACKEND": "numpy"},
)


def run_suite(folder: Path, way: dict[str, str], options: list[str]) -> int:
    """pytest's exit status for the suite in `folder`, computed in one way."""
    own = {"ARRAY_API_TESTS_MODULE": "glasshouse", "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "pytest", "-q", "--disable-deadline", "array_api_tests"]
    command += ["-W", "ignore", "--disable-warnings", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env={**os.environ, **own, **way}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    own_options, options = parser.parse_known_args()
    if not (own_options.path / "array_api_tests").is_dir():
        parser.error(
            f"expected a checkout of array-api-tests; got {own_options.path}. Check the path."
        )
    options += [
        "--max-examples",
        str(own_options.examples),
        f"--hypothesis-seed={own_options.seed}",
    ]
    failed = []
    for way in WAYS:
        name = " ".join(f"{key}={value}" for key, value in way.items())
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory() as work:
            folder = shutil.copytree(own_options.path, work, dirs_exist_ok=True)
            if run_suite(folder, way, options):
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "passed in every way")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
