"""How long `import glasshouse` takes in a fresh process. Aim: under 0.25 s, and no torch loaded."""

import os
import subprocess
import sys
import tempfile

from harness import measure, parse_arguments, save, show, summarize

STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "glasshouse": "import glasshouse",
    "command line": "import glasshouse.cli",
}
CHECK = "import glasshouse, sys; print(*sorted({'torch', 'sklearn', 'scipy'} & set(sys.modules)))"


def runner(statement: str, environment):
    """A function that runs `statement` in a fresh interpreter."""
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True, env=environment)


def with_bytecode(folder: str) -> dict[str, str]:
    """An environment in which modules are compiled once, as an installed package's are."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def main() -> None:
    options = parse_arguments(__doc__)
    repeats = 1 if options.smoke else 15
    with tempfile.TemporaryDirectory() as folder:
        environment = with_bytecode(folder)
        runs = {name: runner(s, environment) for name, s in STATEMENTS.items()}
        for run in runs.values():
            run()
        results = summarize(measure(runs, repeats))
    idle = results["nothing"]["median_s"]
    rows = [
        [name, f"{entry['median_s']:.3f}", f"{entry['median_s'] - idle:.3f}"]
        for name, entry in results.items()
    ]
    show(
        "import time",
        ["import", "process s", "of that importing s"],
        rows,
        f"medians of {repeats} runs; aim: glasshouse below 0.25 s",
    )
    heavy = subprocess.run(
        [sys.executable, "-c", CHECK], check=True, capture_output=True, text=True
    )
    print("heavy libraries loaded with it:", heavy.stdout.strip() or "none")
    print(save("import_time", results, options))


if __name__ == "__main__":
    main()
