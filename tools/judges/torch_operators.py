"""PyTorch's own samples of its operators, through our table, beside eager: what is equal.

    GH_COMPILE=never python tools/judges/torch_operators.py [--only add softmax …]
        [--dtypes float32 …]
    python tools/judges/torch_operators.py --every 10 --most 2 --at-least 0.99

Every sample input of `op_db`, PyTorch's own list of operators (which needs the package expecttest),
goes through AOTAutograd and our table, or through torch.compile where its graph has to break, and
is compared with eager: forward with strides, and for float dtypes backward.

Two results are equal within the tolerances of torch.testing.assert_close, or where both are as near
to the result in float64: an error at most twice eager's, as PyTorch's own benchmarks judge
(torch._dynamo.utils.same), or at most two units in the last place of the whole tensor. Of an
operator that draws, or whose result is not initialized, only dtypes, shapes and strides are
compared. Each operator has a process of its own: a sample that
crashes or hangs is a difference of that sample."""

import argparse
import collections
import itertools
import json
import os
import signal
import sys
import unittest.mock
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch
from functorch.compile import aot_function
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from glasshouse.torch.backend.entry_point import decompositions, glasshouse
from glasshouse.torch.backend.runtime import TorchGraphProgram, visible_results
from glasshouse.torch.lowering.options import checked_options
from glasshouse.torch.tensors.dtypes import FROM_TORCH

sys.path.insert(0, str(Path(__file__).parent))
import apart
from near_results import NEAR, difference

apart.begin_with("torch._dynamo", "torch_operators")

DTYPES = ("float32", "float64", "bfloat16", "int64", "bool")
RULES = decompositions()
SECONDS = 30  # for one sample
MOST_ENDINGS = 20  # of processes, for one operator
STRICT = checked_options({"strict": True})
TIES = "equal elements may stand in any order; ours keep theirs, eager's large sorts do not"
OVERLAP = "strides that let elements overlap; ours lie apart, and hold zeros"
REASONS = {  # why samples of an operator differ
    "argsort": TIES,
    "msort": TIES,
    "sort": TIES,
    "topk": "of equal elements, any may be taken",
    "empty_strided": OVERLAP,
    "new_empty_strided": OVERLAP,
}
WAYS = ("forward", "strides", "backward")
REFUSED = "eager itself refuses the sample"
BROKEN, DRAWN = "the graph breaks", "drawn: values not compared"


class TimedOut(Exception):
    """A sample took too long."""


def flat_tensors(x) -> list[torch.Tensor]:
    return [y for y in pytree.tree_leaves(x) if isinstance(y, torch.Tensor)]


def compile_function(function, graphs: list):
    """The function through AOTAutograd and our table; its graphs are added to the list."""

    def compiler(phase: str):
        def compile_graph(module, _inputs):
            graphs.append(TorchGraphProgram(module, phase, STRICT, visible_results(phase)))
            return graphs[-1]

        return compile_graph

    return aot_function(function, compiler("forward"), compiler("backward"), decompositions=RULES)


def gradients(outs, tensors) -> list[torch.Tensor]:
    """Those of the sum of all results, with respect to the tensors that want one."""
    outs = [y for y in outs if y.requires_grad]
    wanted = [x for x in tensors if x.requires_grad]
    if not outs or not wanted:
        return []
    torch.manual_seed(1)
    seeds = [torch.randn(y.shape, dtype=torch.float64).to(y.dtype) for y in outs]
    grads = torch.autograd.grad(outs, wanted, seeds, allow_unused=True)
    return [g for g in grads if g is not None]


