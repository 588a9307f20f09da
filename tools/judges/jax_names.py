"""Compares functions of JAX with ours of the same name: on the same arguments, the same results.

    PYTHONPATH=src python tools/judges/jax_names.py            # in an environment that has JAX
    PYTHONPATH=src python tools/judges/jax_names.py cumsum     # some names again, with both results

A name is the same if all calls of `jax_calls.py` give the same structure, shapes, kinds of dtype
and values (random numbers: shape, kind and quantiles); refused if ours raises an error where JAX's
does not. Values may differ by rounding. Ends with 1 where a name differs. Writes what it found to
docs/reference/jax_names.json, from which `make_names_table.py` makes the page."""

import json
import sys
import traceback
import types
import warnings
from pathlib import Path

import jax
import jax.nn.initializers
import jax.numpy
import numpy as np
from jax_calls import CALLS, DRAWS

import glasshouse.jax
import glasshouse.jax.lax
import glasshouse.jax.nn
import glasshouse.jax.nn.initializers
import glasshouse.jax.numpy
import glasshouse.jax.random

FOUND = Path(__file__).parents[2] / "docs" / "reference" / "jax_names.json"
SPACES = {
    "": (jax.numpy, glasshouse.jax.numpy),
    "nn.": (jax.nn, glasshouse.jax.nn),
    "lax.": (jax.lax, glasshouse.jax.lax),
}
NAMED = {
    "jax": (jax, glasshouse.jax),
    "jax.numpy": (jax.numpy, glasshouse.jax.numpy),
    "jax.lax": (jax.lax, glasshouse.jax.lax),
    "jax.nn": (jax.nn, glasshouse.jax.nn),
    "jax.nn.initializers": (jax.nn.initializers, glasshouse.jax.nn.initializers),
    "jax.random": (jax.random, glasshouse.jax.random),
}


UNORDERED = ("partition", "argpartition")  # of which but one element has a place


def leaves_of(x) -> list:
    """The arrays and values of a result, in order."""
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in leaves_of(part)]
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves_of(x[key])]
    return [x]


def kind_of(array: np.ndarray) -> str:
    """The kind of a dtype: JAX has no 64-bit numbers unless asked."""
    return {"u": "i"}.get(array.dtype.kind, array.dtype.kind)


def difference(ours, theirs) -> str:
    """How two results differ; nothing where they do not."""
    mine, other = leaves_of(ours), leaves_of(theirs)
    if len(mine) != len(other):
        return f"{len(mine)} results; JAX gives {len(other)}"
    for x, y in zip(mine, other, strict=True):
        if isinstance(y, (str, type(None), types.FunctionType)):
            continue
        a, b = np.asarray(x), np.asarray(y)
        if a.shape != b.shape:
            return f"shape {a.shape}; JAX {b.shape}"
        if kind_of(a) != kind_of(b):
            return f"dtype {a.dtype}; JAX {b.dtype}"
        if kind_of(a) in "fc" or a.dtype.kind == "V":
            scale = np.nanmax(np.where(np.isfinite(b), np.abs(b), 0), initial=1)
            if not np.allclose(a, b, rtol=2e-4, atol=2e-5 * scale, equal_nan=True):
                return f"values {a.reshape(-1)[:6]}; JAX {b.reshape(-1)[:6]}"
        elif not np.array_equal(a, b):
            return f"values {a.reshape(-1)[:6]}; JAX {b.reshape(-1)[:6]}"
    return ""


def tensors(x):
    """The arrays among arguments as our tensors."""
    return glasshouse.tree.map(
        lambda a: glasshouse.asarray(a) if isinstance(a, np.ndarray) else a, x
    )


def judged(name: str, loud: bool) -> tuple[str, str]:
    """("same" | "differs" | "refused" | "missing" | "not called", how)."""
    space = next((s for s in SPACES if s and name.startswith(s)), "")
    theirs, ours = (getattr(owner, name.removeprefix(space), None) for owner in SPACES[space])
    if theirs is None:
        return "not called", "JAX has no such name"
    if ours is None:
        return "missing", ""
    state = "not called", ""
    for args, named in CALLS[name]:
        try:
            expected = theirs(*args, **named)
        except Exception as error:
            if loud:
                print("JAX", repr(error)[:200])
            continue
        try:
            result = ours(*tensors(args), **tensors(named))
            how = difference(result, expected)
        except Exception as error:
            if loud:
                traceback.print_exc()
            state = "refused", f"{type(error).__name__}: {str(error)[:90]}"
            continue
        if loud:
            print(result, expected, sep="\n")
        if how and name in UNORDERED:
            how = difference(glasshouse.sort(result), np.sort(expected))
        if how:
            return "differs", how
        state = ("same", "") if state[0] == "not called" else state
    return state


def judged_draw(name: str) -> tuple[str, str]:
    """Whether draws have the shape, the kind and the moments of JAX's."""
    theirs, ours = getattr(jax.random, name), getattr(glasshouse.jax.random, name, None)
    if ours is None:
        return "missing", ""
    args, named = DRAWS[name]
    expected = np.asarray(theirs(jax.random.key(1), *args, **named))
    try:
        result = np.asarray(ours(glasshouse.jax.random.key(1), *tensors(args), **tensors(named)))
    except Exception as error:
        return "refused", f"{type(error).__name__}: {str(error)[:90]}"
    if result.shape != expected.shape or kind_of(result) != kind_of(expected):
        return "differs", f"{result.dtype} {result.shape}; JAX {expected.dtype} {expected.shape}"
    for part in (0.1, 0.25, 0.4, 0.6, 0.75, 0.9):
        x, y = (np.quantile(a.astype(float), part) for a in (result, expected))
        spread = np.quantile(expected.astype(float), 0.9) - np.quantile(expected.astype(float), 0.1)
        if abs(x - y) > 0.04 * spread + 1e-6 + (kind_of(result) == "i"):
            return "differs", f"quantile {part}: {x}; JAX {y}"
    return "same", ""


def names_of(owner) -> list[str]:
    """The public names of a module of JAX."""
    names = [n for n in sorted(dir(owner)) if not n.startswith("_")]
    return [n for n in names if not isinstance(getattr(owner, n, None), types.ModuleType)]


def main() -> int:
    warnings.simplefilter("ignore")
    chosen = sys.argv[1:]
    results = {}
    for name in chosen or [*CALLS, *(f"random.{draw}" for draw in DRAWS)]:
        is_draw = name.startswith("random.")
        results[name] = judged_draw(name[7:]) if is_draw else judged(name, bool(chosen))
    for name, (state, how) in results.items():
        if state != "same":
            print(f"{name}: {state}. {how}")
    counts = {
        s: sum(x == s for x, _ in results.values())
        for s in sorted({x for x, _ in results.values()})
    }
    print(len(results), "names called:", counts)
    before = json.loads(FOUND.read_text())["calls"] if chosen and FOUND.exists() else {}
    outcomes = {
        "version": jax.__version__,
        "names": {space: names_of(theirs) for space, (theirs, _) in NAMED.items()},
        "calls": before | {name: list(x) for name, x in results.items()},
    }
    FOUND.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n")
    return counts.get("differs", 0) > 0


if __name__ == "__main__":
    sys.exit(main())
