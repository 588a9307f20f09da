"""Runs a function of PyTorch's tensors eagerly and captured, and compares all that it does."""

import contextlib
import copy
import io

import torch

import glasshouse as gh


class Outcome:
    """The outcome of one call: result or exception, printed text, and its arguments after it."""

    def __init__(self, fn, args):
        self.args, self.result, self.error = args, None, None
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                self.result = fn(*args)
            except Exception as error:
                self.error = error
        self.text = text.getvalue()
        self.modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


def assert_same(got, want, where="result", visited=None):
    """Compare tensors with their gradients, modules, optimizers, containers and objects."""
    visited = set() if visited is None else visited
    if id(want) in visited:
        return
    if not isinstance(want, (int, float, str, bool, type(None))):
        visited.add(id(want))
    assert type(got) is type(want), f"{where}: {type(got)} and {type(want)}"
    if isinstance(want, torch.Tensor):
        same = got.dtype == want.dtype and got.stride() == want.stride()
        assert same and got.requires_grad == want.requires_grad, where
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
        if want.is_leaf:
            assert_same(got.grad, want.grad, f"{where}.grad", visited)
    elif isinstance(want, torch.nn.Module):
        names = [*want.state_dict(keep_vars=True)]
        assert names == [*got.state_dict(keep_vars=True)], where
        for name in names:
            mine, theirs = (m.state_dict(keep_vars=True)[name] for m in (got, want))
            assert_same(mine, theirs, f"{where}.{name}", visited)
        assert [m.training for m in got.modules()] == [m.training for m in want.modules()]
    elif isinstance(want, torch.Generator):
        assert torch.equal(got.get_state(), want.get_state()), where
    elif isinstance(want, torch.optim.Optimizer):
        assert_same(got.state_dict(), want.state_dict(), f"{where}.state_dict()", visited)
    elif isinstance(want, dict):
        assert list(got) == list(want), where
        for key in want:
            assert_same(got[key], want[key], f"{where}[{key!r}]", visited)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for i, (a, b) in enumerate(zip(got, want)):
            assert_same(a, b, f"{where}[{i}]", visited)
    elif hasattr(want, "__dict__") and not callable(want):
        assert_same(vars(got), vars(want), f"vars({where})", visited)
    elif not callable(want):
        assert got == want or got != got, where


def same_outcome(fn, *calls, compiler="eager", graphs=None, breaks=None, backward=False):
    """Run fn with the arguments of each call, plainly and captured, and compare. Returns what
    captured. `graphs` and `breaks` say how many there are at most in the end."""
    captured = gh.optimize(compiler)(fn)
    for number, args in enumerate(calls):
        outcomes = []
        for run in (fn, captured):
            torch.manual_seed(number)
            outcomes.append(Outcome(run, copy.deepcopy(args)))
        want, got = outcomes
        if want.error is None and got.error is not None:
            raise got.error
        assert type(got.error) is type(want.error), (got.error, want.error)
        assert str(got.error) == str(want.error)
        assert got.text == want.text
        assert got.modes == want.modes
        assert_same(got.result, want.result)
        assert_same(got.args, want.args, "args")
        if backward and want.error is None:
            for outcome in outcomes:
                loss_of(outcome.result).backward()
            assert_same(got.args, want.args, "args after backward")
    capture = getattr(captured, "capture", None) or captured.__func__.capture
    if graphs is not None:
        assert len(capture.entries) <= graphs, (len(capture.entries), capture.breaks)
    if breaks is not None:
        reasons = [reason for _, reason, _ in capture.breaks]
        assert len(reasons) == len(breaks), reasons
        assert all(part in reason for part, reason in zip(breaks, reasons)), reasons
    return captured


def loss_of(result):
    """A number that depends on each tensor of a result that has a gradient."""
    parts = result if isinstance(result, (list, tuple)) else [result]
    return sum(
        (x.float() ** 2).sum() for x in parts if isinstance(x, torch.Tensor) and x.requires_grad
    )


def same_story(make, calls=5, compiler="eager", reason=None):
    """Tell one story plainly and captured, and compare. `make()` gives a function, what makes the
    arguments of its call of a number, and what shows what else it did. `reason` is part of that of
    a break. Returns what captured."""
    messages = []
    for is_captured in (False, True):
        torch.manual_seed(0)
        fn, arguments, others = make()
        run = gh.optimize(compiler)(fn) if is_captured else fn
        outcomes = []
        for number in range(calls):
            outcomes.append(Outcome(run, arguments(number)))
            outcomes[-1].others = copy.deepcopy(others())
        messages.append(outcomes)
    for number, (want, got) in enumerate(zip(*messages)):
        where = f"call {number}"
        if want.error is None and got.error is not None:
            raise got.error
        assert type(got.error) is type(want.error), (where, got.error, want.error)
        assert str(got.error) == str(want.error), where
        assert got.modes == want.modes, where
        assert_same(got.result, want.result, f"{where}: result")
        assert_same(got.others, want.others, f"{where}: others")
        assert_same(got.args, want.args, f"{where}: args")
    reasons = [reason for _, reason, _ in run.capture.breaks]
    assert reason is None or any(reason in x for x in reasons), reasons
    return run


def nothing():
    """Show nothing beside results and arguments."""
