"""Functions of PyTorch's tensors, captured by our own frame hook, do what they do in eager."""

import contextlib
import dataclasses
import operator
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import same_outcome  # noqa: E402

import glasshouse as gh  # noqa: E402

X = torch.linspace(-2, 2, 12).reshape(3, 4)
Y = torch.linspace(0.5, 3, 12).reshape(3, 4)
CALLS = [(X, Y), (X + 1, Y), (-X, Y)]
SCALE = 3.0


class Point(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Pair:
    one: object
    two: object


class Box:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Box(self.value + other.value)

    @property
    def doubled(self):
        return self.value * 2


# Each of these is captured in one graph.
def operators(x, y):
    return x + y, x - y, x * y, x / y, x // y, x % y, x**2, -x, abs(x), x @ y.T, 2 - x, 1 / y


def comparisons(x, y):
    return x < y, x <= y, x > y, x >= y, x == y, x != y, ~(x < y), (x < y) & (x > 0)


def methods(x, y):
    return x.sum(), x.mean(dim=1), x.view(-1), x.t().contiguous(), x.clamp(min=0).to(torch.float64)


def functions(x, y):
    return (
        torch.cat([x, y]),
        torch.stack((x, y), dim=1),
        torch.where(x > 0, x, y),
        torch.einsum("ij,kj->ik", x, y),
    )


def activations(x, y):
    return (
        F.relu(x),
        F.gelu(x),
        F.softmax(x, dim=-1),
        F.silu(x),
        F.layer_norm(x, (4,)),
        torch.sigmoid(x),
    )


def indexing(x, y):
    return x[0], x[:, 1], x[..., None], x[1:, ::2], x[torch.tensor([0, 2])], x[-1][2]


def named_results(x, y):
    best = torch.max(x, dim=1)
    values, indices = torch.topk(x, 2)
    return best.values + values[:, 0], best.indices, indices, x.sort(dim=1)[0]


def metadata(x, y):
    n, m = x.shape
    return (
        x.reshape(n * m),
        x.size(0) + x.dim() + x.numel(),
        len(x),
        x.dtype,
        x.shape,
        x.is_contiguous(),
    )


def lists_and_dicts(x, y):
    parts = {"a": x}
    parts["b"] = [y, x + 1]
    parts["b"].append(y * 2)
    return parts, [*parts["b"], x]


def comprehensions(x, y):
    return [row * i for i, row in enumerate(x)], {k: v + 1 for k, v in zip("ab", (x, y))}


def unpacked(x, y):
    first, *rest = x.unbind(0)
    a, b = torch.chunk(y, 2, dim=1)
    return first, rest, a * b


def closures(x, y):
    scale = 2.0

    def inner(z):
        nonlocal scale
        scale = scale + 1
        return z * scale

    return inner(x) + inner(y), scale


def generators(x, y):
    def pieces():
        for i in range(3):
            yield x[i] * i
        return

    return torch.stack(list(pieces())), sum(z.sum() for z in (x, y))


def defaults(x, y):
    def scaled(z, by=2.0, *more, plus=1, **others):
        return z * by + plus + len(more) + others.get("k", 0)

    return scaled(x), scaled(y, 3.0, 4, plus=2, k=5)


def loops(x, y):
    total = torch.zeros(4)
    for row in x:
        total = total + row
    n = 0
    while n < 3:
        total, n = total * 2, n + 1
    return total


def objects(x, y):
    result = Box(x) + Box(y)
    return result.doubled, result.value


def records(x, y):
    point, pair = Point(x, y), Pair(x, y)
    return point.a + point[1], pair.one * pair.two, Point(x + 1, 2)


def strings(x, y):
    return f"{x.shape[0]}x{x.shape[1]}", str(x.dtype), "a".join(["b", "c"])


def globals_read(x, y):
    return x * SCALE


def lambdas(x, y):
    add = lambda z: z + 1  # noqa: E731
    return list(map(add, [x, y])), (lambda z: z.sum())(x)


def creation(x, y):
    return (
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.arange(4),
        torch.full((2,), 1.5),
        x.new_zeros(3),
    )


def constant_tensors(x, y):
    return x * torch.tensor(2.0) + torch.tensor([1.0, 2.0, 3.0, 4.0])


def dtypes(x, y):
    return x.double() + y, x.int(), x.half().float(), torch.finfo(x.dtype).eps, x.to(y.dtype)


def ternaries(x, y):
    return x if x.shape[0] == 3 else y, (x if x.dim() > 5 else y) + 1


def isinstances(x, y):
    return x + 1 if isinstance(x, torch.Tensor) and torch.is_tensor(y) else None, type(
        x
    ) is torch.Tensor


def caught(x, y):
    try:
        raise ValueError("no")
    except ValueError as error:
        return x + len(str(error))
    finally:
        y = y + 1


def in_grad_modes(x, y):
    x = x.clone().requires_grad_() if False else x
    with torch.no_grad():
        a = x * 2
    with torch.enable_grad():
        b = x * 3
    with torch.set_grad_enabled(False):
        c = torch.is_grad_enabled()
    return a, b, c, torch.is_grad_enabled()


@torch.no_grad()
def decorated(x, y):
    return x + y


def in_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y.T
    return a, x @ y.T


@contextlib.contextmanager
def entered(log):
    log.append("in")
    yield len(log)
    log.append("out")


def own_context(x, y):
    log = []
    with entered(log) as n:
        x = x + n
    return x, log


def in_place(x, y):
    z = x.clone()
    z.add_(y).mul_(2)
    z[0] = 1.0
    z[:, 1] += 5
    z += y
    return z


def writes_to_argument(x, y):
    x.add_(1)
    y[0, 0] = 7.0
    return x


def writes_to_view(x, y):
    row = x[1]
    row.mul_(10)
    return x.sum(0), row


def out_argument(x, y):
    z = torch.empty_like(x)
    torch.add(x, y, out=z)
    return z


def same_twice(x, y):
    return x, x, y, [x]


def nested_functions(x, y):
    def outer(a):
        def inner(b):
            return b * 2 + a

        return inner(a) + inner(y)

    return outer(x)


def scalars(x, y):
    return x * 2, x + True, x / 3, 2**x, x.pow(0.5).nan_to_num(), torch.add(x, y, alpha=0.5)


def operator_module(x, y):
    return operator.add(x, y), operator.getitem(x, 0), operator.neg(x), operator.matmul(x, y.T)


def number_in_place(x, y):
    total = 0
    total += x
    total *= y
    return total


def random_numbers(x, y):
    return (
        torch.rand(3),
        torch.randn_like(x),
        F.dropout(x, 0.5),
        torch.randint(0, 9, (4,)),
        x.clone().uniform_(),
    )


def linear_algebra(x, y):
    square = x @ y.T + torch.eye(3) * 5
    return torch.linalg.inv(square), torch.linalg.norm(x), square.det(), torch.fft.rfft(x).abs()


def no_tensors_made(x, y):
    return x.shape[0] * 2


def nothing(x, y):
    return None


def aten(x, y):
    return torch.ops.aten.add.Tensor(x, y), torch.ops.aten.mul(x, y)


def grad_none(x, y):
    return x.grad is None, x.requires_grad, x.is_leaf


def asserted(x, y):
    if not (y > 0).all():
        raise AssertionError("positive")
    return x + y


WHOLE = [
    operators, comparisons, methods, functions, activations, indexing, named_results, metadata,
    lists_and_dicts, comprehensions, unpacked, closures, generators, defaults, loops, objects,
    records, strings, globals_read, lambdas, creation, constant_tensors, dtypes, ternaries,
    isinstances, caught, in_grad_modes, decorated, in_autocast, own_context, in_place,
    writes_to_argument, writes_to_view, out_argument, same_twice, nested_functions, scalars,
    operator_module, number_in_place, random_numbers, linear_algebra, no_tensors_made, nothing,
    aten, grad_none, asserted,
]  # fmt: skip


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn):
    captured = same_outcome(fn, *CALLS, graphs=1, breaks=[])
    assert captured.hits == 2


