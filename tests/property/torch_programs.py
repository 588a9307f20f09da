"""Random programs of PyTorch calls on tensors of many dtypes, shapes and layouts.

A seed gives the same program always: a function's text, and what its arguments are. Each statement
was tried eagerly when the program was made, so that most programs run to their end."""

import random
import re
import warnings

import torch
from torch_templates import (
    DTYPES,
    GROUPS,
    LAYOUTS,
    PRELUDE,
    REGIONS,
    SHAPES,
    WORDS,
)

HOLE = re.compile(r"<(\w+)>")
NDIM = {"vector": 1, "matrix": 2, "sequence": 3, "image": 4, "volume": 5}
MOST_ELEMENTS = 4000
TRIES = 40  # to find a statement that runs


def is_real(x) -> bool:
    return not x.dtype.is_complex


def is_float(x) -> bool:
    return x.dtype.is_floating_point


def is_int(x) -> bool:
    return not is_float(x) and is_real(x) and x.dtype != torch.bool


KINDS = {  # what may stand in a hole
    "any": lambda x: True,
    "real": is_real,
    "float": is_float,
    "int": is_int,
    "bool": lambda x: x.dtype == torch.bool,
    "complex": lambda x: x.dtype.is_complex,
    "batch": lambda x: is_float(x) and x.ndim >= 2,
    **{name: (lambda x, n=n: is_float(x) and x.ndim == n) for name, n in NDIM.items()},
}


