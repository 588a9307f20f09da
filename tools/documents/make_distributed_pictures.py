"""Makes docs/pictures/*.svg: what ranks do in a training step, by scheme, drawn from traces of real
ranks of this machine, merged as `gh.profile.merge` does.

    python tools/documents/make_distributed_pictures.py [NAME …] [--traces FOLDER]

NAMEs choose pictures, such as `zero_3`; all are made without any. Each scheme runs some steps under
the profiler, and the fastest is drawn. With --traces the merged traces are kept, for Perfetto.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.dispatch.watch import RECEIVING
from glasshouse.profile.traces import chrome

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests" / "unit" / "distributed"))

from parallel_models import Scheme  # noqa: E402
from planned_steps import build, train_step  # noqa: E402

WARM, STEPS = 4, 24  # steps before the profile, and in it
GAP_US = 30.0  # a shorter one between bars is not seen
WAITS = "waits, or moves data itself"
PASSES = ("other", "forward", "recompute", "backward", "optimizer")  # of a fused kernel the last
ACTION = re.compile(r"(forward|backward) (\d+) of stage (\d+)")  # of a pipeline


class Picture(NamedTuple):
    """A drawing: a title, a model and how it is shared out."""

    title: str
    kind: str
    scheme: Scheme


MLP, DECODER = "wide mlp", "wide decoder"
DATA, TENSOR, PIPE = {"data": 2}, {"tensor": 2}, {"pipe": 2}
PICTURES = {
    "data": Picture("Data parallel", MLP, Scheme(DATA)),
    "zero_1": Picture("ZeRO 1", MLP, Scheme(DATA, stage=1)),
    "zero_2": Picture("ZeRO 2", MLP, Scheme(DATA, stage=2)),
    "zero_3": Picture("ZeRO 3", MLP, Scheme(DATA, stage=3)),
    "tensor": Picture("Tensor parallel", DECODER, Scheme(TENSOR, "tensor")),
    "sequence": Picture("Sequence parallel", DECODER, Scheme(TENSOR, "sequence")),
    "context": Picture("Context parallel", DECODER, Scheme({"context": 2}, "context")),
    "gpipe": Picture("Pipeline, GPipe", MLP, Scheme(PIPE, schedule="gpipe")),
    "1f1b": Picture("Pipeline, 1F1B", MLP, Scheme(PIPE, schedule="1f1b")),
    "interleaved": Picture("Pipeline, interleaved", MLP, Scheme(PIPE, schedule="interleaved")),
    "data_tensor": Picture("Data × tensor parallel", MLP, Scheme(DATA | TENSOR, "tensor")),
}
MODELS = {
    MLP: "6 layers of 1024 × 1024, AdamW",
    DECODER: "a decoder of 2 layers, 256 wide, AdamW",
}

# -- traces ------------------------------------------------------------------------------------


def traced(kind: str, scheme: Scheme, folder: str) -> None:
    """Write the trace of this rank's steps."""
    model, measure, optimizer, specs = build(kind, scheme)
    inputs = [gh.asarray(np.ones(shape, dtype)) for shape, dtype in specs]
    for _ in range(WARM):
        train_step(model, measure, optimizer, inputs)
    with gh.profile(with_modules=False) as prof:
        for _ in range(STEPS):
            dist.barrier()
            with gh.record_function("training step"):
                train_step(model, measure, optimizer, inputs)
    prof.export_chrome_trace(f"{folder}/{dist.rank()}.json")


def trace_of(picture: Picture, path: Path) -> dict:
    """The merged trace of a picture's ranks, which is written to a file."""
    with tempfile.TemporaryDirectory() as folder:
        dist.spawn(traced, picture.scheme.ranks, picture.kind, picture.scheme, folder)
        parts = sorted(Path(folder).iterdir())
        return chrome.read(gh.profile.merge(parts, path))


class Bar(NamedTuple):
    """Work from `begin` to `end`, in µs; its kind decides its colour."""

    begin: float
    end: float
    kind: str
    label: str = ""


class Track(NamedTuple):
    """A row of the picture: what a rank computes, or one of its ways to others."""

    rank: int
    name: str
    bars: list[Bar]


