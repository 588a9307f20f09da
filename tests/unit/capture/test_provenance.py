"""A value that depends on a number or size that varies varies itself: generated expressions over
numbers, called with changing arguments, give what plain Python gives."""

import itertools
import random

import pytest
from checking import check

import glasshouse as gh

SIZED = [
    "x[:n]", "x[n:]", "gh.arange(n)", "gh.zeros(n)", "gh.roll(x, n)", "gh.concat([x, x[:n]])",
    "x[:n].reshape(-1)", "x[:n].reshape(1, -1)", "gh.ones((n, 2))", "x[:n] * 2",
    "gh.squeeze(x[:n])", "gh.pad(x, (0, n))", "x[: len(x) - n]", "gh.stack([x[:n], x[:n]])",
    "x[: max(n, 2)]",
    "gh.full(n, 3)", "gh.expand_dims(x[:n], 0)", "gh.flip(x[:n])", "gh.repeat(x, n)",
]  # fmt: skip
READ = [
    "{}.shape[0]", "len({})", "{}.shape", "{}.size", "{}.ndim", "[v * 1 for v in {}]", "list({})",
    "sum(v for v in {})", "'big' if {}.shape[0] > 3 else 'small'", "{}.sum() / {}.shape[0]",
    "gh.chunk({}, 2)", "[c.shape for c in gh.chunk({}, n + 1)]", "{} if len({}) % 2 else x",
    "range(len({}))", "[0] * {}.shape[-1]", "{}.shape == (3,)", "tuple({}.shape)", "{}.tolist",
    "str({}.shape[0])", "{}[len({}) // 2 :]", "gh.zeros({}.shape)", "{}.reshape(-1).shape",
    "{}.shape[0] * 1.5", "{}.nbytes", "{}.dtype", "max(len({}), 4)",
]  # fmt: skip
READ.remove("{}.tolist")
EXPRESSIONS = [r.replace("{}", f"({s})") for s, r in itertools.product(SIZED, READ)]
NUMBERS = [(3, 2, 5, 4, 8, 3, 1, 0), (8, 8, 1, 3, 2)]


def vector():
    return gh.arange(1.0, 9.0)


def made(text: str):
    names = {"gh": gh}
    exec(f"def fn(x, n):\n    return {text}\n", names)
    return names["fn"]


def told(fn, *args):
    """The result, tensors as lists, or the exception's type."""
    try:
        result = fn(*args)
    except Exception as error:
        return type(error).__name__

    def plain(value):
        if isinstance(value, gh.Tensor):
            return "tensor", str(value.dtype), value.shape, str(value.tolist())
        if isinstance(value, (list, tuple)):
            return type(value), [plain(v) for v in value]
        return type(value), str(value)

    return plain(result)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("dynamic", [False, True])
def test_expressions_of_numbers(part, dynamic):
    for text in EXPRESSIONS[part::8]:
        fn = made(text)
        for numbers in NUMBERS:
            fast = gh.optimize("eager", dynamic=dynamic)(fn)
            for n in numbers:
                x = vector()
                assert told(fast, x, n) == told(fn, x, n), f"{text}, n = {n} of {numbers}"
        gh.reset()


def test_expressions_of_sizes():
    pick = random.Random(0)
    for text in pick.sample(EXPRESSIONS, 80):
        fn = made(text)
        fast = gh.optimize("eager", dynamic=True)(fn)
        for size in (3, 5, 2, 8, 3):
            x = gh.arange(1.0, 1.0 + size)
            assert told(fast, x, 2) == told(fn, x, 2), f"{text}, size {size}"
        gh.reset()


@pytest.mark.parametrize(
    "text",
    [
        "x.reshape(2, -1)", "x[: len(x)]", "gh.roll(x, n)", "gh.pad(x, (0, n))", "gh.squeeze(x)",
        "gh.swapaxes(x, 0, n % 2)", "x.reshape(x.shape)", "x[:n]", "x[n:]",
        "gh.moveaxis(x, 0, n % 2)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_operation_that_gave_its_argument(text, compiler):
    shapes = [(3, 2), (2, 2), (4, 2), (2, 6), (2, 1)]
    for order in ([1, 0, 2, 3, 4], [0, 1, 2, 4, 3, 1]):
        fn = made(text)
        fast = gh.optimize(compiler)(fn)
        for at, n in zip(order, (2, 0, 1, 0, 3, 2), strict=False):
            x = gh.arange(1.0, 1.0 + shapes[at][0] * shapes[at][1]).reshape(shapes[at])
            assert told(fast, x, n) == told(fn, x, n), f"{text}, {shapes[at]}, {n}"
        gh.reset()


@pytest.mark.filterwarnings("ignore:glasshouse. this writes to a part")
def test_write_to_what_may_be_another_tensor():
    def fn(x, n):
        y = x[:n]
        y[0] = 7.0
        return y.sum(), x.sum()

    fast = gh.optimize("eager")(fn)
    for n in (2, 3, 8, 4, 8, 2):
        assert told(fast, vector(), n) == told(fn, vector(), n)


def test_numbers_of_a_slice():
    import itertools

    def fn(x, n):
        s = slice(1, n, 2)
        return s.start, s.stop, s.step, slice(n).stop, list(itertools.islice([1, 2, 3, 4], n))

    check(fn, sets=[(vector(), n) for n in (2, 3, 1, 4)])


def test_integer_that_does_not_fit():
    def fn(x, n):
        return x + n

    fast = gh.optimize("eager")(fn)
    for n in (1, 100, 200, -5, -500, 127, 128):
        x = gh.asarray([0, -1], dtype=gh.int8)
        assert told(fast, x, n) == told(fn, x, n)


def test_error_for_some_numbers_only():
    def fn(x, n):
        return x.reshape(n, -1)

    fast = gh.optimize("eager")(fn)
    for n in (2, 3, 4, 5, 8, 3, 1):
        assert told(fast, vector(), n) == told(fn, vector(), n)


def test_call_without_arguments_behind_what_may_be_another_tensor():
    def fn(x):
        return x.detach().detach()[:1], gh.is_grad_enabled()

    fast = gh.optimize("eager")(fn)
    for size in (2, 1, 3):
        x = gh.arange(float(size))
        assert told(fast, x) == told(fn, x)
