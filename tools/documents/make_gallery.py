"""Write docs/gallery: reports and traces of the programs in docs/gallery/programs, and their page.

`python tools/documents/make_gallery.py` makes all, `make_gallery.py NAME …` some of them, and
`make_gallery.py --page` the page alone. Needs PyTorch and transformers for the programs of PyTorch.
Reports and traces name neither the machine nor folders of it."""

import argparse
import base64
import gzip
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
PROGRAMS = GALLERY / "programs"
STEPS = "4"
MOST_BYTES = 500_000  # of a trace; a larger one is not kept
OPTIONS = ("--steps", STEPS, "--stack")


class Entry(NamedTuple):
    """One report of the gallery: the program, what to look at, and how it is run."""

    name: str
    title: str
    look: str
    target: str = "step"


ENTRIES = [
    Entry("resnet50", "ResNet-50",
          "The flame graph by module: which of the four stages takes the time, forward and "
          "backward. Kernels are near the machine's limit or not, in the column of FLOP/s."),
    Entry("gpt2_compiled", "GPT-2, compiled from PyTorch",
          "Modules have the names that the PyTorch program gave them, gradients too. The largest "
          "part is the update, which torch.compile of the model leaves eager: the advice names its "
          "line."),
    Entry("whisper_compiled", "Whisper, inference",
          "Encoder and decoder of one forward pass. There is no backward pass and no optimizer, "
          "and memory returns to the same level after each step."),
    Entry("bert_eager", "BERT, eager PyTorch",
          "Nothing is compiled: each operator is a kernel of its own. The advice says which "
          "chains of operators would become one kernel."),
    Entry("two_ranks", "Two ranks",
          "The trace has a process for each rank, and a track of what the transport did. The "
          "report is that of rank 0; its step has a part for communication."),
    Entry("checkpointed", "A checkpointed step",
          "Time and FLOPs of the pass `recompute`, and a peak of memory without the inside of the "
          "layers."),
    Entry("loader_bound", "A step that waits for data",
          "The first row of the step's time is the wait; the page of steps says which part of the "
          "loader it went to, and the first advice what to change."),
    Entry("captured", "A captured step",
          "One native call a step: no operator has time of the host, and each kernel has the line "
          "and module of the calls that it computes."),
    Entry("convolutions", "A convolutional network",
          "Most of the time lies in convolutions, forward and backward; the table says which way "
          "of computing each was given (winograd, onednn, panels). The advice is to capture: calls "
          "pass Python one by one."),
    Entry("attention", "Two runs compared",
          "Attention written out, and by one function: the page of changes says by how much the "
          "median step differs, with an interval, and which kernels came and went.", "after"),
]  # fmt: skip


def run(*words: str) -> None:
    """Run `glasshouse` on a program, in its folder."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    own = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "glasshouse.cli", *words]
    print("glasshouse", *words)
    subprocess.run(command, cwd=PROGRAMS, env=own, check=True, stdout=subprocess.DEVNULL)


def profile(folder: Path, name: str, target: str, *more: str) -> None:
    """Profile a function of a program; leave report and trace in the folder."""
    outputs = ("--report", f"{folder}/{name}.html", "--trace", f"{folder}/{name}.json.gz")
    run("profile", f"{name}:{target}", *OPTIONS, *outputs, *more)


def make(entry: Entry, folder: Path) -> None:
    """Run the program of an entry."""
    if entry.name == "two_ranks":
        run("launch", "-n", "2", "two_ranks.py", str(folder))
        traces = [f"{folder}/rank{rank}.json.gz" for rank in range(2)]
        run("profile", "--merge", *traces, "--trace", f"{folder}/two_ranks.json.gz")
    elif entry.name == "attention":
        run("profile", "attention:before", *OPTIONS, "--json", f"{folder}/before.json")
        profile(folder, entry.name, entry.target, "--against", f"{folder}/before.json")
    else:
        profile(folder, entry.name, entry.target)


def folders_of_libraries() -> list[Path]:
    """Return the folders in which Python and the libraries of the programs are installed."""
    specs = map(importlib.util.find_spec, ("numpy", "torch", "transformers"))
    folders = {Path(spec.origin).parents[1] for spec in specs if spec and spec.origin}
    return [*sorted(folders), Path(sysconfig.get_path("stdlib"))]


def without_places(text: str, folder: Path) -> str:
    """Take the names of the machine and of its folders out of a report or trace."""
    for place in (PROGRAMS, ROOT, folder, *folders_of_libraries(), Path(tempfile.gettempdir())):
        text = text.replace(f"{place}/", "").replace(str(place), ".")
    return text.replace(socket.gethostname(), "machine")


PACKED = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>NAME</title></head>
<body>
<p>Unpacking the report …</p>
<script>
const bytes = Uint8Array.from(atob("DATA"), (letter) => letter.charCodeAt(0));
const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
new Response(unpacked).text().then((text) => {
  document.open();
  document.write(text);
  document.close();
});
</script>
</body>
</html>
"""