def results_of(function, tensors) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the results of a function of fresh copies, and their gradients."""
    fresh = [copy_of(x).requires_grad_(x.requires_grad) for x in tensors]
    torch.manual_seed(0)
    outs = flat_tensors(function(*fresh))
    return outs, gradients(outs, fresh)


def copy_of(x: torch.Tensor) -> torch.Tensor:
    """A tensor with the elements and strides of x, in memory of its own; where elements of x
    overlap, its strides are new."""
    x = x.detach()
    if x.layout != torch.strided or x.is_conj() or x.is_neg() or x.numel() != count_of_places(x):
        return x.clone()
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride())) if x.numel() else 0
    return torch.empty(extent, dtype=x.dtype).as_strided(x.shape, x.stride()).copy_(x)


def count_of_places(x: torch.Tensor) -> int:
    """How many places in memory the elements of x lie at."""
    places = torch.zeros((), dtype=torch.int64)
    for n, stride in zip(x.shape, x.stride()):
        places = places.unsqueeze(-1) + torch.arange(n) * stride
    return places.unique().numel()


def stride_difference(ours, theirs) -> str:
    """The first pair of results that lie in memory in another way; axes of one element may."""
    for x, y in zip(ours, theirs):
        if x.layout != torch.strided or y.layout != torch.strided or y.numel() < 2:
            continue
        pairs = [(a, b) for n, a, b in zip(y.shape, x.stride(), y.stride()) if n > 1]
        if any(a != b for a, b in pairs):
            return f"strides {x.stride()} for {y.stride()} of {tuple(y.shape)}"
    return ""


def function_of(op, sample, inplace: bool):
    """(function of the sample's tensors, those tensors)."""
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def forward(*tensors):
        inputs = list(leaves)
        for place, tensor in zip(places, tensors):
            inputs[place] = tensor
        first, args, named = pytree.tree_unflatten(inputs, tree)
        if inplace:
            return op.inplace_variant(first.clone(), *args, **named)
        return op.op(first, *args, **named)

    return forward, [leaves[i] for i in places]


def in_float64(op, sample, inplace: bool):
    """(results, gradients) of a sample in double precision, or (None, None)."""
    wide = dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64)

    def widen(x):
        if isinstance(x, torch.Tensor) and x.dtype in wide:
            return x.detach().to(wide[x.dtype]).requires_grad_(x.requires_grad)
        return wide.get(x, x) if isinstance(x, torch.dtype) else x

    try:
        function, tensors = function_of(op, sample.transform(widen), inplace)
        return results_of(function, tensors)
    except Exception:
        return None, None


def same_bits(a, b) -> bool:
    pairs = [(bits_of(x), bits_of(y)) for x, y in zip(a, b)]
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in pairs)


