"""Reads and writes at indices, some of them outside of the axis, some axes without elements: a
result or an error, as in eager."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import embedding  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402


def rows(x, i):
    """Rows to write where the elements of i say, along axis 0."""
    return torch.ones(len(i), *x.shape[1:])


def lines(x, i):
    """Indices as `gather` takes them: the same ones for each column."""
    return i[:, None].expand(-1, x.shape[1])


def gradient_of_rows(x, i):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(embedding(i, x).sum(), x)


CALLS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, j]": lambda x, i: x[i, torch.zeros_like(i)],
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select of a scalar": lambda x, i: x.sum().index_select(0, i),
    "gather": lambda x, i: x.gather(0, lines(x, i)),
    "gather of a column": lambda x, i: x.gather(0, i[:, None]),
    "gather of a scalar": lambda x, i: x.sum().gather(0, i[0]),
    "take": lambda x, i: x.take(i),
    "embedding": lambda x, i: embedding(i, x),
    "gradient of embedding": gradient_of_rows,
    "x[i] = 1": lambda x, i: x.index_put((i,), torch.tensor(1.0)),
    "x[i] += 1": lambda x, i: x.index_put((i,), rows(x, i), accumulate=True),
    "index_add": lambda x, i: x.index_add(0, i, rows(x, i)),
    "index_copy": lambda x, i: x.index_copy(0, i, rows(x, i)),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "scatter": lambda x, i: x.scatter(0, lines(x, i), rows(x, i)),
    "scatter of a number": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, lines(x, i), rows(x, i)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, lines(x, i), rows(x, i), "amax"),
}
INDICES = ([2, 1], [0, 3], [-1, 0], [0, -4])


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


KINDS = [("always", (0, 4)), ("always", (3, 0)), ("always", (3, 4)), ("never", (0, 4))]


@pytest.mark.parametrize("compile, shape", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_indices_inside_and_outside(name, compile, shape):
    function, x = CALLS[name], torch.rand(shape)
    compiled = torch.compile(function, backend=glasshouse, dynamic=False)
    for i in map(torch.tensor, INDICES):
        expected = outcome(function, x, i)
        with flags.override(compile=compile):
            got = outcome(compiled, x, i)
        if isinstance(expected, type) or isinstance(got, type):
            assert isinstance(expected, type) and isinstance(got, type), (i, got, expected)
        else:
            torch.testing.assert_close(got, expected)
