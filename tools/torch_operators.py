"""PyTorch's own samples of its operators, through our table, beside eager: what is equal.

    GH_COMPILE=never python tools/torch_operators.py [--only add softmax …] [--dtypes float32 …]

Every sample input of `op_db`, PyTorch's own list of operators, is traced to ATen, run by our table
and compared with eager at PyTorch's tolerances: forward, and for float dtypes backward. The table
lists by operator what differs, what PyTorch computed itself, and what could not be traced."""

import argparse
import collections
import json
import signal
import sys
import warnings

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from glasshouse.torch.backend import decompositions
from glasshouse.torch.runtime import TorchGraphProgram

DTYPES = ("float32", "float64", "bfloat16", "int64", "bool")
SECONDS = 20  # for one sample


class TimedOut(Exception):
    """A sample took too long."""


def flat_tensors(x) -> list[torch.Tensor]:
    return [y for y in pytree.tree_leaves(x) if isinstance(y, torch.Tensor)]


def trace(function, tensors):
    """The graph of ATen's operators of a function of tensors, without mutation."""
    pure = torch.func.functionalize(function, remove="mutations")
    return make_fx(pure, decomposition_table=decompositions(), tracing_mode="fake")(*tensors)


def compare(function, tensors) -> tuple[str, dict]:
    """("same", …) or what differs, and the operators that PyTorch computed itself."""
    torch.manual_seed(0)
    expected = flat_tensors(function(*(x.detach().clone() for x in tensors)))
    try:
        graph = trace(function, [x.detach().clone() for x in tensors])
    except Exception as error:
        return f"untraced: {type(error).__name__}", {}
    compiled = TorchGraphProgram(graph, "forward", {})
    args = [x.detach().clone() for x in tensors]
    found = flat_tensors(compiled(args))
    (variant,) = compiled.variants.values()
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}", variant.unknown
    for ours, theirs in zip(found, expected):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            got = f"{ours.dtype} {tuple(ours.shape)}"
            return f"got {got} for {theirs.dtype} {tuple(theirs.shape)}", variant.unknown
        tolerance = {} if theirs.dtype != torch.bfloat16 else {"rtol": 0.03, "atol": 0.02}
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False, **tolerance)
    return "same", variant.unknown


def functions_of(op, sample, backward: bool):
    """(function of the sample's tensors, those tensors) of an operator, or of its gradient."""
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(*tensors):
        given = list(leaves)
        for place, tensor in zip(places, tensors):
            given[place] = tensor
        first, args, named = pytree.tree_unflatten(given, tree)
        return op.op(first, *args, **named)

    tensors = [leaves[i] for i in places]
    if not backward:
        return forward, tensors
    tracked = [i for i, x in enumerate(tensors) if x.requires_grad]

    def gradient(*given):
        def of_tracked(*chosen):
            full = list(given)
            for i, x in zip(tracked, chosen):
                full[i] = x
            outs = flat_tensors(forward(*full))
            return [y for y in outs if y.dtype.is_floating_point or y.dtype.is_complex]

        outs, pull = torch.func.vjp(of_tracked, *(given[i] for i in tracked))
        return pull([torch.ones_like(y) for y in outs])

    return gradient, tensors if tracked else []


def alarm(*_):
    raise TimedOut


def run_operator(
    op, dtype: torch.dtype, found: collections.Counter, notes: dict, most: int
) -> None:
    backward = dtype.is_floating_point and op.supports_autograd
    if dtype not in op.supported_dtypes("cpu"):
        return
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=backward)):
        if number >= most:
            return
        for way in (False, True) if backward else (False,):
            function, tensors = functions_of(op, sample, way)
            if way and not tensors:
                continue
            signal.alarm(SECONDS)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result, unknown = compare(function, tensors)
            except (Exception, TimedOut) as error:
                lines = str(error).strip().splitlines() or [""]
                result, unknown = f"{type(error).__name__}: {' '.join(lines[:4])[:160]}", {}
            signal.alarm(0)
            kind = result.partition(":")[0] if result.startswith("untraced") else result
            found[kind if kind in ("same", "untraced") else "different"] += 1
            key = f"{op.name} {str(dtype)[6:]}{' backward' if way else ''}"
            if result != "same":
                notes.setdefault(key, []).append(result)
            for name in unknown:
                found[f"in PyTorch: {name}"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--most", type=int, default=1 << 30, help="samples of an operator")
    parser.add_argument("--every", type=int, default=1, help="every so manieth operator")
    parser.add_argument("--json", help="where to write what differs")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, alarm)
    found: collections.Counter = collections.Counter()
    notes: dict[str, list[str]] = {}
    chosen = [op for op in op_db if not options.only or op.name in options.only]
    for op in chosen[:: options.every]:
        for name in options.dtypes:
            before = found["different"]
            try:
                run_operator(op, getattr(torch, name), found, notes, options.most)
            except Exception as error:
                notes.setdefault(f"{op.name} {name}", []).append(f"no samples: {error}"[:100])
            if found["different"] > before:
                print(f"{op.name:40} {name:9} {found['different'] - before} differ", flush=True)
    for key, results in notes.items():
        for result, times in collections.Counter(results).most_common(2):
            print(f"{key:50} {times:4} {result}")
    for kind, count in found.most_common():
        print(f"{count:7} {kind}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"found": found, "notes": notes}, file, indent=1)
    compared = found["same"] + found["different"]
    print(f"{found['same']} of {compared} compared samples are as in PyTorch")
    sys.exit(0 if compared else 1)


if __name__ == "__main__":
    main()
