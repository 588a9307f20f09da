"""Programs of PyTorch's tensors that use the whole of Python: capture does what eager does."""

import collections
import copy
import enum
import functools
import itertools
import math
import random
from dataclasses import dataclass, field, replace

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import same_outcome  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402

X = torch.linspace(-2, 2, 12).reshape(3, 4)
Y = torch.linspace(0.5, 3, 12).reshape(3, 4)
CALLS = [(X, Y), (X + 1, Y), (-X, Y)]
COUNTS = {"calls": 0}
HISTORY: list = []
TOTAL = 0


class Mode(enum.Enum):
    ADD = 1
    TIMES = 2


class Base:
    bias = 1.0

    def __init__(self, scale):
        self.scale = scale

    def run(self, x):
        return x * self.scale + self.bias

    @classmethod
    def made(cls, scale):
        return cls(scale)

    @staticmethod
    def plus(x):
        return x + 1

    def __call__(self, x):
        return self.run(x)

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return self.scale + i

    def __eq__(self, other):
        return isinstance(other, Base) and other.scale == self.scale

    __hash__ = None


class Derived(Base):
    bias = 2.0

    def run(self, x):
        return super().run(x) - 1


@dataclass
class Settings:
    rate: float = 0.5
    names: list = field(default_factory=list)

    @property
    def double(self):
        return self.rate * 2


class Suppresses:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is ValueError


# -- in one graph ----------------------------------------------------------------------------------


def closure_over_tensors(x, y):
    def make(a):
        return lambda z: z * a

    return [f(y) for f in (make(x), make(2.0))]


def closure_is_changed(x, y):
    count = 0

    def more():
        nonlocal count
        count += 1
        return x * count

    return more() + more(), count


def recursion(x, y):
    def power(z, n):
        return z if n == 0 else power(z * y, n - 1)

    return power(x, 3)


def keyword_only(x, y):
    def inner(a, /, b, *, c=1.0):
        return a * b + c

    return inner(x, b=y, c=2.0), inner(*(x, y)), inner(x, b=y)


def partials(x, y):
    scaled = functools.partial(torch.mul, y)
    clamp = functools.partial(torch.clamp, min=0.0)
    return scaled(x), clamp(x), functools.reduce(torch.add, [x, y, x])


def zips_and_chains(x, y):
    rows = [a * b for a, b in zip(x, y, strict=True)]
    return rows, [r.sum() for r in itertools.chain(x, y)], list(itertools.islice(x, 2))


def generator_with_state(x, y):
    def running(t):
        total = torch.zeros(4)
        for row in t:
            total = total + row
            yield total

    return list(running(x)), [a + b for a, b in zip(running(x), running(y), strict=True)]


def generator_delegates(x, y):
    def inner(t):
        yield t
        yield t * 2
        return t.sum()

    def outer():
        total = yield from inner(x)
        yield total

    return list(outer())


def generator_expressions(x, y):
    return sum(row.sum() for row in x), max(len(row) for row in x), any(r.dim() == 1 for r in y)


def methods_and_classes(x, y):
    return Base(2.0)(x), Derived.made(3.0).run(y), Base.plus(x), Derived(1.0)[2] * y, len(Base(1))


def equality_of_objects(x, y):
    return x + 1 if Base(2) == Base(2) else y, Base(1) != Base(2)


def data_classes(x, y):
    settings = Settings(names=["a"])
    settings.names.append("b")
    other = replace(settings, rate=3.0)
    return x * settings.double, y * other.rate, settings


def enumerations(x, y):
    mode = Mode(2)
    return x * y if mode is Mode.TIMES else x + y, mode.name, [m.value for m in Mode]


def counters(x, y):
    values = collections.defaultdict(list)
    for i, row in enumerate(x):
        values[i % 2].append(row)
    return dict(values), torch.stack(values[0])


def ordered_dicts(x, y):
    parts = collections.OrderedDict(a=x, b=y)
    parts.move_to_end("a")
    return list(parts), parts["a"] + parts["b"]


def dict_methods(x, y):
    parts = {"a": x, "b": y}
    parts |= {"c": x + y}
    first = parts.pop("a")
    return first, parts.get("z", 0), parts.setdefault("d", y * 2), sorted(parts)


