"""Calls each name of PyTorch that is here with random arguments, in both libraries.

    python tools/judges/pytorch_calls.py [names] [--seed 0] [--tries 60]

PyTorch's own schemas say which arguments a name takes; values are drawn by their types, some by
position and some by name. Of the calls that PyTorch accepts each is then "same", "refused" (we
raise an error), "by spelling" (the Array API's meaning, where PyTorch's has another spelling),
"listed" (different, for a reason in `DIFFERENT`), or "different" for no reason: a silent
difference, which is a fault. `compared` makes the comparison of a name, for tests and for the table
of names."""

import argparse
import random
import re
import sys
import warnings
import zlib
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import torch

import glasshouse as gh

SPACES = {
    "torch.Tensor": (torch.Tensor, gh.Tensor, ""),
    "torch": (torch, gh, ""),
    "torch.linalg": (torch.linalg, gh.linalg, "linalg_"),
    "torch.fft": (torch.fft, gh.fft, "fft_"),
    "torch.special": (torch.special, gh.special, "special_"),
}
DTYPES = "float32 float64 int64 int32 uint8 bool complex64".split()
SIZES = ("size", "shape", "sizes", "repeats", "split_size", "split_sizes", "n_fft")
WORDS = """floor trunc mean sum prod amax amin reflect constant xy ij linear lower higher left right
max_norm fro nuc ortho forward backward U L reduced complete""".split()
LEFT_OUT = ("Layout", "Device", "MemoryFormat", "Generator", "Storage", "Dimname", "Stream")


# Functions that mean the Array API's unless arguments are called dim or keepdim; and how PyTorch's
# meaning is spelled. tensor/torch_names/meanings.py has what they mean.
BY_SPELLING = {
    "max": "`x.max(dim=…)`, `gh.max(x, dim=…)`",
    "min": "`x.min(dim=…)`, `gh.min(x, dim=…)`",
    "sort": "`x.sort()`, `gh.sort(x, dim=-1)`",
    "std": "`x.std()`, `gh.std(x, dim=…)`",
    "var": "`x.var()`, `gh.var(x, dim=…)`",
    "split": "`x.split(n)`, `gh.split(x, n, dim=…)`",
    "squeeze": "`x.squeeze(i)`, `gh.squeeze(x, dim=i)`",
    "take": "`x.take(i)`",
    "nonzero": "`x.nonzero()`, `gh.nonzero(x, as_tuple=False)`",
    "equal": "`x.equal(y)`",
    "meshgrid": '`gh.meshgrid(x, y, indexing="ij")`',
}
RANDOM = """bernoulli* cauchy_ exponential_ geometric_ log_normal_ multinomial normal* poisson rand*
*dropout* rrelu* uniform_ random_ binomial *_lowrank""".split()
# What is to differ: names, what a call or its difference looks like, and why.
DIFFERENT = (
    ("empty* new_empty* resize_*", "", "what is not written yet is 0"),
    (
        "sum prod cumsum cumprod nansum trace",
        "uint8.* uint64 for int64",
        "sums and products of unsigned integers are uint64, as in the Array API",
    ),
    ("all any", "bool for uint8", "booleans, of uint8 too"),
    (
        "clamp* clip*",
        "uint8",
        "the dtype of x is kept, as in the Array API, and bounds do not wrap around",
    ),
    ("kthvalue topk median nanmedian mode", "", "which of equal elements it is, and their order"),
    ("polygamma* zeta", "inf|nan", "infinite or NaN where the function is"),
    ("addcmul addcdiv", "u?int.*value=0.5", "a fraction of integers is no integer"),
    ("histogram", "", "edges are to be in order, and apart"),
    (
        "kl_div *_loss binary_cross_entropy_with_logits",
        "shape",
        "the mean, as in `gh.nn.functional`",
    ),
    ("adaptive_max_pool1d", "for tuple", "values; with `return_indices=True` indices too"),
    ("cholesky_solve triangular_solve cholesky_inverse", "nan|inf", "NaN or infinite if singular"),
    ("unique_consecutive", "", "flags by position count; PyTorch's function heeds them by name"),
    ("as_strided_scatter", "", "places that overlap are written in another order"),
    ("gradient", "spacing=.?0", "a spacing of 0"),
    ("lstsq", "", "the solution of least norm; residuals are never left out"),
    ("geqrf eig eigh svd qr", r"\] for \[", "factors that differ by signs or phases"),
    ("to", "True|False", "a lone True is non_blocking, and no dtype"),
    ("threshold*", "int", "a fraction in place of integers makes them floats"),
)


