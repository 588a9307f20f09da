"""The products of one token of SmolLM2-135M, with weights in float32, bfloat16, int8 and int4:
bytes read a second, beside reading as many bytes and adding them up, and the time beside float32's.

Weights are random; each case is one captured call of 30 layers and the head, with one row of
inputs. Reading is the sum of a vector of as many bytes, in float32, by a kernel of ours."""

from typing import Any

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse import nn

SIZE, INNER, SHARED, VOCABULARY, LAYERS = 576, 1536, 192, 49152, 30
SHAPES = [(SIZE, SIZE), (SHARED, SIZE), (SHARED, SIZE), (SIZE, SIZE), (INNER, SIZE), (INNER, SIZE),
          (SIZE, INNER)]  # fmt: skip
CASES = {"float32": None, "bfloat16": None, "int8": "int8", "int4 of 32": 32, "int4 of 64": 64}


def products(name: str, layers: int, vocabulary: int) -> tuple[Any, int]:
    """(a captured function that computes all products of a token, bytes of the weights)."""
    gh.random.seed(0)
    shapes = [*SHAPES * layers, (vocabulary, SIZE)]
    model = nn.ModuleList([nn.Linear(k, n, bias=False) for n, k in shapes])
    kind = CASES[name]
    if name == "bfloat16":
        model.to(dtype="bfloat16")
    elif kind is not None:
        gh.quantize(
            model, "int8" if kind == "int8" else "int4", group=32 if kind == "int8" else kind
        )
    dtype = "bfloat16" if name == "bfloat16" else "float32"
    inputs = {k: gh.random.normal((1, k)).to(dtype) for k in (SIZE, INNER)}
    gh.eval(*inputs.values(), *model.state_dict().values())

    @gh.optimize
    def token(x, y):
        return [layer(x if layer.in_features == SIZE else y) for layer in model]

    def call():
        with gh.no_grad():
            gh.eval(*token(inputs[SIZE], inputs[INNER]))

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
    for name in CASES:
        cases[name], nbytes[name] = products(name, layers, vocabulary)
        cases[f"reading {name}"] = reading(nbytes[name])
    for case in cases.values():  # captured from the third call on
        for _ in range(4):
            case()
    times = summarize(measure(cases, 1 if options.smoke else 15))
    rows = []
    for name in CASES:
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