def packed_page(name: str, report: str) -> str:
    """Return a page that unpacks a report in the browser: it is an eighth as long."""
    data = base64.b64encode(gzip.compress(report.encode(), 9, mtime=0)).decode()
    return PACKED.replace("NAME", name).replace("DATA", data)


def keep(name: str, folder: Path) -> None:
    """Put report and trace of a program into the gallery, with the figures that its page shows."""
    report = without_places((folder / f"{name}.html").read_text(encoding="utf-8"), folder)
    (GALLERY / f"{name}.html").write_text(packed_page(name, report), encoding="utf-8")
    with gzip.open(folder / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        trace = without_places(file.read(), folder)
    # Without the time in its head, equal traces are equal files.
    packed = gzip.compress(trace.encode(), 9, mtime=0)
    if len(packed) <= MOST_BYTES:
        (GALLERY / f"{name}.json.gz").write_bytes(packed)


def data_of_report(path: Path) -> dict:
    """Read the data inside a report."""
    packed = path.read_text(encoding="utf-8").partition('atob("')[2].partition('"')[0]
    text = gzip.decompress(base64.b64decode(packed)).decode()
    begin = "const D = "
    return json.JSONDecoder().raw_decode(text, text.index(begin) + len(begin))[0]


def row_of(entry: Entry) -> str:
    """One section of the page."""
    data = data_of_report(GALLERY / f"{entry.name}.html")
    times = data["median_step"]["steady_ns"]
    step = sorted(times)[len(times) // 2]
    about = (PROGRAMS / f"{entry.name}.py").read_text().split('"""')[1]
    peak = (data["memory"] or {}).get("peak_bytes")
    figures = f"Median step {step / 1e6:,.1f} ms"
    if peak:
        figures += f", peak {peak / 2**20:,.0f} MiB"
    links = [f"[report]({entry.name}.html)"]
    if (GALLERY / f"{entry.name}.json.gz").is_file():
        links.append(f"[trace]({entry.name}.json.gz)")
    links.append(f"[program](programs/{entry.name}.py)")
    texts = f"{about} {figures}: {', '.join(links)}.", entry.look
    explanation = "\n\n".join(textwrap.fill(text, 100, break_long_words=False) for text in texts)
    return f"## {entry.title}\n\n{explanation}\n"


HEAD = """# Gallery

Reports and traces of programs that run, as `glasshouse profile` wrote them: open a report in the
browser, load a trace into Perfetto or `chrome://tracing`. Each program is a file of a page at most;
in its folder, this makes the first of them:

```sh
glasshouse profile resnet50:step --steps 4 --stack --report resnet50.html --trace resnet50.json.gz
```

`python tools/documents/make_gallery.py` makes all of them, and this page; it keeps traces of up to
half a megabyte. Times are those of a machine with other work: look at shares, not at milliseconds.
[Find what is slow](../how_to/find_what_is_slow.md) says how to read a report,
[Profiler](../inside/profile.md) how it is made.

"""


def write_page() -> None:
    """Write the page from the reports that are there."""
    there = [entry for entry in ENTRIES if (GALLERY / f"{entry.name}.html").is_file()]
    (GALLERY / "index.md").write_text(HEAD + "\n".join(row_of(entry) for entry in there))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all without any")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    options = parser.parse_args()
    for entry in [] if options.page else ENTRIES:
        if not options.names or entry.name in options.names:
            folder = Path(tempfile.mkdtemp())
            make(entry, folder)
            keep(entry.name, folder)
            shutil.rmtree(folder)
    write_page()


if __name__ == "__main__":
    main()