class Outcome(NamedTuple):
    """One call, as text, and what became of it."""

    call: str
    kind: str
    why: str


def inputs(rng: np.random.Generator) -> list[np.ndarray]:
    """Arrays to call functions on: of several ranks and dtypes, with equal elements among them."""
    x = rng.integers(-4, 5, (3, 4)) / 2
    square = rng.integers(-2, 3, (3, 3)) / 2
    square = square @ square.T + np.eye(3)  # symmetric and definite, as some functions want it
    return [
        x.astype(np.float32),
        square,
        rng.integers(0, 3, (3, 3)),
        rng.integers(-4, 5, 4) / 2,
        rng.integers(-4, 5, (2, 1, 3)) / 2,
        rng.integers(0, 2, (2, 3)) > 0,
        rng.integers(0, 4, (2, 2)).astype(np.uint8),
        np.array(1.5, np.float32),
        (square[:2, :2] + np.array([[0, 0.5j], [-0.5j, 0]])).astype(np.complex64),
    ]


class Dtype(NamedTuple):
    """A dtype by its name, for either library."""

    name: str


def drawn(draw: random.Random, kind: str, name: str, x: np.ndarray) -> Any:
    """A value for an argument of this type of a schema."""
    if kind.startswith("Optional["):
        kind = kind[len("Optional[") : -1]
    if kind.startswith("List["):
        kind, inner = "list", kind[len("List[") : -1]
        if name in SIZES:
            return draw.choice([[3, 4], [4, 3], [2, 2], [12], [-1], [1, 3], [x.size], [3, 3]])
        count = draw.choice([1, 1, 2])
        return [drawn(draw, inner, name, x) for _ in range(count)]
    if kind == "Tensor":
        return tensor(draw, name, x)
    if kind in ("int", "SymInt"):
        return draw.choice([-1, 0, 1] if "dim" in name else [0, 1, 1, 2, 3])
    if kind == "float":
        return draw.choice([0.5, 0.25, 1.5])
    if kind in ("number", "Scalar"):
        return draw.choice([2, 0.5, -1, 1, 0])
    if kind == "bool":
        return draw.choice([True, False])
    if kind == "str":
        return draw.choice(WORDS)
    if kind == "ScalarType":
        return Dtype(draw.choice(DTYPES))
    raise NotImplementedError(kind)


def tensor(draw: random.Random, name: str, x: np.ndarray) -> np.ndarray:
    """A tensor as an argument beside x."""
    rng = np.random.default_rng(draw.getrandbits(32))
    if name in ("index", "indices", "sorter", "repeats") or draw.random() < 0.1:
        shape = draw.choice([x.shape, (2,), (2,) * x.ndim])
        return np.asarray(rng.integers(0, 2, shape))
    if name in ("mask", "condition"):
        return np.asarray(rng.integers(0, 2, x.shape) > 0)
    shape = draw.choice([x.shape, x.shape, x.shape[-1:], (x.shape[-1] if x.ndim else 1, 2), ()])
    other = rng.integers(-3, 4, shape)
    return np.asarray(other / 2 if x.dtype.kind in "fc" else abs(other)).astype(x.dtype, copy=False)