def fits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors broadcast."""
    pairs = zip(reversed(x.shape), reversed(y.shape))
    return all(n == m or 1 in (n, m) for n, m in pairs)


class Argument:
    """How an argument is made: the same for the same seed and N."""

    def __init__(self, rng: random.Random, shapes: list[str], chained: bool):
        self.shape, self.layout = rng.choice(shapes), rng.choice(LAYOUTS)
        self.dtype = rng.choice(DTYPES)
        self.specials = rng.random() < (0.15 if chained else 0.4)
        self.requires_grad = rng.random() < 0.6 and "float" in self.dtype

    def __repr__(self) -> str:
        words = [self.dtype, self.shape, self.layout]
        words += ["with NaN and inf"] * self.specials + ["requires grad"] * self.requires_grad
        return " ".join(words)

    def make(self, seed: int, n: int) -> torch.Tensor:
        """The argument of a call."""
        shape, dtype = eval(self.shape, {"N": n}), getattr(torch, self.dtype)
        generator = torch.Generator().manual_seed(seed)

        def numbers(*shape):
            whole = torch.randint(-5, 6, shape, generator=generator)
            if not dtype.is_floating_point and not dtype.is_complex:
                return (whole > 0 if dtype is torch.bool else whole).to(dtype)
            x = (whole / 2 + torch.randint(-3, 4, shape, generator=generator) / 64).to(dtype)
            if self.specials and x.numel():
                chosen = torch.randint(0, x.numel(), (3,), generator=generator)
                ends = torch.tensor([torch.nan, torch.inf, -0.0], dtype=dtype)
                x.view(-1)[chosen] = ends[torch.randperm(3, generator=generator)]
            return x

        return laid_out(numbers, shape, self.layout).requires_grad_(self.requires_grad)


def laid_out(numbers, shape, layout: str) -> torch.Tensor:
    """Numbers of a shape that lie in memory as a layout says."""
    if layout == "transposed" and len(shape) >= 2:
        return numbers(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    if layout == "reversed" and shape:
        return numbers(*reversed(shape)).permute(*reversed(range(len(shape))))
    if layout == "gaps" and shape:
        return numbers(*shape[:-1], 2 * shape[-1])[..., ::2]
    if layout == "expanded" and shape:
        return numbers(1, *shape[1:]).expand(shape)
    if layout == "last" and len(shape) == 4:
        return numbers(*shape).contiguous(memory_format=torch.channels_last)
    if layout == "offset" and shape:
        return numbers(shape[0] + 1, *shape[1:])[1:]
    if layout == "window" and len(shape) == 2 and 0 not in shape:
        return numbers(sum(shape) + 1).as_strided(shape, (1, 1))
    return numbers(*shape)


class TorchProgram:
    """A random function `fn(N, x0, x1, …)`, as lines of text, with what its arguments are."""

    def __init__(self, seed: int):
        self.random = random.Random(f"torch program {seed}")
        self.seed = seed
        self.chained = self.random.random() < 0.5  # or each statement reads arguments alone
        rows = self.random.sample(SHAPES, 1 if self.chained else 2)
        shapes = re.findall(r"\(.*?\)", "".join(rows))
        count = self.random.choice([2, 3, 3, 4] if self.chained else [6])
        self.arguments = [Argument(self.random, shapes, self.chained) for _ in range(count)]
        self.lines: list[str] = []
        self.results: list[str] = []
        self.world = new_world()
        self.world["N"] = 3
        self.names = [f"x{i}" for i in range(count)]
        for i, argument in enumerate(self.arguments):
            self.world[f"x{i}"] = argument.make(seed * 10 + i, 3)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(self.random.choice([4, 6, 8, 12, 16, 24]) if self.chained else 60):
                if not self.add_statement():
                    break
        self.choose_results()
        del self.world

    def choose_results(self) -> None:
        """All results that no later line reads, and some of the others."""
        if not self.chained:
            return
        text = "\n".join(self.lines)
        unused = [
            x for x in self.results if len(re.findall(rf"\b{x.partition('[')[0]}\b", text)) < 2
        ]
        self.results = [x for x in self.results if x in unused or self.random.random() < 0.3]

    @property
    def text(self) -> str:
        """The function."""
        return text_of(self.lines, len(self.arguments), self.results)

    # -- statements ----------------------------------------------------------------------------

    def add_statement(self) -> bool:
        """A statement that runs, or now and then one that raises: then there are no more."""
        raises = self.chained and self.random.random() < 0.01
        for _ in range(TRIES):
            groups = [name for name in GROUPS if self.chained or name != "writes"]
            weights = [GROUPS[name][1] for name in groups]
            (group,) = self.random.choices(groups, weights)
            line = self.fill(self.random.choice(GROUPS[group][0]))
            if line is None:
                continue
            name = None
            if group != "writes":
                name = f"v{len(self.lines)}"
                line = f"{name} = {line}"
            if self.random.random() < 0.06:
                line = f"{self.random.choice(REGIONS)}\n    {line}"
            taken = self.is_taken(line, name)
            if taken or raises:
                self.lines.append(line)
                return taken
        return False

    def is_taken(self, line: str, name: str | None) -> bool:
        """Whether a line runs; then its result is there."""
        try:
            exec(line, self.world)
        except Exception:
            return False
        if name is None:
            return True
        result = self.world.get(name)
        if isinstance(result, (tuple, list)):
            self.world[name] = tuple(result)
            outputs = {
                f"{name}[{i}]": x for i, x in enumerate(result) if isinstance(x, torch.Tensor)
            }
        else:
            outputs = {name: result}
        if not outputs or not all(map(is_usable, outputs.values())):
            return False
        self.results += list(outputs)[:2]
        if self.chained:
            self.names += [x for x in list(outputs)[:2] if isinstance(outputs[x], torch.Tensor)]
        return True

    def fill(self, template: str) -> str | None:
        """A template with its holes filled; None where there is nothing to fill one with."""
        first: list[tuple[str, torch.Tensor]] = []
        axis = None

        def filled(hole) -> str:
            nonlocal axis
            kind = hole[1]
            if kind in WORDS:
                return self.random.choice(WORDS[kind])
            if kind == "1":
                return first[0][0]
            if kind == "axis1":
                return axis
            if kind in ("axis", "axes"):
                ndim = max(1, first[0][1].ndim if first else 2)
                axis = str(self.random.randrange(-ndim, ndim))
                if kind == "axes" and ndim > 1:
                    return str(tuple(self.random.sample(range(ndim), 2)))
                return axis
            name = self.pick(kind, first[0][1] if first else None)
            x = eval(name, self.world)
            first.append((name, x))
            return name

        try:
            return HOLE.sub(filled, template)
        except LookupError:
            return None

    def pick(self, kind: str, like: torch.Tensor | None) -> str:
        """The name of a tensor for a hole.

        Raises: LookupError where there is none
        """
        names = [(name, eval(name, self.world)) for name in self.names[-12:]]
        names = [(name, x) for name, x in names if isinstance(x, torch.Tensor)]
        if kind == "same" and like is not None:
            fitting = [n for n, x in names if x.shape == like.shape and x.dtype == like.dtype]
        elif kind.endswith("like"):
            own = KINDS[kind.removesuffix("like") or "any"]
            fitting = [n for n, x in names if own(x) and (like is None or fits(x, like))]
        else:
            fitting = [n for n, x in names if KINDS[kind](x)]
        if not fitting:
            raise LookupError(kind)
        return self.random.choice(fitting)


def is_usable(x) -> bool:
    if not isinstance(x, torch.Tensor):
        return isinstance(x, (bool, int))
    if x.dtype == torch.complex32:
        return False
    return x.numel() <= MOST_ELEMENTS and x.layout is torch.strided


def new_world() -> dict:
    """The names that a program finds, its modules among them."""
    world: dict = {}
    exec(PRELUDE, world)
    torch.manual_seed(0)
    world["NORM"] = torch.nn.BatchNorm2d(2)
    world["GATE"] = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    return world


def text_of(lines: list[str], arguments: int, results: list[str]) -> str:
    """A function of statements."""
    names = ", ".join(["N", *(f"x{i}" for i in range(arguments))])
    body = [part for line in lines for part in line.splitlines()]
    body.append(f"return ({', '.join(results)},)" if results else "return ()")
    return f"def fn({names}):\n" + "".join(f"    {line}\n" for line in body)