class Step:
    """The fastest step of a merged trace."""

    def __init__(self, data: dict):
        records = data["traceEvents"]
        self.threads = {
            (r["pid"], r["tid"]): r["args"]["name"] for r in records if r["name"] == "thread_name"
        }
        self.slices: dict[int, list[dict]] = {}
        for r in records:
            if r["ph"] == "X":
                self.slices.setdefault(r["pid"], []).append(r)
        self.begin, self.end = self.fastest()

    def fastest(self) -> tuple[float, float]:
        """Begin and end of the step that all ranks have ended first after the first began it."""
        steps = [
            [(r["ts"], r["ts"] + r["dur"]) for r in own if r["name"] == "training step"]
            for own in self.slices.values()
        ]
        spans = [
            (min(b for b, _ in same), max(e for _, e in same))
            for same in zip(*map(sorted, steps), strict=True)
        ]
        return min(spans, key=lambda span: span[1] - span[0])

    def tracks(self) -> list[Track]:
        """Return what each rank computes, then its ways to others."""
        results = []
        for rank, slices in sorted(self.slices.items()):
            own = [r for r in slices if self.begin <= r["ts"] and r["ts"] + r["dur"] <= self.end]
            actions = [r for r in own if ACTION.fullmatch(r["name"])]
            ways: dict[str, list[Bar]] = {}
            computed = []
            for r in own:
                name = self.threads[rank, r["tid"]].removesuffix(" execution")
                if r["cat"] == "kernel" and name.startswith(("collectives", "messages")):
                    kind = r["name"].partition(" ")[0].replace("_", "-")
                    ways.setdefault(name, []).append(self.bar(r, kind))
                elif r["cat"] == "kernel" and r["args"]["kind"] == "between ranks":
                    computed.append(self.bar(r, WAITS))
                elif r["cat"] == "kernel":
                    computed.append(self.bar(r, *of_kernel(r, actions, len(self.slices))))
                elif r["name"] == RECEIVING:
                    computed.append(self.bar(r, WAITS))
            results.append(Track(rank, "", joined(computed)))
            results += [Track(rank, name, sorted(bars)) for name, bars in sorted(ways.items())]
        return results

    def bar(self, record: dict, kind: str, label: str = "") -> Bar:
        begin = record["ts"] - self.begin
        return Bar(begin, begin + record["dur"], kind, label)


def of_kernel(record: dict, actions: list[dict], ranks: int) -> tuple[str, str]:
    """The pass of a kernel, and the action of a pipeline or the layer that it is of; stages of a
    rank have letters, as `print(pipe.schedule)` gives them."""
    stages = 1 + max((int(ACTION.fullmatch(x["name"])[3]) for x in actions), default=0)
    middle = record["ts"] + record["dur"] / 2
    for action in actions:
        if action["ts"] <= middle <= action["ts"] + action["dur"]:
            kind, number, stage = ACTION.fullmatch(action["name"]).groups()
            letter = chr(ord("a") + int(stage) // ranks) if stages > ranks else ""
            return kind, f"{kind[0].upper()}{number}{letter}"
    passes, modules = sorted(record["args"]["passes"], key=PASSES.index), record["args"]["modules"]
    layers = [re.search(r"^Sequential\.(\d+)|\.layers\.(\d+)", path) for path in modules]
    numbers = [int(m[1]) // 2 if m[1] else int(m[2]) for m in layers if m]
    return (passes or ["forward"])[-1], chr(ord("A") + numbers[0]) if numbers else ""


def joined(bars: list[Bar]) -> list[Bar]:
    """Bars of a kind and label that follow each other as one."""
    results: list[Bar] = []
    for bar in sorted(bars):
        last = results[-1] if results else None
        if last and last[2:] == bar[2:] and bar.begin - last.end < GAP_US:
            results[-1] = last._replace(end=max(bar.end, last.end))
        else:
            results.append(bar)
    return results


def merged(bars: list[Bar]) -> list[tuple[float, float]]:
    """The times in which one of the bars goes on."""
    spans: list[tuple[float, float]] = []
    for bar in sorted(bars):
        if spans and bar.begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], bar.end)
        else:
            spans.append((bar.begin, bar.end))
    return spans


def overlap_of(tracks: list[Track]) -> tuple[float, float]:
    """µs in which a rank communicates, and those of them in which it computes; means of ranks.
    Receiving, which begins before anything is sent, is left out."""
    ranks = {track.rank for track in tracks}
    sending = beside = 0.0
    for rank in ranks:
        own = [(track.name, bar) for track in tracks if track.rank == rank for bar in track.bars]
        moved = merged([bar for name, bar in own if name and bar.kind != "receive"])
        kernels = merged([bar for name, bar in own if not name and bar.kind != WAITS])
        sending += sum(end - begin for begin, end in moved)
        beside += sum(
            max(0.0, min(end, e) - max(begin, b)) for begin, end in moved for b, e in kernels
        )
    return sending / len(ranks), beside / len(ranks)


# -- drawing -----------------------------------------------------------------------------------