def schemas_of(space: str, name: str) -> list[list[Any]]:
    """The arguments after the tensor that PyTorch's operators of this name take."""
    names = {f"{SPACES[space][2]}{name}", name}
    lists = []
    for full_name in sorted(names):
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{full_name}"):
            first = str(schema.arguments[0].type) if schema.arguments else ""
            out = any(a.is_out for a in schema.arguments) or "out" in schema.overload_name
            if not out and ("Tensor" in first):
                lists.append((first, schema.arguments[1:]))
    return lists


def arguments(draw: random.Random, schema: Any, x: np.ndarray) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of one call: some of those that may be left out are, some have names."""
    args, named, by_name = [], {}, False
    for a in schema:
        kind = str(a.type)
        optional = a.has_default_value() or kind.startswith("Optional[")
        if any(part in kind for part in LEFT_OUT) or optional and draw.random() < 0.45:
            by_name = True
            continue
        by_name = by_name or a.kwarg_only or draw.random() < 0.3
        value = drawn(draw, kind, a.name, x)
        if by_name:
            named[a.name] = value
        elif isinstance(value, list) and kind.startswith("List[int") and draw.random() < 0.5:
            args += value
        else:
            args.append(value)
    return args, named


def converted(value: Any, lib: Any) -> Any:
    """An argument as one of a library's."""
    if isinstance(value, np.ndarray):
        return lib.tensor(value.copy())
    if isinstance(value, Dtype):
        return getattr(lib, value.name)
    if isinstance(value, list):
        return [converted(v, lib) for v in value]
    return value


def plain(result: Any) -> Any:
    """A result of either library as arrays, tuples, numbers and texts."""
    if isinstance(result, torch.Tensor):
        return result.detach().resolve_conj().resolve_neg().cpu().numpy()
    if isinstance(result, gh.Tensor):
        return result.detach().numpy()
    if isinstance(result, (tuple, list)):
        return tuple(plain(r) for r in result)
    if isinstance(result, (torch.dtype, gh.dtype)):
        return str(result).rpartition(".")[2]
    return result


def difference(ours: Any, theirs: Any) -> str:
    """How two plain results differ; "" if they do not."""
    if isinstance(theirs, np.ndarray) or isinstance(ours, np.ndarray):
        if not (isinstance(theirs, np.ndarray) and isinstance(ours, np.ndarray)):
            return f"{type(ours).__name__} for {type(theirs).__name__}"
        if ours.shape != theirs.shape:
            return f"shape {ours.shape} for {theirs.shape}"
        if ours.dtype != theirs.dtype:
            return f"{ours.dtype} for {theirs.dtype}"
        close = np.allclose(ours, theirs, rtol=2e-3, atol=2e-3, equal_nan=True)
        return "" if close else f"{ours.tolist()} for {theirs.tolist()}"[:160]
    if isinstance(theirs, tuple):
        if not isinstance(ours, tuple) or len(ours) != len(theirs):
            return f"{type(ours).__name__} for a tuple of {len(theirs)}"
        return next(filter(None, map(difference, ours, theirs)), "")
    if isinstance(theirs, (bool, int, float, complex, str)):
        same = ours == theirs or np.isclose(ours, theirs, rtol=1e-3, equal_nan=True) \
            if not isinstance(theirs, str) else ours == theirs  # fmt: skip
        return "" if same else f"{ours!r} for {theirs!r}"
    return ""


def text_of(name: str, x: np.ndarray, args: list[Any], named: dict[str, Any]) -> str:
    def short(v: Any) -> str:
        return f"{v.dtype}{list(v.shape)}" if isinstance(v, np.ndarray) else repr(v)

    parts = [short(v) for v in args] + [f"{k}={short(v)}" for k, v in named.items()]
    return f"{short(x)}.{name}({', '.join(parts)})"


