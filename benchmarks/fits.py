"""Whether `gh.estimate.fits` says what a training step takes: 15 models, each predicted and then
trained in a process of its own.

Six models are ours, six the same ones in PyTorch eager, three made of configurations of Hugging
Face's (where transformers is installed). Measured is the peak of the second step: of ours that of
the memory manager, of PyTorch's that of its MemTracker (`tools/judges/torch_tracker.py`); and by
how much the process grew, which counts code and libraries' workspace too. Aim: peaks equal to the
byte."""

import contextlib
import runpy
import sys
from dataclasses import replace
from pathlib import Path

from analyze import in_new_process, resident
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.bench.cases import CASES, images, recordings, speech_loss, tokens
from glasshouse.bench.worker import Ours, Torch, forget_peak, peak_bytes

MIDDLE = {  # options, and a batch
    "alexnet": ({"width": 16, "num_classes": 100}, images(8, 96, 100)),
    "vgg16": ({"width": 8, "hidden": 256, "num_classes": 100}, images(8, 64, 100)),
    "resnet50": ({"width": 16, "layers": (2, 2, 2, 2), "num_classes": 100}, images(8, 96, 100)),
    "bert": (
        {"vocab": 2000, "layers": 4, "dim": 256, "heads": 4, "ff": 1024},
        tokens(8, 64, 2000),
    ),
    "asr": (
        {"features": 40, "layers": 2, "dim": 128, "heads": 4, "ff": 512},
        recordings(2, 200, 40, 30, 20),
    ),
    "vit_b_16": (
        {
            "image_size": 64,
            "patch_size": 8,
            "num_layers": 4,
            "num_heads": 4,
            "hidden_dim": 128,
            "mlp_dim": 512,
            "num_classes": 100,
        },
        images(8, 64, 100),
    ),
}
CONFIGS = {
    "gpt2": {"n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 2000},
    "llama": {
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 2000,
    },
    "bert": {
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 2000,
        "architectures": ["BertForMaskedLM"],
    },
}
BATCH = (4, 64)  # examples and tokens of the configurations
MEMORY = "1 GiB"
TRACKER = Path(__file__).parents[1] / "tools" / "judges" / "torch_tracker.py"


def take_middle_sizes() -> None:
    """Have the benchmark's models take small sizes here."""
    for name, (options, batch) in MIDDLE.items():
        case = CASES[name]
        CASES[name] = replace(case, options={**case.options, **options}, batch=batch)


def row(library: str, name: str, answer, measured: int, growth: int) -> dict:
    """A line of the record."""
    return {
        "model": f"{library} {name}",
        "predicted_bytes": answer.peak_bytes - getattr(answer.analysis, "outside_bytes", 0),
        "measured_bytes": measured,
        "growth_bytes": growth,
        "by_kind": answer.by_kind,
        "fits": answer.fits,
    }


def own_row(name: str, smoke: bool) -> dict:
    """A model of ours."""
    take_middle_sizes()
    Ours(name, None, "float32", True).train().item()  # loads what running takes
    before = resident()
    with flags.override(compile="always"):
        built = Ours(name, None, "float32", smoke)
        built.optimizer = gh.optim.AdamW(built.model.parameters(), lr=1e-3)
        inputs = [built.inputs, *built.targets]
        answer = gh.estimate.fits(built.model, built.optimizer, inputs, MEMORY, loss=built.loss_of)
        built.compute_weights()
        gh.eval(*built.model.buffers())
        forget_peak()
        manager = gh.memory.current()
        for _ in range(2):
            manager.reset_peak()
            built.train()
        measured = manager.stats().peak_allocated_bytes
    return row("Glasshouse", name, answer, measured, peak_bytes() - before)


def tracked(model, loss, inputs: list) -> tuple:
    """(answer, measured peak, growth of the process) of a model of PyTorch's."""
    import torch

    from glasshouse.torch.ahead.eager import EagerStep

    measured_peaks = runpy.run_path(str(TRACKER))["measured_peaks"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    answer = gh.estimate.fits(model, optimizer, inputs, MEMORY, loss=loss)
    before = resident()
    forget_peak()
    step = EagerStep(model, loss, optimizer, inputs, None)
    peaks = measured_peaks(step, optimizer, inputs)
    return answer, max(peaks), peak_bytes() - before


def torch_row(name: str, smoke: bool) -> dict:
    """The same model in PyTorch eager."""
    take_middle_sizes()
    built = Torch(name, None, "float32", smoke)
    loss = built.loss_of
    if CASES[name].loss is speech_loss:
        # PyTorch's CTC loss reads the lengths, which no analysis knows.
        def loss(scores, *targets):
            return scores.log_softmax(dim=-1).square().mean()

    return row("PyTorch", name, *tracked(built.model, loss, [built.inputs, *built.targets]))


def config_row(name: str, _: bool) -> dict:
    """A model made of a configuration: predicted from that, and measured with weights."""
    import torch
    import transformers

    config = {"model_type": name, **CONFIGS[name]}
    answer = gh.estimate.fits(config, "adamw", BATCH, MEMORY)
    model = model_of(transformers, dict(config))
    model.train()
    ids = torch.randint(0, 2000, BATCH)
    _, measured, growth = tracked(model, None, [{"input_ids": ids, "labels": ids.clone()}])
    return row("transformers", name, answer, measured, growth)


def model_of(transformers, config: dict):
    """The model with weights."""
    configuration = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    heads = ("AutoModelForMaskedLM", "AutoModelForCausalLM")
    return getattr(transformers, heads[configuration.model_type != "bert"]).from_config(
        configuration
    )


def has(library: str) -> bool:
    """Whether a library can be imported."""
    with contextlib.suppress(ImportError):
        __import__(library)
        return True
    print(f"{library} is NOT INSTALLED, so its models were NOT RUN", file=sys.stderr)
    return False


def main() -> None:
    options = parse_arguments(__doc__)
    cases = [(own_row, name) for name in MIDDLE]
    cases += [(torch_row, name) for name in MIDDLE if has("torch")]
    cases += [(config_row, name) for name in CONFIGS if has("transformers")]
    if options.smoke:
        cases = [case for case in cases if case[1] == "bert"]
    rows: list[dict] = []
    for make, name in cases:
        rows.append(in_new_process(make, name, options.smoke))
        print(rows[-1], file=sys.stderr, flush=True)
    path = save("fits", {"models": rows}, options)
    show(
        "does a step fit?",
        ["", "predicted", "measured", "equal", "process grew by"],
        [
            [
                r["model"],
                f"{r['predicted_bytes']:,}",
                f"{r['measured_bytes']:,}",
                str(r["predicted_bytes"] == r["measured_bytes"]),
                f"{r['growth_bytes']:,}",
            ]
            for r in rows
        ],
    )
    print(path)


if __name__ == "__main__":
    main()