def bits_of(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().resolve_conj().resolve_neg()
    return x.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def is_drawn(op, function, tensors, expected) -> bool:
    """Whether another seed gives other results, or they are what memory held."""
    if op.name.startswith(("empty", "new_empty")):
        return True
    if not all(x.layout == torch.strided for x in expected):
        return False
    with unittest.mock.patch.object(torch, "manual_seed"):  # some samples seed the generator
        for _ in range(4):
            if not same_bits(flat_tensors(function(*map(copy_of, tensors))), expected):
                return True
    return False


def compare_sample(op, sample, inplace: bool) -> dict[str, str]:
    """How each of WAYS of a sample differs from eager ("" if it does not), and, by their names, the
    operators that PyTorch computed itself and what else is to be counted."""
    function, tensors = function_of(op, sample, inplace)
    try:
        expected, expected_grads = results_of(function, tensors)
    except Exception:
        return {REFUSED: ""}
    is_random = is_drawn(op, function, tensors, expected)
    graphs: list = []
    counted = {}
    try:
        outs, grads = results_of(compile_function(function, graphs), tensors)
    except Exception:
        foreign = {x.dtype for x in (*tensors, *expected)} - FROM_TORCH.keys()
        foreign |= {x.layout for x in (*tensors, *expected)} - {torch.strided}
        if graphs and not foreign:  # a fault of ours; AOTAutograd alone could make a graph
            raise
        torch._dynamo.reset()
        options = {"strict": not foreign}
        whole = torch.compile(function, backend=glasshouse, options=options, dynamic=False)
        outs, grads = results_of(whole, tensors)
        counted |= {f"in PyTorch: graphs with {kind}": "" for kind in foreign} or {BROKEN: ""}
        graphs.clear()
    unknown = {name for graph in graphs for v in graph.variants.values() for name in v.unknown}
    exact = exact_grads = None
    if difference(outs, expected) or difference(grads, expected_grads):
        exact, exact_grads = in_float64(op, sample, inplace)
    ways = {
        "forward": difference(outs, expected, exact, not is_random),
        "strides": stride_difference(outs, expected),
    }
    if expected_grads:
        ways["backward"] = difference(grads, expected_grads, exact_grads, not is_random)
    for way, result in ways.items():
        if result == NEAR:
            ways[way], counted[NEAR] = "", ""
    if is_random:
        counted[DRAWN] = ""
    return {**ways, **counted, **dict.fromkeys((f"in PyTorch: {name}" for name in unknown), "")}


def alarm(*_):
    raise TimedOut


def compare_operator(send, place: int, dtypes: dict[str, int], options) -> None:
    """Compare the samples of one operator, in a process of its own. `dtypes` says how many of each
    dtype's samples are done; (dtype, None) is sent in front of the results of a dtype's others."""
    signal.signal(signal.SIGALRM, alarm)
    for dtype, done in dtypes.items():
        send((dtype, None))
        try:
            samples = samples_of(op_db[place], dtype, options)
            samples = itertools.islice(samples, options.skip + done, options.most)
            for sample in samples:
                send((dtype, compare_in_time(op_db[place], sample, options.inplace)))
        except Exception as error:
            send((dtype, {"no samples": f"{type(error).__name__}: {error}"[:100]}))


def compare_in_time(op, sample, inplace: bool) -> dict[str, str]:
    """Compare a sample; an error, or that it takes too long, is a difference."""
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compare_sample(op, sample, inplace)
    except (Exception, TimedOut) as error:
        text = " ".join(str(error).split())[:150]
        return {"forward": f"{type(error).__name__}: {text}"}
    finally:
        signal.alarm(0)


def samples_of(op, dtype: str, options):
    """The sample inputs of an operator, the same ones each time; for its in-place form, those that
    keep their shape."""
    kind = getattr(torch, dtype)
    backward = (kind.is_floating_point or kind.is_complex) and op.supports_autograd
    for sample in op.sample_inputs("cpu", kind, requires_grad=backward):
        if not (options.inplace and sample.broadcasts_input):
            yield sample


def run_operator(place: int, dtypes: list[str], options) -> dict[str, list[dict[str, str]]]:
    """Compare the samples of one operator, for each dtype and sample. A sample that ends the
    process is a difference, and the next process begins after it."""
    results: dict[str, list] = {dtype: [] for dtype in dtypes}
    left = dtypes
    for _ in range(MOST_ENDINGS):
        counts = {dtype: len(results[dtype]) for dtype in left}
        for message in apart.messages(compare_operator, (place, counts, options), 2 * SECONDS):
            if isinstance(message, apart.Ended):
                results[left[0]].append({"forward": str(message)})
                break
            dtype, result = message
            if result is None:
                left = left[left.index(dtype) :]
            else:
                results[dtype].append(result)
        else:
            return results
    results[left[0]].append({"forward": f"{MOST_ENDINGS} processes ended; others not tried"})
    return results


def chosen_operators(options) -> list[tuple[str, int, list[str]]]:
    """(name, place in op_db, names of dtypes) of all that is to be compared; forms of an operator
    differ."""
    places = [i for i, op in enumerate(op_db) if not options.only or op.name in options.only]
    if options.inplace:
        places = [i for i in places if op_db[i].inplace_variant is not None]
    chosen = []
    for place in places[options.start :: options.every]:
        op = op_db[place]
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        supported = op.supported_dtypes("cpu")
        dtypes = [dtype for dtype in options.dtypes if getattr(torch, dtype) in supported]
        chosen.append((name, place, dtypes))
    return chosen


def read_log(path: str | None) -> dict[tuple[str, str], list[dict[str, str]]]:
    """Results by (operator, dtype) of an earlier run."""
    if not path or not os.path.exists(path):
        return {}
    with open(path) as file:
        entries = [json.loads(line) for line in file]
    return {(x["operator"], x["dtype"]): x["results"] for x in entries}


def run_all(options) -> dict[tuple[str, str], list[dict[str, str]]]:
    """The results of all operators; each is appended to the log as soon as it is there."""
    done = read_log(options.log)
    chosen = chosen_operators(options)
    missing = []
    for name, place, dtypes in chosen:
        dtypes = [dtype for dtype in dtypes if (name, dtype) not in done]
        if dtypes:
            missing.append((name, place, dtypes))

    def run_one(chosen):
        name, place, dtypes = chosen
        return name, run_operator(place, dtypes, options)

    with open(options.log or os.devnull, "a") as log, ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(run_one, each) for each in missing]):
            name, results = future.result()
            for dtype, samples in results.items():
                done[name, dtype] = samples
                entry = {"operator": name, "dtype": dtype, "results": samples}
                print(json.dumps(entry), file=log, flush=True)
                differ = sum(any(x.get(way) for way in WAYS) for x in samples)
                if differ:
                    print(f"{name:40} {dtype:9} {differ} of {len(samples)} differ", flush=True)
    return {(name, dtype): done[name, dtype] for name, _, dtypes in chosen for dtype in dtypes}


