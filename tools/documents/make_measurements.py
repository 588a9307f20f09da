"""Write docs/measurements: a page for each group of benchmarks/results/*.json.

`python tools/documents/make_measurements.py` writes the pages; a test compares them with what this
script makes. No figure on these pages is typed by hand."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from measurement_tables import cell, seconds, size, table, tables, three_digits

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "measurements"
# When records without a time of their own came into the repository.
COMMITTED = {
    "models_bfloat16": "2026-11-21",
    "models_float32": "2026-11-21",
    "torch_models": "2026-11-26",
    "torch_models_amx": "2026-11-27",
    "torch_models_avx2": "2026-11-27",
    "torch_models_bfloat16": "2026-11-28",
    "torch_models_captured": "2026-11-26",
    "torch_models_epyc": "2026-11-28",
    "torch_models_inference": "2026-11-26",
    "torch_models_others": "2026-11-25",
    "torch_models_others_captured": "2026-11-25",
    "torch_models_right": "2026-11-26",
    "torch_operators": "2026-11-23",
}


class Measurement(NamedTuple):
    """One file of results: its title, what its tables show, and the command that makes it."""

    file: str
    title: str
    text: str
    command: str = ""
    machine: str = ""
    render: Callable[[object], list[str]] = lambda results: list(tables(results))


# -- how the results of some tools are told ------------------------------------------------------


def without_dates(results: dict) -> list[str]:
    """The tables of results whose parts have dates of their own, with a table of these dates."""
    rest = {k: v for k, v in results.items() if k != "when"}
    return [*tables(rest), dates_of(results)]


def dates_of(results: dict) -> str:
    """The dates of the parts of a record that was made in several runs, in one sentence."""
    days: dict[str, list[str]] = {}
    for part, time in results["when"].items():
        days.setdefault(time[:10], []).append(part.replace("_", " "))
    dates = (f"{day}: {', '.join(parts)}" for day, parts in sorted(days.items()))
    return f"Dates of the parts. {'; '.join(dates)}."


def analysis(results: dict) -> list[str]:
    """The results of benchmarks/analyze.py, with the models of each part in one table."""
    merged: dict = {}
    for name, value in results.items():
        part = next((x for x in ("what_if", "plans", "memory") if name.startswith(x)), name)
        if part == name:
            merged[name] = value
        else:
            merged.setdefault(part, []).extend(value)
    merged["what_if"] = [what_if_of(model, merged["what_if"]) for model in
                         dict.fromkeys(row["model"] for row in merged["what_if"])]  # fmt: skip
    return without_dates(merged)


def what_if_of(model: str, rows: list[dict]) -> dict:
    """The worst of one model's what-ifs: its slowest answer and its largest errors."""
    own = [row for row in rows if row["model"] == model]
    budgets = [row["ms"] for row in own if "budget" in row]
    plain = [row for row in own if "budget" not in row]
    worst = {key: max(abs(row[key]) for row in plain) for key in ("peak_error", "time_error")}
    slowest = {"slowest_ms": max(row["ms"] for row in plain)}
    if budgets:
        slowest["slowest with a budget_ms"] = max(budgets)
    return {"model": model, "what_ifs": len(own), **slowest, **worst}


def steps_of_models(rows: list[dict]) -> list[str]:
    """A row for each model: our step beside the best of PyTorch's modes."""
    lines, ratios = [], []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        others = [row for row in own if not is_ours(row) and row["mode"] != "captured"]
        ours = next(row for row in own if is_ours(row))
        best = min(others, key=lambda row: row["step_s"])
        captured = next((row for row in own if row["mode"] == "captured"), None)
        inductor = next((row for row in own if row["mode"] in ("inductor", "compile")), None)
        eager = next((row for row in own if row["mode"] == "eager"), None)
        ratios.append(best["step_s"] / ours["step_s"])
        disk = ours.get("first_step_from_disk_s")
        lines.append({
            "model": model,
            "step": seconds(ours["step_s"]),
            "captured": seconds(captured["step_s"]) if captured else "",
            "best of PyTorch": f"{seconds(best['step_s'])} ({best['mode'].replace('_', ' ')})",
            "ratio": f"{ratios[-1]:.2f}",
            "first step": seconds(ours["first_step_s"]),
            "of inductor": seconds(inductor["first_step_s"]) if inductor else "",
            "from disk, more than a step": seconds(disk - ours["step_s"]) if disk else "",
            "peak": size(ours["peak_bytes"]),
            "of eager": size(eager["peak_bytes"]) if eager else "",
        })  # fmt: skip
    mean = f"Geometric mean of the ratios {geometric_mean(ratios):.2f}, least {min(ratios):.2f}."
    return [table(lines), mean]


