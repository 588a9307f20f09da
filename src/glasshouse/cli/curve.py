"""The learning curve: drawn in the terminal, and saved as a picture."""

from pathlib import Path
from typing import Any

from rich.text import Text

SERIES = (("train", "training"), ("test", "held out"))
MARKERS = ("braille", "•")
STYLES = {r"[\u2801-\u28ff]+": "blue", "•+": "yellow"}  # of the two markers in the terminal
COLORS = ("#2a78b5", "#d9622b")  # in the picture; distinct in any kind of colour vision


def column(history: list[dict[Any, Any]], name: str) -> list[float]:
    return [epoch[name] for epoch in history]


def draw_in_terminal(history: list[dict[Any, Any]], width: int) -> Text:
    """The losses by epoch as a chart of text; a line that says why not, without plotext."""
    try:
        import plotext
    except ImportError:
        return Text("No chart here: plotext is not installed (pip install 'glasshouse[plot]').")
    epochs = column(history, "epoch")
    ticks = epochs[:: 1 + len(epochs) // 16]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(min(width, 80), 16)
    for (kind, _), marker in zip(SERIES, MARKERS, strict=True):
        figure.draw(figure.signal(epochs, column(history, f"{kind}_loss"), marker=marker).lines())
    figure.ruler("y").scale("log")
    figure.ruler("x").ticks(ticks, list(map(str, ticks)))
    figure.title("loss by epoch     ⠤⠤⠤ training     ••• held out")
    text = Text.from_ansi(figure.build().string().rstrip())
    figure.clear()
    chart = Text(text.plain)
    for marker, style in STYLES.items():
        chart.highlight_regex(marker, style)
    return chart


def save_picture(history: list[dict[Any, Any]], path: Path) -> bool:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter
    except ImportError:
        return False
    figure = Figure(figsize=(10, 4), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    for axes, quantity in ((loss, "loss"), (accuracy, "accuracy")):
        for (kind, label), color in zip(SERIES, COLORS, strict=True):
            axes.plot(
                column(history, "epoch"),
                column(history, f"{kind}_{quantity}"),
                "o-",
                color=color,
                label=label,
                markersize=4,
            )
        axes.set_title(quantity, loc="left")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    loss.set_yscale("log")
    loss.legend(frameon=False)
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    last = history[-1]
    accuracy.annotate(
        f"{last['test_accuracy']:.2%}",
        (last["epoch"], last["test_accuracy"]),
        (0, -14),
        textcoords="offset points",
        ha="right",
        color=COLORS[1],
    )
    figure.savefig(path, dpi=120)
    return True