def print_summary(results: dict) -> dict:
    """Print what differs, how often and why; what is saved of that."""
    counts: collections.Counter = collections.Counter()
    different_samples: collections.Counter = collections.Counter()
    for (name, dtype), samples in sorted(results.items()):
        notes: dict[str, collections.Counter] = {}
        for sample in samples:
            if "no samples" in sample or REFUSED in sample:
                counts["samples that PyTorch cannot make or compute"] += 1
                continue
            different = {way: sample[way] for way in WAYS if sample.get(way)}
            counts["different" if different else "same"] += 1
            different_samples[name] += bool(different)
            for way, text in different.items():
                notes.setdefault(way, collections.Counter())[text] += 1
            for kind in sample.keys() - set(WAYS):
                counts[kind] += 1
            ours = (
                not any(kind.startswith("in PyTorch") for kind in sample) and BROKEN not in sample
            )
            counts["whole in ours, same"] += ours and not different
            counts["whole in ours"] += ours
        for way, texts in notes.items():
            for text, times in texts.most_common(2):
                print(f"{name:40} {dtype:9} {way:9} {times:4} {text}")
    for kind, count in counts.most_common():
        print(f"{count:7} {kind}")
    compared = counts["same"] + counts["different"]
    share = counts["same"] / compared if compared else 0.0
    for name, number in sorted((+different_samples).items()):
        print(f"{name}, {number} samples: {REASONS.get(name, 'NOT EXPLAINED')}")
    print(f"{counts['same']} of {compared} samples ({share:.2%}) are as in PyTorch")
    differing = {name: [n, REASONS.get(name, "")] for name, n in (+different_samples).items()}
    operators = len({name for name, _ in results})
    return {"share": share, "operators": operators, "counts": counts, "differing": differing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--most", type=int, default=1 << 30, help="up to the sample of this number")
    parser.add_argument("--skip", type=int, default=0, help="the number of the first sample")
    parser.add_argument("--every", type=int, default=1, help="every so manieth operator")
    parser.add_argument("--start", type=int, default=0, help="the number of the first operator")
    parser.add_argument("--inplace", action="store_true", help="the forms that write their operand")
    parser.add_argument("--log", help="where results are appended; what it holds is not run again")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--save", type=Path, help="where the summary is written")
    parser.add_argument("--at-least", type=float, default=0.0, help="share that has to be the same")
    options = parser.parse_args()
    result = print_summary(run_all(options))
    if options.save:
        options.save.write_text(json.dumps({"torch": torch.__version__, **result}, indent=1) + "\n")
    share = result["share"]
    sys.exit(0 if share > 0 and share >= options.at_least else 1)


if __name__ == "__main__":
    main()