def is_ours(row: dict) -> bool:
    """Whether a row is our engine's own step, not captured."""
    return "glasshouse" in (row["framework"], row["mode"]) and row["mode"] != "captured"


def right_models(rows: list[dict]) -> list[str]:
    """How many models of each library agree with eager, and those that do not."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        library = row["model"].partition(":")[0]
        groups.setdefault((library, row.get("kernels", "")), []).append(row)
    captured = any("single" in row for row in rows)
    summary = [{
        "library": library,
        "kernels": kernels,
        "models": str(len(own)),
        "right": str(sum(row["right"] for row in own)),
        "in one graph": str(sum(row.get("single", False) for row in own)) if captured else "",
    } for (library, kernels), own in sorted(groups.items())]  # fmt: skip
    keys = ("outputs", "losses", "gradients", "double", "further", "breaks")
    wrong = [{"model": row["model"], "kernels": row.get("kernels", "")}
             | {names_of_errors[key]: error_cell(row[key]) for key in keys if key in row}
             for row in rows if not row["right"] or row.get("breaks")]  # fmt: skip
    differing = "**Models that differ from eager or break the graph**\n\n"
    return [table(summary)] + ([differing + table(wrong)] if wrong else [])


def error_cell(value) -> str:
    """An error with two digits, or how many graph breaks there are."""
    return str(len(value)) if isinstance(value, list) else f"{value:.1e}"


names_of_errors = {
    "outputs": "outputs apart",
    "losses": "losses apart",
    "gradients": "gradients apart",
    "double": "apart in float64",
    "further": "from float64, over eager's",
    "breaks": "graph breaks",
}


def operators(record: dict) -> list[str]:
    """PyTorch's samples of its operators: how many agree, and which differ."""
    counts = {k: v for k, v in record["counts"].items() if not k.startswith("in PyTorch")}
    share = {"operators": record["operators"], "share that agrees": record["share"]}
    rows = [{"samples": k, "number": cell("", v)} for k, v in {**share, **counts}.items()]
    different = [{"operator": f"`{name}`", "samples that differ": str(number), "why": why}
                 for name, (number, why) in record["differing"].items()]  # fmt: skip
    return [table(rows), table(different)]


def distributed_curves(results: dict) -> list[str]:
    """The furthest loss curve of each scheme from that of one process."""
    worst: dict[str, dict[str, float]] = {}
    for name, row in results["rows"].items():
        if "difference" in row:
            model, rule, scheme = name.split(" ", 2)
            scheme = re.sub("gpipe|1f1b|interleaved", "pipeline", scheme.partition(",")[0])
            column = f"{model}, {rule}"
            own = worst.setdefault(scheme, {})
            own[column] = max(row["difference"], own.get(column, 0.0))
    rows = [{"scheme": scheme} | {c: three_digits(x) for c, x in own.items()}
            for scheme, own in worst.items()]  # fmt: skip
    return [f"Steps: {results['steps']}. Figures are the largest difference over all steps, "
            "numbers of ranks and schedules.", table(rows)]  # fmt: skip


def torch_curves(results: dict) -> list[str]:
    """The furthest point of each captured loss curve from eager's."""
    rows = [{
        "program": name,
        "agrees": cell("", row["agrees"]),
        "furthest from eager": three_digits(row["difference"]),
        "eager from itself": three_digits(row["rounding"]),
        "graphs": str(row["graphs"]),
        "breaks": str(len(row["breaks"])),
    } for name, row in results["rows"].items()]  # fmt: skip
    note = (f"Steps: {results['steps']}. A curve agrees within {results['allowed']:.0%}. "
            "The column of eager has parameters that begin with other last bits.")  # fmt: skip
    return [note, table(rows)]


