"""Runs a random program of PyTorch eagerly and through torch.compile with our backend, and compares
results, gradients, what was written to, and errors."""

import contextlib
import linecache
import re
import warnings
from functools import partial

import torch
from shrinking import fewest
from torch_programs import TorchProgram, new_world, text_of

from glasshouse.torch.backend.entry_point import glasshouse
from glasshouse.torch.tensors.layout import overlaps_itself

CALLS = [(0, 3), (1, 3), (2, 4)]  # (seed of the arguments, N) of each call
PYTORCHS = ("modified by an inplace", "FX node with fake tensors", "refers to a single memory")
NUDGES = 3  # eager runs with arguments that differ in their last bits
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DRAWS = ("normal_", "uniform_", "multinomial", "rrelu", "gumbel", "bernoulli")


class Outcome:
    """All that can be seen of one call: `error`, or `tensors` by name, and `others`."""

    def __init__(self, function, world: dict, args: list, n: int):
        self.error: Exception | None = None
        self.tensors: dict[str, torch.Tensor] = {}
        self.others: dict[str, object] = {}
        torch.manual_seed(0)
        try:
            results = function(n, *args)
            self.note("result", results)
            self.backward(results, args)
        except Exception as error:
            self.error = error
        for i, x in enumerate(args):
            self.note(f"x{i}", x.detach())
            self.note(f"x{i}.grad", x.grad)
        for name in ("NORM", "GATE"):
            for key, x in world[name].state_dict(keep_vars=True).items():
                self.note(f"{name}.{key}", x.detach())
                self.note(f"{name}.{key}.grad", x.grad)

    def note(self, name: str, x) -> None:
        if isinstance(x, (tuple, list)):
            self.others[f"len({name})"] = len(x)
            for i, part in enumerate(x):
                self.note(f"{name}[{i}]", part)
        elif isinstance(x, torch.Tensor):
            self.others[f"{name} is"] = x.dtype, tuple(x.shape), x.requires_grad
            if not overlaps_itself(x):
                self.others[f"{name} lies"] = strides(x)
            self.tensors[name] = x.detach().clone()
        else:
            self.others[name] = x

    def backward(self, results, args) -> None:
        """The gradients of a sum of all results."""
        flat = [x for x in leaves(results) if x.requires_grad and x.numel()]
        if not flat:
            return
        total = 0.0
        for number, x in enumerate(flat):
            size = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
            total = total + (size.double() * (number + 1)).sum()
        total.backward()


def leaves(results) -> list[torch.Tensor]:
    if isinstance(results, torch.Tensor):
        return [results]
    return [x for part in results for x in leaves(part)] if isinstance(results, tuple) else []


def strides(x: torch.Tensor) -> tuple:
    """Strides, as far as they say where elements lie; nothing where these overlap."""
    return tuple(s if n > 1 else None for n, s in zip(x.shape, x.stride())) if x.numel() else ()


class World:
    """A program's function with names of its own."""

    def __init__(self, text: str, wrap=None):
        self.names = new_world()
        file = f"<random program {abs(hash(text))}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.names)
        self.function = self.names["fn"]
        if wrap is not None:
            self.function = wrap(self.function)

    def call(self, arguments, seed: int, n: int, nudge: int = 0) -> Outcome:
        """Return the outcome of a call; with a nudge, for arguments with other last bits."""
        args = [x.make(seed * 10 + i, n) for i, x in enumerate(arguments)]
        if nudge:
            generator = torch.Generator().manual_seed(nudge)
            for x in args:
                nudge_bits(x.detach(), generator)
        for name in ("NORM", "GATE"):
            self.names[name].zero_grad()
        return Outcome(self.function, self.names, args, n)


def nudge_bits(x: torch.Tensor, generator) -> None:
    """Change the numbers of a tensor in their last bits."""
    if not (x.is_floating_point() or x.is_complex()) or x.numel() == 0:
        return
    part = torch.view_as_real(x) if x.is_complex() else x
    eps = torch.finfo(part.dtype).eps
    factor = 1 + eps * torch.randint(-1, 2, (1,), generator=generator).item()
    if 0 in part.stride() or len(set(part.stride())) < part.ndim:
        return
    noise = torch.randint(-1, 2, part.shape, generator=generator).to(part.dtype)
    part.copy_(part * factor * (1 + eps * noise))


def compiled(function):
    """The function through our backend."""
    return torch.compile(function, backend=glasshouse, options={"strict": True})


def compiled_by_pytorch(function):
    """The same through PyTorch's own machinery, its operators eager."""
    return torch.compile(function, backend="aot_eager_decomp_partition")


def differences(text: str, arguments, wrap=compiled, calls=CALLS) -> dict[str, str]:
    """How a program differs between eager and compiled, by what differs in the first call that
    does."""
    torch._dynamo.reset()
    with quiet():
        plain, ours = World(text), World(text, wrap)
        for number, (seed, n) in enumerate(calls):
            want, got = plain.call(arguments, seed, n), ours.call(arguments, seed, n)
            result = compare(want, got, partial(nudged, text, arguments, seed, n), draws(text))
            if result:
                return {name: f"call {number}: {what}" for name, what in result.items()}
            if want.error is not None:
                plain, ours = World(text), World(text, wrap)
    return {}