def one_call(space: str, name: str, first: str, x: Any, args: list, named: dict) -> Outcome | None:
    """The outcome of a call; None if PyTorch refuses it."""
    theirs, ours, _ = SPACES[space]
    results = []
    for lib, place in ((torch, theirs), (gh, ours)):
        start = converted([x, x] if "List" in first else x, lib)
        inputs = [converted(a, lib) for a in args]
        options = {k: converted(v, lib) for k, v in named.items()}
        try:
            result = getattr(place, name)(start, *inputs, **options)
            written = plain(start) if name.endswith("_") else None
            results.append((plain(result), written))
        except Exception as error:
            if lib is torch:
                return None
            return Outcome(text_of(name, x, args, named), "refused", repr(error)[:300])
    differs = difference(results[1], results[0])
    return judged(space, name, text_of(name, x, args, named), differs)


def judged(space: str, name: str, call: str, differs: str) -> Outcome:
    """The outcome of a call whose results differ like this, or not at all."""
    if not differs:
        return Outcome(call, "same", "")
    spelled = re.search(r"\b(dim|keepdim|as_tuple|indexing)=", call)
    if space == "torch" and name in BY_SPELLING and not spelled:
        return Outcome(call, "by spelling", BY_SPELLING[name])
    if any(fnmatchcase(name, pattern) for pattern in RANDOM):
        return Outcome(call, "listed", "random")
    for names, pattern, why in DIFFERENT:
        fits = any(fnmatchcase(name, one) for one in names.split())
        if fits and re.search(pattern, f"{call} {differs}"):
            return Outcome(call, "listed", why)
    return Outcome(call, "different", differs)


def compared(space: str, name: str, seed: int = 0, tries: int = 60) -> list[Outcome]:
    """The outcomes of random calls of a name that PyTorch accepts."""
    draw = random.Random(zlib.crc32(f"{space}.{name}.{seed}".encode()))
    attribute = getattr(SPACES[space][0], name)
    xs = inputs(np.random.default_rng(draw.getrandbits(32)))
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not callable(attribute):
            return [o for x in xs if (o := one_property(space, name, x))]
        lists = schemas_of(space, name)
        for i in range(tries if lists else 0):
            first, schema = lists[i % len(lists)]
            x = xs[(i // len(lists)) % len(xs)]
            try:
                args, named = arguments(draw, schema, x)
            except NotImplementedError:
                continue
            outcome = one_call(space, name, first, x, args, named)
            if outcome is not None:
                results.append(outcome)
    return results


ORDER = ("different", "listed", "by spelling", "refused", "same")


def summary(outcomes: list[Outcome]) -> Outcome | None:
    """The outcome that says most about a name: one that differs before one that is refused; None if
    no call was found that PyTorch accepts."""
    return min(outcomes, key=lambda outcome: ORDER.index(outcome.kind), default=None)


def one_property(space: str, name: str, x: np.ndarray) -> Outcome | None:
    if space != "torch.Tensor":
        return None
    try:
        theirs = plain(getattr(torch.tensor(x), name))
    except Exception:
        return None
    try:
        ours = plain(getattr(gh.tensor(x), name))
    except Exception as error:
        return Outcome(text_of(name, x, [], {}), "refused", repr(error)[:200])
    return judged(space, name, text_of(name, x, [], {}), difference(ours, theirs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=60)
    options = parser.parse_args()
    gh.backends.use("numpy")
    counts: dict[str, int] = {}
    for space, (theirs, ours, _) in SPACES.items():
        for name in sorted(set(dir(theirs)) & set(dir(ours))):
            if name.startswith("_") or options.names and name not in options.names:
                continue
            for outcome in compared(space, name, options.seed, options.tries):
                counts[outcome.kind] = counts.get(outcome.kind, 0) + 1
                if outcome.kind == "different" or options.names and outcome.kind != "same":
                    print(f"{space} {outcome.kind}: {outcome.call}: {outcome.why}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return bool(counts.get("different"))


if __name__ == "__main__":
    sys.exit(main())