def peaks(results: dict) -> list[str]:
    """The first, second and largest later peak of each loop."""
    rows = [{
        "loop": name,
        "first call": size(values[0]),
        "second call": size(values[1]),
        "later, at most": size(max(values[2:])),
    } for name, values in results.items()]  # fmt: skip
    return [table(rows)]


def rates(results: dict) -> list[str]:
    """Collectives by size of the message and transport, medians and bandwidth."""
    parts = []
    for title, own in (("Called directly", results), ("In Programs", results["in_programs"])):
        rows = [{"bytes": amount} | {
            transport: f"{seconds(timing['median_s'])} ({size(timing['bytes_per_s'])}/s)"
            for transport, timing in timings.items()
        } for amount, timings in own.items() if amount not in ("in_programs", "load")]  # fmt: skip
        parts.append(f"**{title}**\n\n{table(rows)}")
    return [*parts, f"Load average of the machine: {results['load']:.1f}."]


def processor_seconds(results: dict) -> list[str]:
    """A table of plain seconds by case and side."""
    rows = [{"case": case} | {side: seconds(x) for side, x in sides.items()}
            for case, sides in results.items()]  # fmt: skip
    return [table(rows)]


def kernels_of_many_sizes(results: dict) -> list[str]:
    """Kernels beside those of an older checkout, then whole models."""
    parts = []
    for name, rows in results.items():
        if isinstance(rows, list):
            cells = [{"case": row["case"], "before": seconds(row["ns"][0] * 1e-9),
                     "now": seconds(row["ns"][1] * 1e-9), "ratio": three_digits(row["ratio"]),
                     "same bits": cell("", row["same_bits"])} for row in rows]  # fmt: skip
            parts.append(f"**{name[:1].upper()}{name[1:]}**\n\n{table(cells)}")
        else:
            parts += tables({name: rows})
    return parts


def loops(results: dict) -> list[str]:
    """Times beside PyTorch's, memory, and the time that compiling takes."""
    timed = [{"case": case} | {side: seconds(x["median_s"]) for side, x in results[case].items()}
             for case in ("LSTM", "scored attention")]  # fmt: skip
    memory = results["memory of scored attention"]
    timed.append({"case": "memory of scored attention"} | {k: size(v) for k, v in memory.items()})
    compiling = [{"steps of the LSTM": steps, "compile": seconds(row["compile_s"]),
                  "step": seconds(row["step_s"])}
                 for steps, row in results["compiling an LSTM"].items()]  # fmt: skip
    return [table(timed), table(compiling)]


def beam_search(results: dict) -> list[str]:
    """Times and errors of the decoders by how clear the scores are."""
    rows = []
    for name, row in results.items():
        sides = [side for side in row if isinstance(row[side], dict) and "median_s" in row[side]]
        times = {side: seconds(row[side]["median_s"] / row["frames"]) for side in sides}
        wrong = {f"wrong, {side}": f"{x:.2%}" for side, x in row["errors"].items()}
        rows.append({"scores": name, **times, "ratio": three_digits(row["ratio"]), **wrong})
    return [table(rows)]


def networks(results: dict) -> list[str]:
    """A row for each network, batch and dtype: the time of each side."""
    rows = []
    for name, row in results["rows"].items():
        network, batch, dtype = name.split(", ")
        times = {side: seconds(value) for side, value in row["seconds"].items()}
        rows.append({"network": network, "batch": batch, "dtype": dtype, **times,
                     "ratio": f"{row['ratio']:.2f}"})  # fmt: skip
    return [table(rows)]


def generation(results: dict) -> list[str]:
    """Times of a token and of a prompt, and the ratios of them."""
    times = {name: seconds(value) for name, value in results["seconds"].items()}
    ratios = {name.replace("_", " "): f"{value:.2f}" for name, value in results.items()
              if isinstance(value, float)}  # fmt: skip
    return [
        table([{"": name, "time": time} for name, time in times.items()]),
        table([{"": name, "ratio": ratio} for name, ratio in ratios.items()]),
    ]


def packed(results: dict) -> list[str]:
    """A row for each format of weights."""
    return [table([{
        "weights": name,
        "bytes": size(row["bytes"]),
        "time": seconds(row["median_s"]),
        "of the rate of reading": f"{row['of_reading']:.0%}",
        "times float32": f"{row['ratio']:.2f}",
    } for name, row in results.items() if "of_reading" in row])]  # fmt: skip