def our_differences(text: str, arguments, calls=CALLS) -> dict[str, str]:
    """The differences that PyTorch's own machinery, without our backend, does not make."""
    result = differences(text, arguments, calls=calls)
    if not result or any(part in " ".join(result.values()) for part in PYTORCHS):
        return {}
    theirs = differences(text, arguments, compiled_by_pytorch, calls)
    return {name: what for name, what in result.items() if name not in theirs}


def nudged(text: str, arguments, seed: int, n: int) -> list[Outcome]:
    return [World(text).call(arguments, seed, n, nudge) for nudge in range(1, NUDGES + 1)]


def draws(text: str) -> bool:
    """Whether values may be drawn, which other generators than PyTorch's draw differently."""
    return any(word in text for word in DRAWS)


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compare(want: Outcome, got: Outcome, nudges, is_random: bool) -> dict[str, str]:
    """Return the differences by name."""
    if want.error is not None or got.error is not None:
        if type(want.error) is type(got.error):
            return {}
        if want.error is not None and "backward" in str(want.error):  # eager alone checks versions
            return {}
        return {"error": f"error: {told(got.error)}, eager's {told(want.error)}"}
    results = {
        name: f"{name} {got.others.get(name)}, eager's {what}"
        for name, what in want.others.items()
        if what != got.others.get(name, "missing") and not is_no_gradient(name, what, got)
    }
    runs: list[Outcome] = []
    for name, x in want.tensors.items():
        y = got.tensors.get(name)
        if is_random or y is None or y.shape != x.shape or y.dtype != x.dtype or is_close(y, x):
            continue
        runs = runs or nudges()
        if not within_moves(y, x, [run.tensors.get(name) for run in runs]):
            results[name] = f"{name} {list_of(y, x)}, eager's {list_of(x, y)}"
    return results


def is_no_gradient(name: str, what, got: Outcome) -> bool:
    """Whether eager has no gradient where ours is 0, as AOTAutograd makes it."""
    return name.endswith(".grad") and what is None and not got.tensors[name].any()


def told(error) -> str:
    return "none" if error is None else f"{type(error).__name__}: {str(error)[:200]}"


def list_of(x: torch.Tensor, other: torch.Tensor) -> str:
    """Some elements of a tensor that differ from those of another."""
    bound = tolerance(x)
    return str(x[~torch.isclose(x, other, bound, bound, equal_nan=True)][:8].tolist())


def tolerance(x: torch.Tensor) -> float:
    narrow = torch.finfo(x.dtype).dtype if x.is_complex() else x.dtype
    narrow = getattr(torch, narrow) if isinstance(narrow, str) else narrow
    return TOLERANCES.get(narrow, 0.0)


def is_close(x: torch.Tensor, y: torch.Tensor) -> bool:
    bound = tolerance(y)
    return torch.allclose(x, y, bound, bound, equal_nan=True)


def within_moves(got, want, moved: list) -> bool:
    """Whether each element that differs is one that moves when arguments do in their last bits."""
    moved = [x for x in moved if x is not None and x.shape == want.shape and x.dtype == want.dtype]
    bound = tolerance(want)
    near = torch.isclose(got, want, bound, bound, equal_nan=True)
    for x in moved:
        near |= ~torch.isclose(x, want, bound / 8, bound / 8, equal_nan=True)
    return bool(near.all())


def minimise(program: TorchProgram, fails) -> tuple[list[str], list[str]]:
    """Few lines and results with which a program still fails."""
    count = len(program.arguments)
    lines = list(program.lines)

    def still(lines, results) -> bool:
        return fails(text_of(lines, count, results))

    results = fewest(program.results, lambda results: still(lines, results))
    return fewest(lines, lambda lines: still(lines, results)), results


def check_seed(seed: int, small: bool = False) -> list[str]:
    """How the program of a seed differs because of us; with what it does."""
    with quiet():
        program = TorchProgram(seed)
    calls = CALLS if seed % 3 == 0 else CALLS[:2]
    result = our_differences(program.text, program.arguments, calls)
    if not result:
        return []
    of_results = [name for name in result if name.startswith("result")]
    if not program.chained and of_results:
        return [told_of_line(program, name, result[name]) for name in of_results]
    text = program.text
    if small:
        kinds = set(map(kind_of, result.values()))

        def fails(text: str) -> bool:
            others = differences(text, program.arguments, calls=calls).values()
            return not kinds.isdisjoint(map(kind_of, others))

        lines, results = minimise(program, fails)
        text = text_of(lines, len(program.arguments), results)
        result = our_differences(text, program.arguments, calls) or result
    return [f"{next(iter(result.values()))}\n{text}    {program.arguments}"]


def told_of_line(program: TorchProgram, name: str, what: str) -> str:
    """A difference of a program whose lines read arguments alone, with its line."""
    result = program.results[int(name.partition("[")[2].partition("]")[0])].partition("[")[0]
    line = next(line for line in program.lines if f"{result} = " in line)
    read = {f"x{i}": x for i, x in enumerate(program.arguments) if re.search(rf"\bx{i}\b", line)}
    return f"{what}\n    {line}\n    {read}"


def kind_of(result: str) -> str:
    """Return the part of a difference that tells it from others."""
    where = result.partition(": ")[2]
    if where.startswith("error"):
        return "error"
    return "layout" if " lies (" in where or " is (" in where else "values"
