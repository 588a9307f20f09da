"""The cost of one call through `bind` on a 10-element tensor of the NumPy backend, beside NumPy's
own call.

Aim: at most 5 µs more with no mode, at most 10 µs more while autograd records.
"""

import numpy as np
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse.dispatch import primitives

SIZE = 10


def cases() -> dict:
    """For add, mul, exp, sum: NumPy's call, the card's, the card's on tracked tensors, ours."""
    a = np.linspace(0.1, 1, SIZE, dtype=np.float32)
    b = a[::-1].copy()
    x, y = gh.asarray(a), gh.asarray(b)
    xr, yr = (gh.tensor(v, requires_grad=True) for v in (a, b))
    add, mul, exp, total = (primitives[name] for name in ("add", "mul", "exp", "sum"))
    return {
        ("add", "numpy"): lambda: np.add(a, b),
        ("add", "bind"): lambda: add(x, y),
        ("add", "recorded"): lambda: add(xr, yr),
        ("add", "spelled"): lambda: x + y,
        ("mul", "numpy"): lambda: np.multiply(a, b),
        ("mul", "bind"): lambda: mul(x, y),
        ("mul", "recorded"): lambda: mul(xr, yr),
        ("mul", "spelled"): lambda: x * y,
        ("exp", "numpy"): lambda: np.exp(a),
        ("exp", "bind"): lambda: exp(x),
        ("exp", "recorded"): lambda: exp(xr),
        ("exp", "spelled"): lambda: gh.exp(x),
        ("sum", "numpy"): lambda: np.sum(a),
        ("sum", "bind"): lambda: total(x, axes=(0,)),
        ("sum", "recorded"): lambda: total(xr, axes=(0,)),
        ("sum", "spelled"): lambda: x.sum(),
    }


def main() -> None:
    options = parse_arguments(__doc__)
    gh.backends.use("numpy")
    repeats, calls = (2, 10) if options.smoke else (50, 2000)
    times = measure(cases(), repeats, calls)
    results = summarize({f"{op} {case}": values for (op, case), values in times.items()})
    micro = {name: 1e6 * entry["median_s"] for name, entry in results.items()}
    rows = []
    for op in ("add", "mul", "exp", "sum"):
        base = micro[f"{op} numpy"]
        rows.append(
            [op, f"{base:.2f}"]
            + [
                f"{micro[f'{op} {case}']:.2f}  (+{micro[f'{op} {case}'] - base:.2f})"
                for case in ("bind", "recorded", "spelled")
            ]
        )
    show(
        "bind overhead",
        ["", "numpy", "bind", "bind, recorded", "as users write it"],
        rows,
        f"µs per call on {SIZE} float32 elements, medians of {repeats} runs\n"
        "(+ beyond numpy; aim: bind +5, recorded +10)",
    )
    print(save("bind_overhead", results, options))


if __name__ == "__main__":
    main()