def fits(results: dict) -> list[str]:
    """Predicted and measured peaks, without their parts."""
    rows = [{k: v for k, v in row.items() if k != "by_kind"} for row in results["models"]]
    return list(tables(rows))


def ranks(results: dict) -> list[str]:
    """A table for each model of steps beside DDP and FSDP."""
    parts = []
    for model in ("gpt", "resnet18"):
        own = results[model]
        shape = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in own["size"].items())
        rows = [{
            "side": side,
            "step": seconds(own["steps"][side]["median_s"]),
            "processor time": seconds(own["processor_s"][side]),
            "PyTorch's step over ours": cell("", own["times_as_fast"].get(side)),
            "of processor time": cell("", own["times_less_processor"].get(side)),
        } for side in own["steps"]]  # fmt: skip
        parts += [f"**{model}** ({shape})", table(rows)]
    load = ", ".join(three_digits(x) for x in results["load_average"])
    return [*parts, f"Load averages of the machine: {load}."]


def profiling(results: dict) -> list[str]:
    """The profiler's costs and counts, without the outputs of other tools."""
    overhead = results["overhead"]
    sides = {"eager call": "ours_us", "PyTorch's own tool": "torch_us", "captured": "captured_us"}
    added = [{"tool": case} | {
        title: seconds(overhead[side][case] * 1e-6)
        for title, side in sides.items() if case in overhead[side]
    } for case in overhead["ours_us"]]  # fmt: skip
    counts = results["counts"]
    models = [{
        "model": row["model"],
        **{f"GFLOP of {side}": ", ".join(f"{x / 1e9:,.4g}" for x in row[key])
           for side, key in (("ours", "ours"), ("PyTorch", "torch"))},
        "published": ", ".join(f"{x:,.4g}" for x in row["published_gflop"] if x),
    } for row in counts["models"]]  # fmt: skip
    calls = [{"call": row["name"]} | {
        f"{side} FLOPs": cell("", row[key])
        for side, key in (("true", "true"), ("our", "ours"), ("PyTorch's", "torch"))
    } for row in counts["calls"]]  # fmt: skip
    steps = [{"step": name} | {
        "alone": seconds(row["step_s"]),
        "added": f"{row['added_part']:.1%}",
        "in kernels": f"{row['kernels_part_of_step']:.1%}" if "kernels_part_of_step" in row else "",
    } for name, row in results["steps"].items()]  # fmt: skip
    long = results["long"]
    times = [{"of a profile": name, "time": seconds(x)} for name, x in long["seconds"].items()]
    share = [f"{x['given']} of {x['calls']} ({kind})" for kind, x in results["traces"].items()]
    return [
        "**Added by a tool to one call**\n\n" + table(added),
        "**Added to a step by the profiler**\n\n" + table(steps),
        "**FLOPs of a forward pass, and of a step**\n\n" + table(models),
        "**FLOPs of single calls, forward and both passes**\n\n" + table(calls),
        f"**A profile of {long['steps']:,} steps, {long['events']:,} events**\n\n" + table(times),
        f"Analyses of HolisticTraceAnalysis that our traces give a result to: {', '.join(share)}.",
        dates_of(results),
    ]


# -- the pages -----------------------------------------------------------------------------------

BENCH = "glasshouse bench --torch"
JUDGE = "python tools/judges/torch_models.py"
ZEN_5 = "two cores of an AMD EPYC of the Zen 5 family"
ZEN_4 = "two cores of an AMD EPYC of the Zen 4 family"


def bench(file: str, title: str, options: str, machine: str, text: str = "") -> Measurement:
    """A file that `glasshouse bench --torch` saved."""
    command = f"{BENCH}{options} --json FILE"
    text = text or "Training steps of models of torchvision and transformers at full size. "
    note = "The ratio is the time of PyTorch's best mode over ours."
    return Measurement(file, title, text + note, command, machine, steps_of_models)


def own_models(dtype: str) -> Measurement:
    """A file that `glasshouse bench` saved of our own models."""
    text = "Our own models beside the same in PyTorch. The ratio is the time of PyTorch's "
    text += "best mode over ours."
    command = f"glasshouse bench MODEL --dtype {dtype} --against …,captured"
    machine = "two cores of an AMD EPYC with AVX-512, shared with others"
    title = f"Training steps in {dtype}"
    return Measurement(f"models_{dtype}", title, text, command, machine, steps_of_models)


