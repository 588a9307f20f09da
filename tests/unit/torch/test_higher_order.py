"""Operators on functions: conditions, loops, regions, checkpoints that draw, custom ones that
write."""

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops import associative_scan, scan, while_loop  # noqa: E402
from torch._higher_order_ops.map import map as map_rows  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from glasshouse.base import BackendError  # noqa: E402
from glasshouse.base.flags import flags, having  # noqa: E402
from glasshouse.torch.backend import runtime  # noqa: E402
from glasshouse.torch.backend.runtime import TorchGraphProgram  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STRICT = {"backend": "glasshouse", "options": {"strict": True}}


@torch.compiler.nested_compile_region
def region(x):
    return (x.sin() * 2).t()


def condition(x):
    return torch.cond(x.sum() > 3, lambda x: x.sin() @ x, lambda x: x.cos() * 2, (x,))


def loop(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


def scanned(x):
    carry, rows = scan(lambda c, row: (c + row, c * row), torch.zeros(4), x)
    return carry + rows


def associative(x):
    return associative_scan(lambda a, b: a + b * 2, x, 0, combine_mode="generic")


def mapped(x):
    return map_rows(lambda row, y: row.sin() + y, x, torch.ones(4))


def attention(x):
    from torch.nn.attention.flex_attention import flex_attention

    q = x.reshape(1, 1, 4, 4)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i - j)


def called_twice(x):
    return region(x) + region(x * 3)


def conditions_that_differ(x):
    first = torch.cond(x.sum() > 3, lambda x: x + 1, lambda x: x + 2, (x,))
    return first, torch.cond(x.sum() > 3, lambda x: x + 3, lambda x: x + 4, (x,))


@torch.library.custom_op("glasshouse_tests::add_to", mutates_args={"x"})
def add_to(x: torch.Tensor, k: int) -> torch.Tensor:
    x.add_(k)
    return x * 2


@add_to.register_fake
def add_to_fake(x, k):
    return torch.empty_like(x)


@torch.library.custom_op("glasshouse_tests::add_to_all", mutates_args={"x", "others"})
def add_to_all(x: torch.Tensor, others: list[torch.Tensor]) -> None:
    x.add_(1)
    others[0].mul_(3)


def writes_a_value(x):
    y = x * 2
    return add_to(y, 3), y


def writes_several(x):
    y, z = x.cos(), x * 3
    add_to_all(y[1:], [z, x + 1])
    return y, z


FUNCTIONS = (
    condition,
    loop,
    scanned,
    associative,
    mapped,
    attention,
    called_twice,
    conditions_that_differ,
    writes_a_value,
    writes_several,
)
WITHOUT_GRADIENTS = (loop, attention, writes_a_value, writes_several)  # in PyTorch itself


def close(mine, theirs):
    if isinstance(theirs, tuple):
        return all(map(close, mine, theirs))
    return mine.stride() == theirs.stride() and torch.allclose(mine, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("shift", [0.0, -2.0])
def test_compiled_as_eager(fn, shift):
    x = torch.rand(4, 4) + shift
    compiled = torch.compile(fn, fullgraph=True, **STRICT)
    assert close(compiled(x), fn(x))
    assert close(compiled(x + 1), fn(x + 1))


@pytest.mark.slow
@pytest.mark.parametrize("fn", [fn for fn in FUNCTIONS if fn not in WITHOUT_GRADIENTS])
def test_gradients_as_eager(fn):
    x = torch.rand(4, 4, requires_grad=True)
    gradients = []
    for called in (torch.compile(fn, fullgraph=True, **STRICT), fn):
        result = called(x)
        parts = result if isinstance(result, tuple) else (result,)
        gradients += torch.autograd.grad(sum((part**2).sum() for part in parts), x)
    assert torch.allclose(*gradients, 1e-4, 1e-5)


def test_graphs_of_branches_are_programs(monkeypatch):
    """One Program for the graph, and one for the branch that is taken."""
    programs, run = set(), TorchGraphProgram.run

    def noted(self, args, threads):
        programs.add(self)
        return run(self, args, threads)

    monkeypatch.setattr(TorchGraphProgram, "run", noted)
    torch.compile(condition, **STRICT)(torch.rand(4, 4))
    assert len(programs) == 2


@pytest.mark.parametrize("fn", [condition, mapped, attention])
def test_strict_names_the_operator(fn):
    with having(flags, strict=True), pytest.raises(Exception, match="operator on functions"):
        torch.compile(fn, **STRICT)(torch.rand(4, 4))
    assert issubclass(BackendError, Exception)


# -- draws in checkpoints ----------------------------------------------------------------------

DRAWS = {
    "native_dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "rand_like": lambda x: x * torch.rand_like(x),
    "rand": lambda x: x * torch.rand(x.shape),
    "randn": lambda x: x * torch.randn(x.shape, dtype=torch.float64).float(),
    "bernoulli": lambda x: x * torch.bernoulli(x * 0.5),
    "uniform": lambda x: x * torch.empty(x.shape).uniform_(1, 2),
    "randint": lambda x: x * torch.randint(1, 5, x.shape),
}


def squares(draw):
    """A function of ones whose gradient is twice its result, if both passes draw the same."""
    return lambda x: checkpoint(lambda x: draw(x) ** 2, x, use_reentrant=False)


def draws_are_the_same(compiled):
    x, before = torch.ones(5, 7, requires_grad=True), None
    for _ in range(2):
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.allclose(gradient, 2 * y)
        assert before is None or not torch.equal(y, before)
        before = y


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_checkpoint_draws_the_same_again(draw):
    draws_are_the_same(torch.compile(squares(draw), fullgraph=True, **STRICT))


@pytest.mark.parametrize("left", ["forward", "backward"])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_also_where_one_pass_is_left_to_pytorch(draw, left, monkeypatch):
    make = runtime.make_variant

    def refuses(source, inputs, phase, *rest):
        if phase == left:
            raise LookupError("none of ours")
        return make(source, inputs, phase, *rest)

    monkeypatch.setattr(runtime, "make_variant", refuses)
    draws_are_the_same(torch.compile(squares(draw), backend="glasshouse"))


def test_what_a_checkpoint_keeps_is_a_key_and_its_input():
    kept = []
    x = torch.ones(64, 65, requires_grad=True)
    compiled = torch.compile(squares(DRAWS["native_dropout"]), **STRICT)
    y = compiled(x)
    kept = [t for t in y.grad_fn.saved_tensors if t.data_ptr() != x.data_ptr()]
    assert sum(t.nbytes for t in kept) == 16


def test_inverse_transforms_of_a_batch():
    window = torch.hann_window(16)
    spectrum = torch.stft(torch.rand(2, 64), 16, window=window, return_complex=True)
    inverse = torch.compile(lambda s: torch.istft(s, 16, window=window), **STRICT)
    assert torch.allclose(inverse(spectrum), torch.istft(spectrum, 16, window=window), atol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda n: torch.full((3,), n),
        lambda n: n * 2,
        lambda n: torch.arange(n),
        lambda n: (torch.rand(3) >= 0, n),
    ],
)
def test_graphs_without_tensors(fn):
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(fn, fullgraph=True, dynamic=dynamic, **STRICT)
        assert repr(compiled(5)) == repr(fn(5))