DIFFERENTIABLE = [scalars, functions, activations, indexing, loops, closures, in_place, objects,
                  named_results, in_autocast]  # fmt: skip


@pytest.mark.parametrize("fn", DIFFERENTIABLE, ids=lambda fn: fn.__name__)
def test_differentiated_outside(fn):
    calls = [tuple(t.clone().requires_grad_() for t in args) for args in CALLS]
    captured = same_outcome(fn, *calls, graphs=1, backward=True)
    assert captured.hits == 2


# Each of these is captured in pieces: (function, what the reason of the break says).
def branch_on_value(x, y):
    z = x * 2
    if z.sum() > 0:
        return z + y
    return z - y


def loop_on_value(x, y):
    n = 0
    while x.sum() < 40:
        x, n = x + 1, n + 1
    return x, n


def prints(x, y):
    z = x + y
    print("sum", z.shape)
    return z * 2


def to_list(x, y):
    return (x * 2).tolist(), y + 1


def to_numpy(x, y):
    return (x + 1).numpy().sum() + 1, y + 1


def masks(x, y):
    return x[x > 0] * 2, y + 1


def nonzero(x, y):
    return torch.nonzero(x > 0).shape[0], y + 1


def compared(x, y):
    z = x + 0
    return torch.equal(z, x), torch.allclose(z, y), y + 1


def text_of_tensor(x, y):
    return str(x[0] * 0), y + 1


def number_of_tensor(x, y):
    return int(x.detach().abs().sum()) + 1, float(y.detach().max()) * 2, y + 1


def sizes_by_value(x, y):
    n = (x[0, 0] * 0 + 2).int()
    return torch.zeros(n), y[:n], y + 1