GROUPS = {
    "engine": ("Engine and compiler", [
        own_models("float32"),
        own_models("bfloat16"),
        Measurement("digits", "An epoch of digits",
                    "One epoch of `glasshouse train digits`, and of the same network in PyTorch."),
        Measurement("import_time", "Import", "`import glasshouse` in a new process."),
        Measurement("bind_overhead", "One call of a primitive",
                    "A call on ten elements: NumPy's own, through `bind`, while autograd records, "
                    "and by an operator of the tensor."),
        Measurement("recording", "Recording", "One call recorded by the lazy backend, and one node "
                    "of a step found again."),
        Measurement("replace_add", "A primitive replaced",
                    "From the start of Python to the end of the first step, in which every "
                    "addition is a function of the user."),
        Measurement("many_sizes", "Many sizes",
                    "Batch sizes and lengths that change, before and after kernels took sizes as "
                    "arguments.",
                    render=kernels_of_many_sizes),
        Measurement("loops", "Loops and attention", "An LSTM and attention with a user's score, "
                    "beside PyTorch.",
                    render=loops),
        Measurement("losses", "Losses of sequences", "Loss and gradient, on one thread."),
        Measurement("beam_decoder", "Beam search",
                    "Time for a frame beside pyctcdecode, with the same language model, words and "
                    "size of the beam, and the share of characters that are wrong in the texts; "
                    "the ratio is pyctcdecode's time over ours.", render=beam_search),
        Measurement("beam_criterion", "A beam search with gradients",
                    "An edge is an add, a node a log-add. Memory is that of scores that wait for "
                    "gradients, and at most."),
        Measurement("data", "Loading data", "An epoch of loading beside PyTorch's DataLoader; the "
                    "ratio is PyTorch's time over ours."),
        Measurement("openmp", "Threads shared with PyTorch",
                    "A step of each framework alone, and in turn in one process."),
        Measurement("neighbours", "Beside busy processes",
                    "MobileNetV3, batch 1, float32, from its ONNX file, with two threads on two "
                    "cores: alone (with real-time priority), and beside four busy processes and "
                    "those of others who used the machine, too. The slowdown is the median beside "
                    "them by that alone, the ratio "
                    "that slowdown by OpenVINO's."),
    ]),
    "inference": ("Inference", [
        Measurement("networks", "Networks beside other programs",
                    "Two threads. onnxruntime and OpenVINO run the ONNX files that we write of our "
                    "networks, PyTorch its own of the same sizes. The ratio is the best other "
                    "time over ours. The rows of int8 were measured with files of ours, in which "
                    "codes stand around products alone; the benchmark has each program's own "
                    "tools quantise now.", render=networks),
        Measurement("generation", "A token of a Llama",
                    "SmolLM2-135M's sizes in float32. `limit` reads all weights once by NumPy's "
                    "products.", "python benchmarks/generation.py --compiled",
                    render=generation),
        Measurement("generation_gguf", "A token beside llama.cpp",
                    "SmolLM2-135M with weights of 4 bits (Q4_1), from its GGUF file; `first token` "
                    "is a cold start with a warm disk cache.",
                    "python benchmarks/generation.py --gguf MODEL.gguf --llama PYTHON",
                    render=generation),
        Measurement("packed_products", "Products of small weights",
                    "All products of one token, beside adding up as many bytes.", render=packed),
        Measurement("folders_of_c", "Steps as folders of C",
                    "A step of a convolutional network and of a transformer's block: with plain "
                    "kernels, with oneDNN, and in Python."),
        Measurement("quantized", "Networks of 8 bits",
                    "Times of Linear layers and of convolutions; the ratio is the time in float32 "
                    "over that of a row."),
    ]),
    "capture": ("Capture", [
        Measurement("capture", "Cost of capture", "Capture, a captured call, and a training loop."),
        Measurement("capture_memory", "Memory of captured steps",
                    "Peaks of the memory manager, of the plain loop, the captured and the analysed "
                    "one.", render=peaks),
        Measurement("torch_capture", "Capture of PyTorch programs",
                    "`gh.optimize` beside torch.compile, processor seconds of the thread.",
                    render=processor_seconds),
        Measurement("torch_whole_step", "Whole steps of PyTorch models",
                    "`gh.optimize(step)` beside torch.compile with our backend; the ratio is the "
                    "time of the latter over the former."),
        Measurement("torch_small_steps", "Steps of small PyTorch programs",
                    "The ratio is the best of PyTorch's times over that of `gh.optimize`."),
        Measurement("torch_curves", "Loss curves of captured steps", "Loss curves beside eager's.",
                    "python tools/judges/torch_curves.py", render=torch_curves),
        Measurement("torch_models_captured", "Captured steps of models",
                    "Whole training steps, captured and eager, compared.",
                    f"{JUDGE} --capture program LIBRARY:NAME … --out FILE",
                    render=right_models),
        Measurement("torch_models_others_captured", "Captured steps of other libraries",
                    "The same for libraries beyond torchvision, timm and transformers.",
                    f"{JUDGE} --capture program others:NAME … --out FILE",
                    render=right_models),
    ]),
    "pytorch_backend": ("PyTorch backend", [
        bench("torch_models", "float32, Zen 5", "", ZEN_5),
        bench("torch_models_epyc", "float32, Zen 4", "", ZEN_4),
        bench("torch_models_amx", "float32, Xeon with AMX", "",
              "two cores of an Intel Xeon with AMX"),
        bench("torch_models_avx2", "float32, Zen 3", "",
              "two cores of an AMD EPYC of the Zen 3 family, without AVX-512"),
        bench("torch_models_bfloat16", "bfloat16 under autocast, Zen 4", " --dtype bfloat16",
              ZEN_4),
        bench("torch_models_inference", "Inference, Zen 4", " --inference", ZEN_4,
              "Calls without gradients. "),
        Measurement("torch_call", "Cost of a call",
                    "A call of a compiled graph and its parts, by number and size of parameters."),
        Measurement("torch_operators", "Operators that agree with eager",
                    "PyTorch's own samples of its operators, forward and backward.",
                    "GH_COMPILE=never python tools/judges/torch_operators.py --most 6",
                    render=operators),
        Measurement("torch_models_right", "Models that agree with eager",
                    "Outputs and gradients of models that others wrote.",
                    f"{JUDGE} LIBRARY --out FILE", render=right_models),
        Measurement("torch_models_others", "Models of other libraries that agree with eager",
                    "The same for libraries beyond torchvision, timm and transformers.",
                    f"{JUDGE} others --out FILE", render=right_models),
    ]),
    "profiler": ("Profiler", [
        Measurement("profiling", "Cost and truth of the profiler",
                    "Time added by counting and profiling, and counts of FLOPs beside published "
                    "ones.", render=profiling),
        Measurement("torch_counter", "Eager PyTorch, counted and profiled",
                    "Time added to an operator of eager PyTorch, processor seconds of the thread. "
                    "Of a profiler: while steps run, with its end, with its first table too."),
    ]),
    "analysis": ("Analysis", [
        Measurement("analyze", "Predictions for our own models",
                    "Predicted and measured memory and time of training steps.", render=analysis),
        Measurement("torch_analyze", "Predictions for PyTorch models",
                    "Predicted and measured steps under torch.compile with our backend; the ratio "
                    "is predicted over measured time."),
        Measurement("fits", "Will it fit?", "Peaks predicted by `gh.estimate.fits`, and measured.",
                    render=fits),
    ]),
    "distribution": ("Distribution", [
        Measurement("distributed", "Data parallel steps",
                    "Two ranks of one machine, one thread each, beside PyTorch over gloo.",
                    render=ranks),
        Measurement("collectives", "Collectives", "Median time and bandwidth between two ranks.",
                    render=rates),
        Measurement("distributed_curves", "Loss curves of the schemes",
                    "Loss curves of several ranks beside those of one process.",
                    "python tools/judges/distributed_curves.py", render=distributed_curves),
    ]),
    "programs": ("Whole programs", [
        Measurement("whole_programs", "Programs of PyTorch's and NumPy's users",
                    "Programs of `benchmarks/programs` with other imports alone, one thread. "
                    "`ours` is plain, `gh.optimize` around the step. The ratio is the better of "
                    "the original's times over the better of ours; `loss` is the last of 100 "
                    "steps, and `difference` the largest of all of them; where it is above 0.01, "
                    "`from float64` compares each with the original in float64. Other programs "
                    "used the machine at the time."),
    ]),
    "optimizers": ("Optimizers", [
        Measurement("optimizers", "Update of ViT-B/16",
                    "One `optimizer.step()` for 86 million parameters."),
    ]),
}  # fmt: skip


