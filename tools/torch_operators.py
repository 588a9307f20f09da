"""PyTorch's own samples of its operators, through our table, beside eager: what is equal.

    GH_COMPILE=never python tools/torch_operators.py [--only add softmax …] [--dtypes float32 …]

Every sample input of `op_db`, PyTorch's own list of operators, goes through AOTAutograd and our
table, and is compared with eager at PyTorch's tolerances: forward, and for float dtypes backward.
The table lists by operator what differs, and which operators PyTorch computed itself."""

import argparse
import collections
import itertools
import json
import signal
import sys
import warnings

import torch
from functorch.compile import aot_function
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


def compile_function(function, graphs: list):
    """The function through AOTAutograd and our table; its graphs are added to the list."""

    def compiler(phase: str):
        def compile_graph(module, _inputs):
            graphs.append(TorchGraphProgram(module, phase, {"strict": True}))
            return graphs[-1]

        return compile_graph

    return aot_function(
        function, compiler("forward"), compiler("backward"), decompositions=decompositions()
    )


def gradients(outs, tensors) -> list[torch.Tensor]:
    """Those of the sum of all results, with respect to the tensors that want one."""
    outs = [y for y in outs if y.requires_grad]
    wanted = [x for x in tensors if x.requires_grad]
    if not outs or not wanted:
        return []
    torch.manual_seed(1)
    seeds = [torch.randn_like(y) for y in outs]
    found = torch.autograd.grad(outs, wanted, seeds, allow_unused=True)
    return [g for g in found if g is not None]


def results_of(function, tensors) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What a function of fresh copies gives, and the gradients of that."""
    torch.manual_seed(0)
    fresh = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]
    outs = flat_tensors(function(*fresh))
    return outs, gradients(outs, fresh)


def difference(ours, theirs) -> str:
    """What is not the same in two lists of tensors; "" if all is."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results for {len(theirs)}"
    for x, y in zip(ours, theirs):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"got {x.dtype} {tuple(x.shape)} for {y.dtype} {tuple(y.shape)}"
        tolerance = {"rtol": 0.03, "atol": 0.02} if y.dtype == torch.bfloat16 else {}
        try:
            torch.testing.assert_close(x, y, equal_nan=True, **tolerance)
        except AssertionError as error:
            return " ".join(str(error).strip().splitlines()[:4])[:150]
    return ""


def function_of(op, sample):
    """(function of the sample's tensors, those tensors)."""
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(*tensors):
        given = list(leaves)
        for place, tensor in zip(places, tensors):
            given[place] = tensor
        first, args, named = pytree.tree_unflatten(given, tree)
        return op.op(first, *args, **named)

    return forward, [leaves[i] for i in places]


def compare_sample(op, sample) -> dict[str, str]:
    """How "forward" and "backward" of a sample differ from eager ("" if they do not), and, by
    their names, the operators that PyTorch computed itself."""
    function, tensors = function_of(op, sample)
    expected, expected_grads = results_of(function, tensors)
    graphs: list = []
    found, grads = results_of(compile_function(function, graphs), tensors)
    unknown = {name for graph in graphs for v in graph.variants.values() for name in v.unknown}
    ways = {"forward": difference(found, expected)}
    if expected_grads:
        ways["backward"] = difference(grads, expected_grads)
    return {**ways, **dict.fromkeys(unknown, "")}


def alarm(*_):
    raise TimedOut


def run_operator(op, dtype: torch.dtype, found: collections.Counter, notes: dict, most: int):
    """Compare the samples of one operator in one dtype, forward and backward."""
    if dtype not in op.supported_dtypes("cpu"):
        return
    backward = dtype.is_floating_point and op.supports_autograd
    samples = op.sample_inputs("cpu", dtype, requires_grad=backward)
    for sample in itertools.islice(samples, most):
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = compare_sample(op, sample)
        except (Exception, TimedOut) as error:
            text = " ".join(str(error).split())[:150]
            results = {"forward": f"{type(error).__name__}: {text}"}
        signal.alarm(0)
        for way, result in results.items():
            if way not in ("forward", "backward"):
                found[f"in PyTorch: {way}"] += 1
                continue
            found["different" if result else "same"] += 1
            if result:
                notes.setdefault(f"{op.name} {str(dtype)[6:]} {way}", []).append(result)


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