def counted_by_value(x, y):
    n = x.shape[0] + (x[0, 0] > 0).long()
    return torch.arange(n), torch.arange(end=n) * 2, torch.full((2,), 1.0), y + 1


def inference(x, y):
    with torch.inference_mode():
        return (x + y).sum() * 2


def hooked(x, y):
    z = x * 2
    z.requires_grad_()
    z.register_hook(lambda grad: grad * 3)
    (z * y).sum().backward()
    return z.grad


def seeded(x, y):
    torch.manual_seed(3)
    return torch.rand(2) + x[0, 0]


PIECES = [
    branch_on_value, loop_on_value, prints, to_list, to_numpy, masks, nonzero, compared,
    text_of_tensor, number_of_tensor, sizes_by_value, counted_by_value, inference,
    hooked, seeded,
]  # fmt: skip


@pytest.mark.parametrize("fn", PIECES, ids=lambda fn: fn.__name__)
def test_in_pieces(fn):
    captured = same_outcome(fn, *CALLS, *CALLS)
    assert captured.capture.breaks


@pytest.mark.parametrize("fn", [branch_on_value, masks, prints, number_of_tensor])
def test_in_pieces_differentiated_outside(fn):
    calls = [tuple(t.clone().requires_grad_() for t in args) for args in CALLS]
    same_outcome(fn, *calls, *calls, backward=True)


def raises_by_shape(x, y):
    return x @ y


def raises_by_value(x, y):
    return F.embedding(torch.tensor([99]), x) + y


def raises_own(x, y):
    z = x + y
    if z.dim() == 2:
        raise KeyError("two")
    return z


def raises_inside_no_grad(x, y):
    with torch.no_grad():
        return x.reshape(7, 7)


def caught_from_operation(x, y):
    try:
        return x @ y
    except RuntimeError as error:
        return y + len(str(error).splitlines())


def finally_around_operation(x, y):
    log = []
    try:
        z = x @ y
        log.append("no")
    except RuntimeError:
        log.append("caught")
        z = x
    finally:
        log.append("end")
    return z + len(log), log


RAISING = [raises_by_shape, raises_by_value, raises_own, raises_inside_no_grad,
           caught_from_operation, finally_around_operation]  # fmt: skip


@pytest.mark.parametrize("fn", RAISING, ids=lambda fn: fn.__name__)
def test_exceptions(fn):
    same_outcome(fn, *CALLS)


def index_in_try(x, i):
    try:
        return F.embedding(i, x) * 2
    except IndexError:
        return x * 0 - 1


def index_in_with(x, i):
    with torch.no_grad():
        y = F.embedding(i, x)
    return y + 1


def index_in_try_behind_a_write(x, i):
    log = x.clone()
    log.add_(1)
    try:
        return F.embedding(i, x) * 2 + F.dropout(log, 0.5)[0]
    except IndexError:
        return log * 0 - 1


def write_behind_index_in_try(x, i):
    try:
        y = F.embedding(i, x) * 2
    except IndexError:
        y = x * 0 - 1
    x.add_(1)
    return y + F.embedding(i.clamp(max=2), x)[0]


def index_in_try_behind_own_writes(x, i):
    log, total = x * 1, 0
    log.add_(1)
    log[0] = 5
    total += log
    try:
        return F.embedding(i, x) * 2 + total[0]
    except IndexError:
        return log * 0 - 1


def index_in_try_behind_a_write_to_a_view(x, i):
    row = x[0]
    row.add_(1)
    try:
        return F.embedding(i, x) * 2
    except IndexError:
        return x * 0 - 1


OWN_WRITES = (index_in_try_behind_own_writes, index_in_try)
INDEXED = [
    *OWN_WRITES,
    index_in_try_behind_a_write_to_a_view,
    index_in_with,
    index_in_try_behind_a_write,
    write_behind_index_in_try,
]


@pytest.mark.parametrize("fn", INDEXED)
def test_what_raises_only_later(fn):
    right, wrong = torch.tensor([0, 2]), torch.tensor([0, 99])
    captured = same_outcome(fn, (X, right), (X, right), (X, wrong), (X, right))
    if fn in OWN_WRITES:
        assert not captured.capture.breaks


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.new(x.shape).fill_(2),
        lambda x: x.double().new(torch.Size((2, 2))).fill_(3),
        lambda x: x.new(2, 3).fill_(2),
        lambda x: x.new((2, 3)),
        lambda x: x.new([2, 3]) * 2,
        lambda x: torch.Tensor(x.shape).fill_(1),
        lambda x: torch.LongTensor(3).fill_(1) + torch.LongTensor([0, 1, 2]),
    ],
)
def test_sizes_and_data_of_legacy_constructors_are_told_apart(fn):
    captured = gh.optimize("eager")(fn)
    for _ in range(3):
        x = torch.randn(3)
        want, got = fn(x), captured(x)
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
