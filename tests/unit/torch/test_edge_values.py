"""Values at which formulas end: NaN, infinities, negative zero, and the least and largest numbers.
What eager gives there, our backend gives, by references and by kernels."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402

NAN, INF = float("nan"), float("inf")
NUMBERS = [INF, -INF, NAN, 0.0, -0.0, 2.0, -2.0, 7.5, 1e30, -1e-30]


def every_pair():
    x = torch.tensor(NUMBERS)
    return torch.meshgrid(x, x, indexing="ij")


def ends():
    return (torch.tensor(NUMBERS),)


CASES = {  # a function, and what makes its arguments
    "floor_divide": (lambda x, y: x.detach() // y.detach(), every_pair),
    "floor_divide of bfloat16": (
        lambda x, y: x.detach().bfloat16() // y.detach().bfloat16(),
        every_pair,
    ),
    "divided by a number": (lambda x: [x.detach() // INF, x.detach() // -2], ends),
    "number divided": (lambda x: 3 // x.detach(), ends),
    "div, rounded down": (lambda x, y: torch.div(x, y, rounding_mode="floor"), every_pair),
    "lerp": (lambda x, y: [torch.lerp(x, y, w) for w in (0.0, 0.3, 0.5, 0.7, 1.0)], every_pair),
    "lerp by a tensor": (lambda x, y: torch.lerp(x, y, y), every_pair),
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, reduction="none"), every_pair),
    "softmax of single numbers": (
        lambda x: [part for n in x for part in (F.softmax(n, -1), F.log_softmax(n, 0))],
        ends,
    ),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.5), every_pair),
}


def outcome(function, arguments):
    """Results and gradients, with gradients that are not all alike."""
    arguments = [x.requires_grad_(x.is_floating_point()) for x in arguments]
    results = function(*arguments)
    flat = [results] if isinstance(results, torch.Tensor) else list(results)
    tracked = [x for x in flat if x.requires_grad]
    if tracked:
        sum((x.double() * (i + 1)).sum() for i, x in enumerate(tracked)).backward()
    return [x.detach() for x in flat], [x.grad for x in arguments]


@pytest.mark.parametrize("name", CASES)
def test_ends(name):
    function, arguments = CASES[name]
    with flags.override(compile="never"):
        got = outcome(torch.compile(function, backend=glasshouse), arguments())
    torch.testing.assert_close(got, outcome(function, arguments()), equal_nan=True)


DIVISIONS = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "rounded towards 0": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "uint8": lambda x, y: x.to(torch.uint8) // y.to(torch.uint8),
    "by a number": lambda x, y: x // 0 + y,
    "of a number": lambda x, y: x + 3 % y,
}


@pytest.mark.parametrize("compile", ["never", "always"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_whole_numbers_over_zero_are_an_error(name, compile):
    function, x = DIVISIONS[name], torch.tensor([5, -7, 0])
    with flags.override(compile=compile):
        compiled = torch.compile(function, backend=glasshouse)
        for y in (torch.tensor([2, 0, 3]), torch.tensor(0)):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(x, y)
        if name != "by a number":
            for y in (torch.tensor([2, -1, 3]), torch.tensor(2)):
                torch.testing.assert_close(compiled(x, y), function(x, y))
        nothing = torch.tensor([], dtype=torch.int64)
        torch.testing.assert_close(compiled(nothing, nothing), function(nothing, nothing))


@pytest.mark.slow
def test_ends_in_kernels():
    """All cases as one graph."""

    def every_case(*arguments):
        inputs, results = list(arguments), []
        for function, make in CASES.values():
            own, inputs = inputs[: counts[make]], inputs[counts[make] :]
            result = function(*own)
            results += [result] if isinstance(result, torch.Tensor) else result
        return results

    def arguments():
        return [x for _, make in CASES.values() for x in make()]

    counts = {make: len(make()) for _, make in CASES.values()}
    got = outcome(torch.compile(every_case, backend=glasshouse), arguments())
    torch.testing.assert_close(got, outcome(every_case, arguments()), equal_nan=True)


RANGES = [(0, 2.5), (0.5, 3), (0.5, 3.5), (1, 7.5, 2.5), (0, 5, 2), (5, 0, -1.5), (0.9, 4.1, 0.7)]
RANGE_DTYPES = [torch.int64, torch.int32, torch.uint8, torch.float32, None]


def ranges_of(dtype):
    """The ranges that can be traced: PyTorch's versions refuse other ones."""
    for numbers in RANGES:
        with contextlib.suppress(RuntimeError, ValueError):
            torch.arange(*numbers, dtype=dtype, device="meta")
            yield numbers


@pytest.mark.parametrize("dtype", RANGE_DTYPES, ids=str)
def test_arange_between_whole_numbers(dtype):
    wanted = list(ranges_of(dtype))

    def make():
        return [torch.arange(*numbers, dtype=dtype) for numbers in wanted]

    with flags.override(strict=True):
        result = torch.compile(make, backend=glasshouse)()
    for numbers, x, eager in zip(wanted, result, make(), strict=True):
        assert x.dtype == eager.dtype and x.tolist() == pytest.approx(eager.tolist()), numbers


@pytest.mark.parametrize("compiles", ["never", "always"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_max_pooling_of_integers(dtype, compiles):
    def pool(x, y):
        options = {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}
        return F.max_pool2d(x, **options), F.max_pool3d(y, **options)

    info = torch.iinfo(dtype)
    numbers = torch.tensor([info.min, info.min, info.min, info.max, 0], dtype=dtype)
    x = numbers[torch.randint(5, (2, 2, 7, 8), generator=torch.manual_seed(0))]
    with flags.override(compile=compiles, strict=True):
        got = torch.compile(pool, backend=glasshouse, options={"strict": True})(x, x[None])
    for ours, eager in zip(got, pool(x, x[None]), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
