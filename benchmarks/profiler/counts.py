"""FLOPs by our counter and by PyTorch's, of whole models and of calls that PyTorch miscounts."""

from profiler.overhead import import_torch

import glasshouse as gh
from glasshouse.bench import torch_twins
from glasshouse.nn import functional as F

# (options, shape of the input, published GFLOP forward, and forward and backward, if there are)
MODELS = {
    "alexnet": ({}, (1, 3, 224, 224), 1.4284, 4.1446),
    "vgg16": ({}, (1, 3, 224, 224), 30.9405, 92.648),
    "resnet18": ({}, (1, 3, 224, 224), 3.6281, 10.6484),
    "resnet50": ({}, (1, 3, 224, 224), 8.1784, 24.2991),
    "vit_b_16": ({}, (1, 3, 224, 224), 35.1277, 105.152),
    "bert": ({"layers": 12, "dim": 768, "heads": 12, "ff": 3072}, (1, 128), None, None),
    "asr": ({"layers": 2}, (1, 400, 80), None, None),
}
SMALL = ("alexnet",)


def model_of(name: str, options: dict):
    """Our model."""
    special = {"bert": gh.text.models.BertLike, "asr": gh.speech.models.AsrTransformer}
    return special.get(name, getattr(gh.vision.models, name, None))(**options)


def our_counts(call) -> tuple[int, int]:
    """(forward, forward and backward); nothing is computed, only recorded."""
    with gh.FlopCounter() as counter:
        out = call()
        forward = counter.total()
        out.sum().backward()
    return forward, counter.total()


def torch_counts(torch, call) -> tuple[int, int]:
    """The same by PyTorch's counter, attention as products."""
    kernel = torch.nn.attention.SDPBackend.MATH
    counter = torch.utils.flop_counter.FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(kernel), counter:
        out = call()
        forward = counter.get_total_flops()
        out.sum().backward()
    return forward, counter.get_total_flops()


def count_model(torch, name: str) -> dict:
    """One model, on an input of the size that is published."""
    options, shape, *published = MODELS[name]
    model, dtype = model_of(name, options), gh.int64 if name == "bert" else gh.float32
    ours = our_counts(lambda: model(gh.zeros(shape, dtype=dtype)))
    row = {"model": name, "ours": ours, "published_gflop": published}
    if torch:
        twin = torch_twins.TWINS[name](**options).to("meta")
        x = torch.zeros(shape, dtype=getattr(torch, dtype.name), device="meta")
        row["torch"] = torch_counts(torch, lambda: twin(x))
        row["equal"] = row["torch"] == ours
    return row


def grouped(groups: int) -> dict:
    """A grouped convolution, whose three products are of one size."""
    x, w = gh.zeros((1, 32, 28, 28)), gh.zeros((32, 32 // groups, 3, 3))
    x.requires_grad_(), w.requires_grad_()
    once = 2 * 32 * 26 * 26 * (32 // groups) * 9
    ours = our_counts(lambda: F.conv2d(x, w, groups=groups))
    return {"name": f"convolution of {groups} groups", "true": (once, 3 * once), "ours": ours}


def attention() -> dict:
    """Attention: two products forward, four backward."""
    q, k, v = (gh.zeros((1, 8, 128, 64)).requires_grad_() for _ in range(3))
    once = 2 * 2 * 8 * 128 * 128 * 64
    ours = our_counts(lambda: F.scaled_dot_product_attention(q, k, v))
    return {"name": "attention", "true": (once, 3 * once), "ours": ours}


def complex_product() -> dict:
    """A product of complex matrices: four real ones."""
    a, b = (gh.zeros((64, 64), dtype=gh.complex64) for _ in range(2))
    with gh.FlopCounter() as counter:
        a @ b
    return {"name": "complex product", "true": (4 * 2 * 64**3,), "ours": (counter.total(),)}


def lstm() -> dict:
    """An LSTM over 5 steps, of our parts: two products with 4 x 32 rows a step."""
    inner, outer, x = gh.nn.Linear(16, 128), gh.nn.Linear(32, 128), gh.zeros((5, 3, 16))
    h = c = gh.zeros((3, 32))
    with gh.FlopCounter() as counter:
        for t in range(5):
            i, f, g, o = gh.split(inner(x[t]) + outer(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * gh.tanh(g)
            h = F.sigmoid(o) * gh.tanh(c)
    return {"name": "LSTM", "true": (5 * 2 * 3 * 128 * (16 + 32),), "ours": (counter.total(),)}


def torch_calls(torch) -> list:
    """The same calls in PyTorch, on the CPU."""
    G = torch.nn.functional
    x = torch.zeros(1, 32, 28, 28, requires_grad=True)
    q = torch.zeros(1, 8, 128, 64, requires_grad=True)
    a, layer = torch.zeros(64, 64, dtype=torch.complex64), torch.nn.LSTM(16, 32)

    def convolution(groups):
        w = torch.zeros(32, 32 // groups, 3, 3, requires_grad=True)
        return lambda: G.conv2d(x, w, groups=groups)

    return [
        convolution(4),
        convolution(32),
        lambda: G.scaled_dot_product_attention(q, q, q),
        lambda: a @ a,
        lambda: layer(torch.zeros(5, 3, 16))[0],
    ]


def count_calls(torch) -> list[dict]:
    """Calls with a closed form; those of PyTorch as it runs them by default."""
    rows = [grouped(4), grouped(32), attention(), complex_product(), lstm()]
    for row in rows:
        row["right"] = row["ours"] == row["true"]
    for row, call in zip(rows, torch_calls(torch) if torch else ()):
        with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
            out = call()
            row["torch"] = [counter.get_total_flops()]
            if len(row["true"]) == 2:
                out.sum().backward()
                row["torch"].append(counter.get_total_flops())
    return rows


def count_recomputation() -> dict[str, int]:
    """A checkpointed layer with padding: the three columns, which are not mixed."""
    layer = gh.nn.Conv2d(8, 8, 3, padding=1)
    x = gh.zeros((1, 8, 14, 14)).requires_grad_()
    with gh.FlopCounter() as counter:
        gh.checkpoint(layer)(x).sum().backward()
    return {column: counter.total(column=column) for column in ("model", "algorithmic", "executed")}


def counts(smoke: bool) -> dict:
    """FLOPs of models and calls, in operations (a multiply-add is two)."""
    torch = import_torch()
    models = [count_model(torch, name) for name in (SMALL if smoke else MODELS)]
    return {"models": models, "calls": count_calls(torch), "checkpointed": count_recomputation()}