LEFT, WIDE, RIGHT, TOP, HIGH, LOW, BETWEEN = 172, 880, 24, 58, 26, 13, 14  # px
COLOURS = {
    "forward": "#4e79a7",
    "backward": "#f28e2b",
    "optimizer": "#59a14f",
    "all-reduce": "#7b4fb5",
    "reduce-scatter": "#c2477f",
    "all-gather": "#1f9e9a",
    "all-to-all": "#8c6d31",
    "collective-permute": "#8c6d31",
    "broadcast": "#6b6b6b",
    "send": "#7b4fb5",
    "receive": "#cdb9ea",
    WAITS: "url(#waits)",
}
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #222 }
.title { font-size: 15px; font-weight: 600 } .faint { fill: #666; font-size: 11px }
.in { fill: #fff; font-size: 10.5px; text-anchor: middle } .at { text-anchor: middle }
.name { text-anchor: end } .rank { font-weight: 600 }
</style>
<pattern id="waits" width="5" height="5" patternUnits="userSpaceOnUse">
<rect width="5" height="5" fill="#f1f1f1"/><path d="M0 5L5 0" stroke="#a5a5a5"/></pattern>"""


def svg(picture: Picture, step: Step) -> str:
    """The picture of a step."""
    tracks, whole = step.tracks(), step.end - step.begin
    scale = WIDE / whole
    parts, y = [], TOP
    for track in tracks:
        y += 0 if track.name else BETWEEN
        high = LOW if track.name else HIGH
        parts += drawn(track, y, high, scale)
        y += high + 3
    sent, beside = overlap_of(tracks)
    share = f", {100 * beside / sent:.0f} % of it beside kernels" if sent else ""
    note = f"{MODELS[picture.kind]}; a step of {whole / 1000:.1f} ms"
    note += f"; {'sends' if picture.scheme.schedule else 'collectives'} {sent / 1000:.1f} ms{share}"
    head = [
        text(12, 22, picture.title, "title"),
        text(12, 40, note, "faint"),
        *legend({bar.kind for track in tracks for bar in track.bars}),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + RIGHT}" '
            f'height="{y + 34}" role="img">',
            f"<title>{escape(picture.title)}: what ranks do in a step</title>",
            STYLE,
            '<rect width="100%" height="100%" fill="#fff"/>',
            *head,
            *axis(whole, scale, y + 6),
            *parts,
            "</svg>\n",
        ]
    )


def drawn(track: Track, y: float, high: int, scale: float) -> list[str]:
    """A track: its name, and a rectangle for each bar that can be seen."""
    name = track.name or f"rank {track.rank}"
    parts = [text(LEFT - 8, y + high / 2 + 4, name, "name faint" if track.name else "name rank")]
    parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDE}" height="{high}" fill="#fafafa"/>')
    for bar in track.bars:
        x, least = LEFT + bar.begin * scale, 1.2 if track.name else 0.4
        wide = max((bar.end - bar.begin) * scale, least)
        title = f"{bar.label} {bar.kind}, {(bar.end - bar.begin) / 1000:.2f} ms".strip()
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}" '
            f'fill="{COLOURS[bar.kind]}" stroke="#fff" stroke-width="{min(0.6, wide / 6):.2f}">'
            f"<title>{title}</title></rect>"
        )
        if bar.label and wide > 7 * len(bar.label) + 2:
            parts.append(text(x + wide / 2, y + high / 2 + 4, bar.label, "in"))
    return parts


def legend(kinds: set[str]) -> list[str]:
    """A swatch and a name for each colour, from the right."""
    parts, x = [], LEFT + WIDE
    for kind in reversed([kind for kind in COLOURS if kind in kinds]):
        x -= 6.8 * len(kind) + 32
        parts.append(f'<rect x="{x:.0f}" y="12" width="12" height="12" fill="{COLOURS[kind]}"/>')
        parts.append(text(x + 16, 22, kind))
    return parts


def axis(whole: float, scale: float, y: float) -> list[str]:
    """The time since the step began, in ms."""
    tick = next(ms for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500) if whole / 1000 / ms <= 14)
    parts = []
    for number in range(int(whole / 1000 / tick) + 1):
        x = LEFT + 1000 * number * tick * scale
        parts.append(f'<path d="M{x:.1f} {TOP + 4}V{y}" stroke="#e4e4e4"/>')
        unit = " ms" if not number else ""
        parts.append(text(x, y + 14, f"{number * tick}{unit}", "at faint"))
    return parts


def text(x: float, y: float, what: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(what)}</text>'


def main() -> None:
    words = sys.argv[1:]
    kept = Path(words.pop(words.index("--traces") + 1)) if "--traces" in words else None
    names = [word for word in words if word != "--traces"] or list(PICTURES)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = (kept or Path(folder)) / f"{name}.json"
            step = Step(trace_of(PICTURES[name], path))
            (FOLDER / f"{name}.svg").write_text(svg(PICTURES[name], step))
            print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