def set_methods(x, y):
    names = {"a", "b"} | {"c"}
    names.discard("a")
    return x * len(names), "b" in names


def list_methods(x, y):
    parts = [x, y]
    parts.insert(1, x + y)
    parts.extend([x * 2])
    parts.reverse()
    last = parts.pop()
    del parts[0]
    return last, parts, parts[::-1], parts * 2


def matching(x, y):
    match (x.shape[0], {"kind": "mul"}):
        case (3, {"kind": str(kind)}) if kind == "mul":
            return x * y
        case _:
            return x


def walrus_and_chains(x, y):
    if (n := x.shape[1]) > 2 and 0 < n <= 4:
        return x * n
    return y


def star_results(x, y):
    (a, *b), c = x.unbind(), y
    return a, b, [*b, c], {"a": a}


def text_of_sizes(x, y):
    return f"{tuple(x.shape)} {x.dtype!s:>15} {x.ndim:03d}", "%d" % x.shape[0]  # noqa: UP031


def arithmetic_of_sizes(x, y):
    b, c = x.shape
    half = max(1, c // 2)
    return x.view(b, half, -1), x.reshape(int(math.sqrt(b * 12)), 2), divmod(c, 3), -b % 4


def constants_of_math(x, y):
    return x * math.pi + math.sqrt(2.0), x / math.sqrt(x.size(-1)), y * float("inf")


def own_class_context(x, y):
    with Suppresses():
        x = x + 1
        raise ValueError("no")
    return x * y


def raised_and_caught_inside(x, y):
    def fails(n):
        if n > 1:
            raise KeyError(n)
        return x

    done = []
    for n in range(3):
        try:
            done.append(fails(n) + n)
        except KeyError as error:
            done.append(y * error.args[0])
        else:
            done.append(n)
        finally:
            done.append("end")
    return done


def nested_grad_modes(x, y):
    with torch.no_grad(), torch.enable_grad():
        inner = torch.is_grad_enabled()
    with torch.set_grad_enabled(True):
        z = x * y
    return z, inner, torch.is_grad_enabled()


def nested_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y.T
        with torch.autocast("cpu", enabled=False):
            b = x @ y.T
    return a, b, a.dtype, torch.is_autocast_enabled("cpu")


def in_place_of_views(x, y):
    z = x.clone()
    z[1:].mul_(2)
    z.t()[0] += 1
    z.view(-1)[::3].fill_(7)
    z[z.shape[0] - 1, 1:3] = y[0, :2]
    return z


def in_place_arithmetic(x, y):
    z = x.clone()
    w = z
    z += y
    z *= 2
    z -= 1
    z /= 3
    z **= 2
    return z, w, z is w


def changes_arguments(x, y):
    y.mul_(x)
    x[0] = y[1]
    x.data.add_(1)
    return x + y


def aliases(x, y):
    row = x[0]
    x.add_(1)
    return row * 2, x


def copies(x, y):
    a, b = x.detach(), x.clone()
    a = a + 1
    return a, b, x.contiguous() is x, x.detach() is x


def kinds_of_indices(x, y):
    i = torch.tensor([2, 0])
    return x[i], x[i, i], x[None], x[..., -1], x[-2:, [0, 2]], x[(0, 1)], x[torch.tensor(1)]


def wide_kinds(x, y):
    return x.half(), x.bfloat16().float(), (x * 4).to(torch.int8), x.bool(), x.to(torch.complex64)


def promotion(x, y):
    i = torch.arange(4)
    return x + i, i + 1.5, i * True, i / 2, torch.result_type(i, 2.0), (x > 0) + i


def memory_formats(x, y):
    z = x.reshape(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    return z, z.stride(), (z * 2).is_contiguous(memory_format=torch.channels_last)


def many_results(x, y):
    return x.std_mean() if hasattr(x, "std_mean") else torch.std_mean(x), x.aminmax(), x.unbind()


def losses(x, y):
    target = torch.tensor([0, 1, 2])
    return (
        F.cross_entropy(x, target, label_smoothing=0.1),
        F.mse_loss(x, y, reduction="sum"),
        F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        F.binary_cross_entropy_with_logits(x, y.clamp(0, 1)),
        F.smooth_l1_loss(x, y),
    )


def attention(x, y):
    q, k = x.view(1, 1, 3, 4), y.view(1, 1, 3, 4)
    return F.scaled_dot_product_attention(q, k, k, is_causal=True)


def convolutions(x, y):
    image = x.reshape(1, 1, 3, 4)
    weight = y[:2, :2].reshape(1, 1, 2, 2)
    return (
        F.conv2d(image, weight, padding=1),
        F.avg_pool2d(image, 2),
        F.interpolate(image, scale_factor=2.0),
    )


def seldom_attributes(x, y):
    return x.T, x.mT, x.is_cuda, x.layout, x.itemsize, x.nbytes, x.element_size()


def tensors_as_truth_of_containers(x, y):
    parts = [x]
    return (x if parts else y), not [], bool({"a": x})


def asserts_on_sizes(x, y):
    assert x.shape == y.shape, "sizes"
    assert isinstance(x, torch.Tensor)
    return x + y


def asks_whether_it_compiles(x, y):
    if torch.compiler.is_exporting() or torch.jit.is_scripting():
        return y
    return x + 1


def new_module(x, y):
    layer = nn.ReLU()
    return layer(x), nn.Softmax(dim=-1)(y), nn.Identity()(x)


WHOLE = [
    closure_over_tensors, closure_is_changed, recursion, keyword_only, partials, zips_and_chains,
    generator_with_state, generator_delegates, generator_expressions, methods_and_classes,
    data_classes, enumerations, ordered_dicts, dict_methods,
    set_methods, list_methods, matching, walrus_and_chains, star_results, text_of_sizes,
    arithmetic_of_sizes, constants_of_math, own_class_context, raised_and_caught_inside,
    nested_grad_modes, nested_autocast, in_place_of_views, in_place_arithmetic, aliases, copies,
    kinds_of_indices, wide_kinds, promotion, memory_formats, many_results, losses, attention,
    convolutions, seldom_attributes, tensors_as_truth_of_containers,
    asks_whether_it_compiles,
]  # fmt: skip


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_in_one_graph(fn):
    captured = same_outcome(fn, *CALLS, graphs=1, breaks=[])
    assert captured.hits == 2


WITH_GRADIENT = [closure_over_tensors, recursion, raised_and_caught_inside,
                 in_place_of_views, losses, attention, convolutions, nested_grad_modes, partials,
                 counters, list_methods]  # fmt: skip


@pytest.mark.parametrize("fn", WITH_GRADIENT, ids=lambda fn: fn.__name__)
def test_differentiated_outside(fn):
    calls = [tuple(t.clone().requires_grad_() for t in args) for args in CALLS]
    same_outcome(fn, *calls, backward=True)


# -- whole or in pieces ----------------------------------------------------------------------------


def break_in_loop(x, y):
    for row in x:
        print("row", row.shape)
        y = y + row
    return y


def break_in_with(x, y):
    with torch.no_grad():
        z = x * 2
        print(torch.is_grad_enabled())
        z = z + y
    return z, torch.is_grad_enabled()


def break_in_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y.T
        print(z.dtype)
        z = z @ x
    return z, x @ y.T


def break_in_try(x, y):
    try:
        z = x + 1
        print("inside")
        return z @ y
    except RuntimeError:
        return z
    finally:
        print("end")


def break_in_callee(x, y):
    def inner(z):
        z = z * 2
        if z.sum() > 0:
            return z + 1
        return z - 1

    return inner(x) + inner(y)


def break_in_comprehension(x, y):
    return [row.tolist() for row in x], y + 1


def break_in_generator(x, y):
    def rows():
        for row in x:
            print("row")
            yield row * 2

    return list(rows())


def break_in_own_context(x, y):
    with Suppresses():
        z = x + 1
        print("before")
        if z.sum() > -1e9:
            raise ValueError
    return z + y


def branches_on_values(x, y):
    out = []
    for row in x:
        out.append(row if row.sum() > 0 else -row)
    return torch.stack(out)


def loop_until_value(x, y):
    n = 0
    while (x * n).sum() < 1 and n < 3:
        n += 1
    return x * n, n


def global_is_changed(x, y):
    global TOTAL
    TOTAL = x.shape[0]
    COUNTS["calls"] += 1
    HISTORY.append(COUNTS["calls"])
    return x + TOTAL, len(HISTORY) > 0


def random_of_python(x, y):
    random.seed(4)
    return x * random.random() + random.randint(1, 3)


def sorted_by_value(x, y):
    return sorted([row.sum().item() for row in x]), y * 2


def deep_copies(x, y):
    result = copy.deepcopy([x, {"a": y}])
    result[0].add_(1)
    return result, x


def new_parameters(x, y):
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    return layer(x), layer


def new_optimizer(x, y):
    weight = nn.Parameter(x.clone())
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (weight * y).sum().backward()
    optimizer.step()
    return weight


def gradient_inside(x, y):
    z = x.clone().requires_grad_()
    (g,) = torch.autograd.grad((z**3 * y).sum(), z, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), z)
    return g, h


def retained_gradient(x, y):
    z = x.clone().requires_grad_()
    w = z * 2
    w.retain_grad()
    (w * y).sum().backward()
    return w.grad, z.grad


def requires_grad_is_set(x, y):
    z = x * 2
    z.requires_grad = True
    w = (z * y).sum()
    w.backward()
    return z.grad, z.requires_grad, w.requires_grad


def hook_changes_gradient(x, y):
    z = x.clone().requires_grad_()
    w = z * 2
    w.register_hook(lambda g: g * 10)
    (w * y).sum().backward()
    return z.grad


def unique_values(x, y):
    return torch.unique((x * 2).long()), y + 1


def sizes_from_values(x, y):
    return torch.repeat_interleave(x, torch.tensor([1, 0, 2]), dim=0), y.split([1, 2])


def stored_tensors(x, y):
    z = x.untyped_storage().nbytes(), x.storage_offset(), x.data_ptr() == x[0].data_ptr()
    return z, y + 1


def resized(x, y):
    z = x.clone()
    z.resize_(2, 2)
    z.unsqueeze_(0)
    return z, y + 1


def locals_of_the_function(x, y):
    z = x + y
    return sorted(locals()), z


def evaluated_text(x, y):
    return eval("x * 2 + y", {"x": x, "y": y})


def class_made_inside(x, y):
    class Inner:
        scale = 3

        def run(self, z):
            return z * self.scale

    return Inner().run(x)


def imports_inside(x, y):
    import torch.nn.functional as functional

    return functional.relu(x)


PIECES = [
    break_in_loop, break_in_with, break_in_autocast, break_in_try, break_in_callee,
    break_in_comprehension, break_in_generator, break_in_own_context, branches_on_values,
    loop_until_value, random_of_python, sorted_by_value, deep_copies, new_parameters,
    new_optimizer, gradient_inside, retained_gradient, requires_grad_is_set, hook_changes_gradient,
    unique_values, sizes_from_values, stored_tensors, resized, locals_of_the_function,
    evaluated_text, class_made_inside, imports_inside, changes_arguments, new_module,
    equality_of_objects, counters, asserts_on_sizes,
]  # fmt: skip


@pytest.mark.parametrize("fn", PIECES, ids=lambda fn: fn.__name__)
def test_whole_or_in_pieces(fn):
    captured = same_outcome(fn, *CALLS, *CALLS)
    assert all(reason for _, reason, _ in captured.capture.breaks)


def test_globals_that_are_changed():
    captured = gh.optimize("eager")(global_is_changed)
    COUNTS["calls"] = 0
    HISTORY.clear()
    for i in range(1, 4):
        torch.testing.assert_close(captured(X, Y)[0], X + 3)
        assert COUNTS["calls"] == i and [*range(1, i + 1)] == HISTORY and TOTAL == 3


def test_code_of_others_is_told_that_it_is_compiled():
    def asks(x):
        return (x + 1 if torch.compiler.is_compiling() else x), torch.compiler.is_compiling()

    captured = gh.optimize("eager")(asks)
    for _ in range(3):
        got, is_compiling = captured(X)
        assert is_compiling is True
        torch.testing.assert_close(got, X + 1)
    assert asks(X)[1] is False and len(captured.capture.entries) == 1
    with gh.capture.config.override(is_compiling=False):
        assert gh.optimize("eager")(asks)(X)[1] is False
