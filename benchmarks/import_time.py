"""How long `import glasshouse` takes in a fresh process. Aim: under 0.25 s, and no torch loaded."""

import subprocess
import sys

from harness import measure, parse_arguments, save, show, summarize

STATEMENTS = {
    "nothing": "pass",
    "numpy": "import numpy",
    "glasshouse": "import glasshouse",
    "command line": "import glasshouse.cli",
}
CHECK = "import glasshouse, sys; print(*sorted({'torch', 'sklearn', 'scipy'} & set(sys.modules)))"


def runner(statement: str):
    """A function that runs `statement` in a fresh interpreter."""
    return lambda: subprocess.run([sys.executable, "-c", statement], check=True)


def main() -> None:
    options = parse_arguments(__doc__)
    repeats = 1 if options.smoke else 15
    results = summarize(measure({name: runner(s) for name, s in STATEMENTS.items()}, repeats))
    idle = results["nothing"]["median_s"]
    rows = [
        [name, f"{entry['median_s']:.3f}", f"{entry['median_s'] - idle:.3f}"]
        for name, entry in results.items()
    ]
    show("import time", ["import", "process s", "of that importing s"], rows,
         f"medians of {repeats} runs; aim: glasshouse below 0.25 s")  # fmt: skip
    heavy = subprocess.run(
        [sys.executable, "-c", CHECK], check=True, capture_output=True, text=True
    )
    print("heavy libraries loaded with it:", heavy.stdout.strip() or "none")
    print(save("import_time", results, options))


if __name__ == "__main__":
    main()
