"""Values that eager refuses are refused by captured graphs too, with the same error."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import nothing, same_story  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402

ROWS = torch.arange(6.0).reshape(2, 3)
ZEROS = torch.zeros(2, 3)
ONES = torch.ones(2)
WHOLE = torch.tensor([7, 8])
FIRST = torch.zeros(2, dtype=torch.long)


def index(*values):
    return torch.tensor(values)


def column(*values):
    return torch.tensor(values)[:, None]


# A function of one tensor, one that eager takes, one that it refuses.
REFUSED = {
    "floor divide": (lambda x: WHOLE // x, index(2, 3), index(2, 0)),
    "remainder": (lambda x: WHOLE % x, index(2, 3), index(2, 0)),
    "fmod": (lambda x: torch.fmod(WHOLE, x), index(2, 3), index(0, 3)),
    "number divided": (lambda x: 7 // x, index(2, 3), index(2, 0)),
    "truncated": (lambda x: torch.div(WHOLE, x, rounding_mode="trunc"), index(2, 3), index(2, 0)),
    "in place": (lambda x: (WHOLE + 0).floor_divide_(x), index(2, 3), index(2, 0)),
    "embedding": (lambda i: F.embedding(i, ROWS), index(0, 1), index(0, -1)),
    "gather": (lambda i: ROWS.gather(1, i), column(0, 1), column(0, -1)),
    "gather from another line": (lambda i: ROWS.gather(1, i), column(0, 1), column(3, 0)),
    "scatter": (lambda i: ZEROS.scatter(1, i, 1.0), column(0, 1), column(3, 0)),
    "scatter_add": (lambda i: ZEROS.scatter_add(1, i, ROWS), column(0, 1), column(0, -1)),
    "scatter_reduce": (
        lambda i: ZEROS.scatter_reduce(1, i, ROWS, "amax"),
        column(0, 1),
        column(3, 0),
    ),
    "index_select": (lambda i: ROWS.index_select(1, i), index(0, 2), index(0, -1)),
    "index_copy": (lambda i: ZEROS.index_copy(0, i, ROWS), index(0, 1), index(0, -1)),
    "index_add": (lambda i: ZEROS.index_add(0, i, ROWS), index(0, 1), index(0, -1)),
    "index": (lambda i: ROWS[0][i], index(0, -3), index(0, -4)),
    "index of another line": (lambda i: ROWS[FIRST, i], index(0, -1), index(3, 0)),
    "index before another line": (lambda i: ROWS[FIRST + 1, i], index(0, -3), index(-4, 0)),
    "index_put": (lambda i: ZEROS.index_put((FIRST, i), ONES), index(0, 1), index(3, 0)),
    "class": (lambda y: F.cross_entropy(ROWS, y), index(0, -100), index(-1, 0)),
    "class of another line": (lambda y: F.cross_entropy(ROWS, y), index(0, 1), index(3, 0)),
    "probability": (
        lambda p: F.binary_cross_entropy(p, ONES),
        torch.tensor([0.0, 1.0]),
        torch.tensor([0.5, 1.5]),
    ),
    "no number": (
        lambda p: F.binary_cross_entropy(p, ONES),
        torch.tensor([0.0, 1.0]),
        torch.tensor([0.5, float("nan")]),
    ),
}


def story(name):
    fn, taken, refused = REFUSED[name]

    def step(x):
        return fn(x + 0) * 2 + 1

    return lambda: (step, lambda i: (refused if i in (2, 4) else taken,), nothing)


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name):
    with flags.override(compile="never"):
        same_story(story(name), compiler="program")


@pytest.mark.parametrize("name", ["index_add_", "scatter_", "_foreach_add_"])
def test_what_wrote_a_part_and_raised_is_not_done_again(name):
    writes = {
        "index_add_": lambda x: x.index_add_(0, index(1, -1), ROWS),
        "scatter_": lambda x: x.scatter_(0, index(1, -1)[:, None], ROWS),
        "_foreach_add_": lambda x: torch._foreach_add_([x[0], x[1, 1:]], [x[1], x[1, :2]]),
    }

    def step(x):
        writes[name](x)
        return x * 2

    same_story(lambda: (step, lambda i: (ROWS + i,), nothing), compiler="eager")


@pytest.mark.parametrize("name", ["index_add_", "scatter_add_", "index_put_"])
def test_index_errors_behind_a_write_are_those_of_pytorch(name):
    writes = {
        "index_add_": lambda x, i: x.index_add_(0, i, ZEROS),
        "scatter_add_": lambda x, i: x.scatter_add_(0, i[:, None], ZEROS),
        "index_put_": lambda x, i: x.index_put_((i,), ZEROS),
    }

    def step(x, i):
        x.mul_(2)  # of zeros, which stay so wherever it ends
        return writes[name](x, i) + 1

    def arguments(number):
        return torch.zeros(2, 3), index(0, 7 if number > 1 else 1)

    with flags.override(compile="never"):
        same_story(lambda: (step, arguments, nothing), compiler="program")


def test_negative_indices_that_eager_takes():
    def fn(x, i):
        return x.index_fill(0, i, 3.0) + 1, x[i] * 2, x.index_put((i,), x[0]) + 1

    with flags.override(compile="never"):
        captured = same_story(
            lambda: (fn, lambda n: (ROWS + n, index(-1, 0)), nothing), compiler="program"
        )
    assert captured.hits


@pytest.mark.parametrize("name", ["embedding", "class of another line", "floor divide"])
def test_what_eager_refuses_compiled(name):
    same_story(story(name), compiler="program")
