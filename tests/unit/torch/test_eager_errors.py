"""Graphs that write to what they are given, and raise: eager's error, and what eager wrote."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402
from glasshouse.torch.lowering import variant  # noqa: E402


def takes_a_row(x, i, _):
    x.mul_(2)
    row = x[i]
    x.add_(1)
    return row


def factors_a_matrix(x, i, _):
    x.add_(1)
    return torch.linalg.cholesky(x * i)


def labels_behind_a_norm(x, i, norm):
    return F.cross_entropy(norm(x * 1), i.expand(3))


def looks_up_what_was_written(x, i, _):
    x[0].fill_(7)
    return F.embedding(i, x), x.t().mul_(2)


FUNCTIONS = [takes_a_row, factors_a_matrix, labels_behind_a_norm, looks_up_what_was_written]


def story(function, grad: bool) -> list:
    """Return what calls give, raise and write; the second and the fourth are refused."""
    messages, norm = [], torch.nn.BatchNorm1d(3)
    with torch.set_grad_enabled(grad):
        for i in (1, -7, 2, 9, 1):
            x, result = torch.eye(3), None
            try:
                result = function(x, torch.tensor([i]), norm)
            except Exception as error:
                result = type(error), str(error)
            messages.append((result, x, dict(norm.state_dict())))
            messages[-1] = torch.utils._pytree.tree_map(copied, messages[-1])
    return messages


def assert_same(got: list, wanted: list) -> None:
    for (result, *written), (expected, *expected_written) in zip(got, wanted, strict=True):
        torch.testing.assert_close(written, expected_written)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            assert result == expected
        else:
            torch.testing.assert_close(result, expected)


def copied(x):
    return x.detach().clone() if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize("compiles", ["never", "always"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_eager_writes_before_it_raises_is_written(function, grad, compiles):
    with flags.override(compile=compiles):
        got = story(torch.compile(function, backend=glasshouse), grad)
    assert_same(got, story(function, grad))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_errors_of_the_compiler_are_told_as_they_are():
    def fn(x):
        x.add_(1)
        return x.chalf() * 2

    with pytest.raises(Exception, match="expected a dtype that Glasshouse has"):
        torch.compile(fn, backend=glasshouse, options={"strict": True})(torch.ones(2))


VARIANTS = {"never": variant.ReferenceVariant, "always": variant.CompiledVariant}


@pytest.fixture(params=VARIANTS)
def fault(request, monkeypatch):
    """An error of our own in what runs a graph."""

    def fail(self, args):
        raise AttributeError("a part that is not there")

    monkeypatch.setattr(VARIANTS[request.param], "run", fail)
    with flags.override(compile=request.param):
        yield


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_fault_of_ours_is_one_warning_that_names_it(function, fault):
    expected = story(function, False)
    with pytest.warns(UserWarning) as caught:
        got = story(torch.compile(function, backend=glasshouse), False)
    assert_same(got, expected)
    (message,) = [str(x.message) for x in caught]
    assert "AttributeError('a part that is not there') at test_eager_errors.py:" in message
    assert "'strict': True" in message


@pytest.mark.parametrize("by_flag", [False, True])
def test_strict_raises_a_fault_of_ours_and_eagers_errors_as_they_are(by_flag, fault):
    call = torch.compile(takes_a_row, backend=glasshouse, options={"strict": not by_flag})
    with flags.override(strict=by_flag):
        with pytest.raises(AttributeError, match="a part that is not there"):
            call(torch.eye(3), torch.tensor([1]), None)
        with pytest.raises(IndexError, match="out of bounds"):
            call(torch.eye(3), torch.tensor([7]), None)