def read(file: str):
    """A file of results: one JSON document, or one on each line."""
    text = (RESULTS / f"{file}.json").read_text()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def origin(item: Measurement, record) -> str:
    """Machine, versions, date and command of a measurement, without those that nobody noted."""
    fields = record if isinstance(record, dict) else {}
    command = item.command or f"python benchmarks/{item.file}.py"
    rows = {
        "machine": machine_of(fields.get("machine"), item.machine),
        "versions": versions_of(fields),
        "date": fields["time"][:10]
        if "time" in fields
        else f"{COMMITTED[item.file]} at the latest",
        "command": f"`{command}`",
        "record": f"`benchmarks/results/{item.file}.json`",
    }
    return "\n".join(f"- {name}: {text}" for name, text in rows.items() if text)


def machine_of(machine: dict | None, fallback: str) -> str:
    """The machine in one line; `told` is what the text beside an older record says."""
    if not machine:
        return fallback
    vector = "AVX-512" if "avx512f" in machine["vector"] else "AVX2"
    vector += " and AMX" if "amx" in machine["vector"] else ""
    memory = machine["memory"].partition(",")[0]
    cores = machine["cores"].partition(" ")[0]
    threads = re.search(r"OMP_NUM_THREADS\W*(\d+)", machine["BLAS"])
    text = f"{machine['processor']} ({vector}), {cores} cores, {memory}"
    return text + (f", OMP_NUM_THREADS={threads[1]}" if threads else "")


