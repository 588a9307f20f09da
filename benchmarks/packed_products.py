"""The products of one token of SmolLM2-135M, with weights in float32, bfloat16, int8, int4, and in
blocks of GGUF files (Q4_K and Q6_K with rows rounded up to whole blocks of 256):
bytes read a second, beside reading as many bytes and adding them up, and the time beside float32's.

Weights are random; each case is one captured call of 30 layers and the head, with one row of
inputs. Reading is the sum of a vector of as many bytes, in float32, by a kernel of ours."""

from typing import Any

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn
from glasshouse.ops.packed import find_format

SIZE, INNER, SHARED, VOCABULARY, LAYERS = 576, 1536, 192, 49152, 30
SHAPES = [(SIZE, SIZE), (SHARED, SIZE), (SHARED, SIZE), (SIZE, SIZE), (INNER, SIZE), (INNER, SIZE),
          (SIZE, INNER)]  # fmt: skip
CASES = {"float32": None, "bfloat16": None, "int8": "int8", "int4 of 32": 32, "int4 of 64": 64}
BLOCKS = {"Q8_0": (0,), "Q4_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}  # places of the scales


def random_layer(name: str, depth: int, columns: int) -> nn.QuantizedLinear:
    """A layer with random codes, and scales of moderate size."""
    form, rng = find_format(name), np.random.default_rng(0)
    count = -(-depth // form.numbers)
    blocks = rng.integers(0, 256, (columns, count, form.nbytes), np.uint8)
    for at in BLOCKS[name]:
        scales = rng.normal(0, 0.01, (columns, count, 1)).astype(np.float16)
        blocks[..., at : at + 2] = scales.view(np.uint8)
    return nn.QuantizedLinear(gh.asarray(blocks), count * form.numbers, name)


def products(name: str, layers: int, vocabulary: int) -> tuple[Any, int]:
    """(a captured function that computes all products of a token, bytes of the weights)."""
    gh.random.seed(0)
    shapes = [*SHAPES * layers, (vocabulary, SIZE)]
    kind = CASES.get(name)
    if name in BLOCKS:
        model = nn.ModuleList([random_layer(name, k, n) for n, k in shapes])
    else:
        model = nn.ModuleList([nn.Linear(k, n, bias=False) for n, k in shapes])
    if name == "bfloat16":
        model.to(dtype="bfloat16")
    elif kind is not None:
        gh.quantize(
            model, "int8" if kind == "int8" else "int4", group=32 if kind == "int8" else kind
        )
    dtype = "bfloat16" if name == "bfloat16" else "float32"
    widths = {layer.in_features for layer in model}
    inputs = {k: gh.random.normal((1, k)).to(dtype) for k in widths}
    small, large = inputs[min(widths)], inputs[max(widths)]
    gh.eval(small, large, *model.state_dict().values())

    @gh.optimize
    def token(x, y):
        return [layer(x if layer.in_features == x.shape[1] else y) for layer in model]

    def call():
        with gh.no_grad():
            gh.eval(*token(small, large))

    return call, sum(x.nbytes for x in model.state_dict().values())


def reading(nbytes: int) -> Any:
    """A captured function that reads so many bytes."""
    numbers = gh.asarray(np.ones(nbytes // 4, np.float32))

    @gh.optimize
    def total(x):
        return x.sum()

    return lambda: gh.eval(total(numbers))


def main() -> None:
    options = parse_arguments(__doc__)
    layers, vocabulary = (1, 512) if options.smoke else (LAYERS, VOCABULARY)
    cases, nbytes = {}, {}
    names = [*CASES, *BLOCKS]
    for name in names:
        cases[name], nbytes[name] = products(name, layers, vocabulary)
        cases[f"reading {name}"] = reading(nbytes[name])
    for case in cases.values():  # captured from the third call on
        for _ in range(4):
            case()
    times = summarize(measure(cases, 1 if options.smoke else 15))
    rows = []
    for name in names:
        seconds, least = (times[key]["median_s"] for key in (name, f"reading {name}"))
        row = times[name] | {"bytes": nbytes[name], "of_reading": least / seconds}
        row["ratio"] = times["float32"]["median_s"] / seconds
        times[name] = row
        speed = [f"{nbytes[name] / s / 1e9:.1f}" for s in (seconds, least)]
        millis = f"{seconds * 1e3:.2f}"
        share, ratio = f"{row['of_reading']:.0%}", f"{row['ratio']:.2f}"
        rows.append([name, f"{nbytes[name] / 1e6:.0f}", millis, *speed, share, ratio])
    columns = ["weights", "MB", "ms", "GB/s", "reading GB/s", "share", "times float32"]
    show("Products of a token", columns, rows, "a ratio above 1: faster than float32")
    print(save("packed_products", times, options))


if __name__ == "__main__":
    main()
