"""Writes to random chains of views without a name, `x.T[1:].reshape(-1)[2] = 5`, have PyTorch's
meaning, eager and captured. A write to a part with a name gets a warning."""

import random
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.tensor.parts import named_writes

SHAPE = (2, 3, 4)


def shapes_of(rng, shape):
    """A shape of as many elements."""
    size = int(np.prod(shape))
    first = rng.choice([n for n in range(1, size + 1) if size % n == 0])
    return rng.choice([(first, size // first), (size,), (1, size), (first, -1)])


def random_step(rng, shape):
    """The text of a view of a tensor of this shape."""
    ndim = len(shape)
    axis = rng.randrange(ndim)
    other = rng.randrange(ndim)
    start = rng.randrange(shape[axis])
    steps = {
        "index": f"[{', '.join([':'] * axis + [str(start)])}]",
        "slice": f"[{', '.join([':'] * axis + [f'{start}:'])}]",
        "new_axis": "[None]",
        "view": f".view{shapes_of(rng, shape)}",
        "reshape": f".reshape{shapes_of(rng, shape)}",
        "flatten": ".flatten()",
        "ravel": ".ravel()",
        "squeeze": ".squeeze()",
        "unsqueeze": f".unsqueeze({axis})",
        "transpose": f".transpose({axis}, {other})",
        "swapaxes": f".swapaxes({axis}, {other})",
        "permute": f".permute{tuple(rng.sample(range(ndim), ndim))}",
        "movedim": f".movedim({axis}, {other})",
        "narrow": f".narrow({axis}, {start}, {shape[axis] - start})",
        "select": f".select({axis}, {start})",
        "unbind": f".unbind({axis})[{start}]",
        "chunk": f".chunk(2, dim={axis})[0]",
        "split": f".split(1, dim={axis})[{start}]",
        "detach": ".detach()",
        "data": ".data",
    }
    if ndim == 2:
        steps |= {"T": ".T", "t": ".t()"}
    if ndim > 1:
        steps |= {"mT": ".mT", "diagonal": ".diagonal()"}
    return rng.choice(list(steps.values()))


def random_write(seed, torch):
    """The text of a statement that writes to a chain of views which PyTorch accepts."""
    rng = random.Random(seed)
    while True:
        x, chain = torch.zeros(SHAPE), ""
        for _ in range(rng.randint(1, 4)):
            step = random_step(rng, x.shape)
            try:
                x = eval(f"x{step}", {"x": x})
            except RuntimeError:  # such strides have no view
                continue
            chain += step
            if x.ndim == 0 or x.numel() == 0:
                break
        if chain and x.numel():
            ends = [".fill_(7.0)", ".mul_(-2.0)", ".add_(1.5)"]
            if x.ndim:
                ends += [f"[{rng.randrange(x.shape[0])}] = 9.0", "[...] = 3.0", "[0] += 4.0"]
            return f"x{chain}{rng.choice(ends)}"


def writing(seed, torch):
    """The text, and a function of it."""
    text = random_write(seed, torch)
    scope = {}
    exec(f"def write(x):\n    {text}\n", scope)
    return text, scope["write"]


def expected(write, array, torch):
    x = torch.from_numpy(array.copy())
    write(x)
    return x.numpy()


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_chains_of_views_write_as_those_of_pytorch(first):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(first).standard_normal(SHAPE).astype(np.float32)
    for seed in range(first, first + 30):
        text, write = writing(seed, torch)
        x = gh.asarray(array)
        write(x)
        np.testing.assert_array_equal(x.numpy(), expected(write, array, torch), text)


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_captured_chains_write_as_those_of_pytorch(seed):
    torch = pytest.importorskip("torch")
    text, write = writing(seed, torch)

    def doubled(x):
        x = x * 1.0
        write(x)
        return x

    array = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
    captured = gh.optimize(doubled, nopython=True)
    for _ in range(2):
        result = captured(gh.asarray(array)).numpy()
        np.testing.assert_array_equal(result, expected(write, array, torch), text)


def test_a_view_of_all_elements_of_other_sizes():
    """Whose reshape may be the tensor itself."""

    def doubled(x):
        x = gh.concat([x, x]).reshape(-1)
        x *= 2.0
        return x

    captured = gh.optimize(doubled, nopython=True)
    for size in (2, 3, 4, 5):
        assert captured(gh.ones(size)).tolist() == [2.0] * (2 * size)


def bits_of_a_number(x):
    x.view(gh.int32)[0] = 0x40000000


def test_bits_are_written_through_a_view_of_another_dtype():
    x = gh.zeros(2)
    bits_of_a_number(x)
    assert x.tolist() == [2.0, 0.0]


def rows(x):
    for row in x:
        row.fill_(1.0)


def added(x):
    y = x[0]
    y += 1.0


def gates(x):
    first, _ = x.chunk(2)
    first.fill_(1.0)


def transposed(x):
    y = x.T
    y[0] = 2.0


def initialised(x):
    gh.nn.init.ones_(x[0])


NAMED = [rows, added, gates, transposed, initialised]


@pytest.mark.parametrize("write", NAMED)
@pytest.mark.parametrize("captured", [False, True])
def test_a_write_to_a_part_with_a_name_is_told_once(write, captured):
    named_writes.clear()
    x = gh.zeros((2, 3))
    run = gh.optimize(write) if captured else write
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        for _ in range(3):
            run(x)
    assert [(w.filename, w.category) for w in messages] == [(__file__, UserWarning)]
    assert "keeps its contents" in str(messages[0].message) and x.tolist() == [[0.0] * 3] * 2


def copied(x):
    y = x[0].clone()
    y += 1.0


def computed(x):
    y = x[0] * 2.0
    y += 1.0


def bound_again(x):
    x = x.view(-1)
    x[0] = 1.0


def reordered(x):
    y = x.T.reshape(-1)  # PyTorch copies here
    y += 1.0


def reshaped(x):
    y = x.reshape(-1)  # of which PyTorch says that it may be a copy
    y += 1.0


@pytest.mark.parametrize("write", [copied, computed, reordered, reshaped])
def test_what_pytorch_copies_is_not_told_of(write):
    write(gh.zeros((2, 3)))


def test_a_whole_that_nobody_has_is_not_told_of():
    bound_again(gh.zeros((2, 3)) + 1.0)


class Counter:
    def count_(self, x):
        y = x[0]
        y.fill_(1.0)
        return x * 1.0


@pytest.mark.filterwarnings("ignore:glasshouse. this writes to a part")
def test_a_statement_that_calls_captured_code_writes_nothing_back():
    """`counters[0].count_(x)` looks like a write to a part without a name."""

    class Holder:
        count_ = staticmethod(gh.optimize(Counter().count_))

    counters, x = [Holder()], gh.zeros((2, 3))
    for _ in range(3):
        counters[0].count_(x)
        assert x.tolist() == [[0.0] * 3] * 2