def versions_of(record: dict) -> str:
    """Python, the compiler, and the packages that decide how fast a step is."""
    versions, machine = record.get("versions"), record.get("machine")
    if not versions or not machine:
        return f"PyTorch {record['torch']}" if "torch" in record else ""
    compiler = re.search(r"\) (\d[\d.]*)", machine["compiler"])
    parts = [f"Python {machine['python'].partition(' ')[0]}"]
    parts += [f"C compiler {compiler[1]}"] if compiler else []
    parts += [f"{name} {versions[name]}" for name in ("glasshouse", "numpy", "torch")
              if versions.get(name)]  # fmt: skip
    return ", ".join(parts)


def page(title: str, items: list[Measurement]) -> str:
    """The text of one page."""
    parts = [f"# Measurements: {title}\n\nMade by `python tools/documents/make_measurements.py` "
             "from the records. [How to read these pages](index.md)."]  # fmt: skip
    for item in items:
        record = read(item.file)
        results = record.get("results", record) if isinstance(record, dict) else record
        parts += [f"## {item.title}", item.text, origin(item, record), *item.render(results)]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The page that lists the others."""
    parts = [HEAD]
    for name, (title, items) in GROUPS.items():
        listed = "; ".join(item.title[:1].lower() + item.title[1:] for item in items)
        parts.append(f"- [{title}]({name}.md): {listed}")
    parts.append(
        "- [Kernels](kernels.md): our kernels beside oneDNN's and NumPy's; records were not kept"
    )
    parts.append("- [Earlier measurements](earlier.md): figures whose records were not kept")
    return "\n".join(parts) + "\n"


HEAD = """\
# Measurements

Every table on these pages is made from a record in `benchmarks/results` by
`python tools/documents/make_measurements.py`. Above each stand the machine, the versions, the date
and the command; a line is missing where nobody noted it.

- Times are medians; sides that are compared take turns. Ratios say which time is over which.
- The machines are shared with other programs. Ratios differ by 10 to 20 % from run to run.
- A ratio depends on the processor more than on anything else. Measure on yours:
  `glasshouse bench`, `glasshouse bench --torch`.

## Pages
"""


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    results = {f"{name}.md": page(title, items) for name, (title, items) in GROUPS.items()}
    return {"index.md": index(), **results}


if __name__ == "__main__":
    for name, text in pages().items():
        (PAGES / name).write_text(text)
        print(PAGES / name)
