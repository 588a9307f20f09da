"""Graphs from the disk cache compute what they computed when they were made."""

import contextlib
import copy
import types
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

from torch._dynamo.utils import counters  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.torch.front.captured_key import captured_key, is_described, is_known  # noqa: E402
from glasshouse.torch.front.compilers import aliases  # noqa: E402

graph_cache = pytest.importorskip("glasshouse.torch.backend.graph_cache", exc_type=ImportError)

pytestmark = pytest.mark.library_warnings


def compiled_anew(function, **options):
    """The function compiled as in a new process, and how often the cache had its graph."""
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function, backend="glasshouse", **options)


def cache_hits() -> tuple[int, int]:
    """How many graphs came from the cache, and how many did not."""
    result = counters["aot_autograd"]
    return result["autograd_cache_hit"], result["autograd_cache_miss"]


class Block(nn.Module):
    """A convolution with statistics, dropout off, attention and a view among the results."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).flatten(2).mT
        y = functional.scaled_dot_product_attention(x, x, self.head(x))
        return y.sum((1, 2)), y.mT


def step_of(model, call, x) -> list[torch.Tensor]:
    """Results, gradients and state after one step."""
    x = x.clone().requires_grad_()
    first, second = call(x)
    (first.sum() + second.square().mean()).backward()
    grads = [p.grad for p in model.parameters()]
    return [first, second, x.grad, *grads, *model.state_dict().values()]


def trained(model, x, **options) -> list[torch.Tensor]:
    """The same, of a copy of the model that is compiled."""
    model = copy.deepcopy(model)
    return step_of(model, compiled_anew(model, **options), x)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"memory_budget": "50%"}])
def test_a_training_step_from_the_cache(options):
    model, x = Block(), torch.randn(2, 3, 5, 5)
    kept = int(not options)  # a budget is planned, and told of, each time
    result = trained(model, x, options=options)
    assert cache_hits() == (0, kept)
    outcome = trained(model, x, options=options)
    assert cache_hits() == (kept, 0)
    assert result[1].stride() == outcome[1].stride()
    expected = step_of(model, model, x)
    for a, b, c in zip(result, outcome, expected):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c)


def test_inference_keeps_weights_and_sees_new_ones():
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    for hits in ((0, 1), (1, 0)):
        with torch.no_grad():
            call = compiled_anew(model)
            call(x)
            assert cache_hits() == hits
            model.weight.mul_(2)
            torch.testing.assert_close(call(x), model(x))


@pytest.mark.slow
def test_options_lines_and_dtypes_tell_graphs_apart():
    x = torch.randn(3, 3)
    lines = "def f(x):\n    return (x @ x).sin()", "def f(x):\n\n    return (x @ x).sin()"
    functions = []
    for number, text in enumerate(lines):
        names = {"torch": torch}
        exec(compile(text, f"<cached {number}>", "exec"), names)
        functions.append(names["f"])
    for function, options, y in [
        (functions[0], {}, x),
        (functions[1], {}, x),
        (functions[0], {"dtype": "bfloat16"}, x),
        (functions[0], {}, x.double()),
    ]:
        for hits in ((0, 1), (1, 0)):
            torch.testing.assert_close(
                compiled_anew(function, options=options)(y),
                function(y),
                atol=0.1 if options else 1e-5,
                rtol=0,
            )
            assert cache_hits() == hits


def test_a_graph_with_effects_is_made_again():
    x = torch.randn(4, 4)
    x = x @ x.T + 4 * torch.eye(4)
    for _ in range(2):
        torch.testing.assert_close(
            compiled_anew(torch.linalg.cholesky)(x), torch.linalg.cholesky(x)
        )


def test_a_graph_that_cannot_be_kept_is_made_again():
    def function(x):
        return x * 2 + x.shape[0]

    for _ in range(2):
        call = compiled_anew(function, dynamic=True)
        for n in (3, 5):
            x = torch.randn(n, 2)
            torch.testing.assert_close(call(x), function(x))
        assert cache_hits()[0] == 0


def test_tools_name_modules_and_lines_of_a_graph_from_the_cache():
    import glasshouse as gh

    class Determinant(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            y = self.block(x)[1]
            return torch.linalg.det(y @ y.mT)

    model, x, tables = Determinant(), torch.randn(1, 3, 4, 4), []
    for hits in ((0, 1), (1, 0)):
        with torch.no_grad():
            call = compiled_anew(model)
            call(x)
            assert cache_hits() == hits
            with gh.profile() as prof:
                call(x)
        names = {word for word in str(prof).split() if word[0].isalpha() and "FLOP" not in word}
        (message,) = (text for text in str(prof).splitlines() if text.startswith("fallback"))
        tables.append((names, message))
    assert tables[0] == tables[1]
    assert {"conv", "norm", "head"} <= tables[0][0]
    assert "aten._linalg_det.default" in tables[0][1] and f"{__file__}:" in tables[0][1]


def test_a_backward_pass_may_keep_its_graph():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x, compiled = torch.randn(4, 8), torch.compile(model, backend="glasshouse")
    (model(x) ** 2).sum().backward()
    expected = [2 * p.grad for p in model.parameters()]
    for _ in range(2):
        model.zero_grad()
        loss = (compiled(x) ** 2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        for p, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient)


def test_a_graph_from_the_cache_needs_no_decompositions():
    from glasshouse.torch.backend import entry_point as backend

    def function(x):
        return torch.nn.functional.mish(x).std()

    x = torch.randn(5, 7)
    for hits in ((0, 1), (1, 0)):
        backend.decompositions.cache_clear()
        torch.testing.assert_close(compiled_anew(function)(x), function(x))
        assert cache_hits() == hits
        assert backend.decompositions.cache_info().currsize == hits[1]


def product(x, y):
    return (x @ y).sin()


@pytest.mark.slow
def test_sizes_strides_and_gradients_tell_graphs_apart():
    square = torch.randn(4, 4)
    with_gradient = square.clone().requires_grad_()
    pairs = [
        (square, square),
        (square, torch.randn(4, 5)),
        (square, square.mT),
        (with_gradient, square),
        (square, with_gradient),
    ]
    for x, y in pairs:
        for hits in ((0, 1), (1, 0)):
            torch.testing.assert_close(compiled_anew(product)(x, y), product(x, y))
            assert cache_hits() == hits


def without_gradients():
    return torch.no_grad()


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def another_setting():
    return torch._functorch.config.patch(treat_parameters_as_free_to_save=False)


def another_version():
    return patch.object(graph_cache, "__version__", "another")


def other_sources():
    return patch.object(graph_cache, "sources_digest", lambda _: "another")


def another_pytorch():
    return patch.object(graph_cache, "release_key", lambda: b"another")


@pytest.mark.parametrize(
    "surroundings",
    [
        without_gradients,
        autocast,
        deterministic,
        another_setting,
        another_version,
        other_sources,
        another_pytorch,
    ],
)
def test_surroundings_tell_graphs_apart(surroundings):
    x = torch.randn(4, 4, requires_grad=True)
    compiled_anew(product)(x, x)
    assert cache_hits() == (0, 1)
    for hits in ((0, 1), (1, 0)):
        with surroundings():
            torch.testing.assert_close(compiled_anew(product)(x, x), product(x, x))
            assert cache_hits() == hits
    compiled_anew(product)(x, x)
    assert cache_hits() == (1, 0)


def emptied(data: bytes) -> bytes:
    return b""


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def with_another_graph(data: bytes) -> bytes:
    """A node of the kept graph has another name; its digest is of what was there."""
    assert b"sin" in data
    return data.replace(b"sin", b"cos")


@pytest.mark.parametrize("damage", [emptied, halved, with_another_graph])
def test_a_damaged_graph_is_made_again(damage, tmp_path):
    x = torch.randn(4, 4)
    compiled_anew(product)(x, x)
    (entry,) = (p for p in (tmp_path / "aotautograd").rglob("*") if p.is_file())
    entry.write_bytes(damage(entry.read_bytes()))
    torch.testing.assert_close(compiled_anew(product)(x, x), product(x, x))
    assert cache_hits()[0] == 0


def add_and_pick(x, i):
    x.add_(1)
    return x[i]


@pytest.mark.parametrize("compiler", [compiled_anew, gh.optimize])
def test_what_a_graph_from_the_cache_writes_before_it_raises(compiler):
    for hits in (0, 1):
        counters.clear()
        fn = compiler(types.FunctionType(add_and_pick.__code__, globals()))
        for _ in range(3):
            fn(torch.zeros(4), torch.tensor([1]))
        assert cache_hits()[0] == hits
        x = torch.zeros(4)
        with pytest.raises(IndexError):
            fn(x, torch.tensor([9]))
        assert x.tolist() == [1] * 4


# -- steps that gh.optimize captures -----------------------------------------------------------


class Layers(nn.Module):
    """Layers with norms, of which one weight is used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        x = functional.dropout(functional.gelu(self.first(x)), 0.25)
        return self.last(self.norm(x.view(2, -1, 6).transpose(0, 1)).contiguous() + self.last.bias)


def captured_steps(make=Layers, dtype=torch.float32) -> list[torch.Tensor]:
    """Losses, parameters and state after some steps captured as in a new process."""
    torch.manual_seed(3)
    model, x = make().to(dtype), torch.randn(4, 6, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    counters.clear()

    @gh.optimize
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x) for _ in range(5)]
    state = [x for entry in optimizer.state.values() for x in entry.values()]
    return [*losses, *model.parameters(), *state]


@pytest.mark.slow
def test_a_captured_step_from_the_cache():
    result = captured_steps()
    hits, misses = cache_hits()
    assert hits == 0 and misses >= 2  # passes, and the update
    outcome = captured_steps()
    assert cache_hits() == (misses, 0)
    assert all(map(torch.equal, result, outcome))
    captured_steps(dtype=torch.float64)
    assert cache_hits()[0] == 0


@pytest.mark.slow
def test_a_captured_step_that_was_damaged_on_disk(tmp_path):
    result = captured_steps()
    files = [path for path in (tmp_path / "aotautograd").rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:-100])
    outcome = captured_steps()
    assert cache_hits()[0] == 0
    assert all(map(torch.equal, result, outcome))


def scaled(x, y, *words):
    """The key of a graph of two tensors."""
    graph = torch.fx.Graph()
    first, second = graph.placeholder("x"), graph.placeholder("y")
    graph.output((graph.call_function(torch.addmm, (first, first, second), dict(words)),))
    return captured_key(torch.fx.GraphModule({}, graph), [x, y], aliases)


def test_the_key_of_a_captured_graph_tells_its_inputs_and_modes():
    x, y = torch.zeros(4, 4), torch.zeros(4, 4)
    both = torch.zeros(8, 4)
    keys = [
        scaled(x, y),
        scaled(x, x),
        scaled(both[:4], both[4:]),
        scaled(both[4:], both[:4]),
        scaled(x, y.T),
        scaled(x, torch.zeros(4, 3)),
        scaled(x, y.double()),
        scaled(x, y.clone().requires_grad_()),
        scaled(x, nn.Parameter(y)),
        scaled(x, nn.Parameter(y) * 1),
    ]
    with torch.no_grad():
        keys.append(scaled(x, y))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            keys.append(scaled(x, y))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        keys.append(scaled(x, y))
    assert all(keys) and len(set(keys)) == len(keys)
    assert scaled(torch.ones(4, 4), torch.ones(4, 4)) == keys[0]


def test_a_captured_graph_that_a_key_cannot_describe_has_none():
    class Own(torch.Tensor):
        pass

    x, hooked = torch.zeros(4, 4), torch.zeros(4, 4, requires_grad=True)
    hooked.register_hook(lambda grad: grad * 2)
    assert scaled(x, hooked) == ""
    assert scaled(x, x.as_subclass(Own)) == ""
    assert scaled(x, x.to_sparse()) == ""
    assert scaled(x, 3.0) == ""
    assert scaled(x, x, ("alpha", 2.0)) != ""
    graph = torch.fx.Graph()
    node = graph.call_function(torch.add, (graph.placeholder("x"), slice(0, object())))
    assert not is_described(node)
    assert not is_known(scaled) and is_known(functional.gelu)
    assert not is_known(torch.autograd.Function.apply)


# -- what a graph says of its tensors -----------------------------------------------------------


def facts_of(fake) -> tuple:
    """All that lowering reads of a tensor of a graph."""
    if not isinstance(fake, torch.Tensor):
        return type(fake), fake
    bits = fake.is_conj(), fake.is_neg(), fake.is_complex(), fake.layout
    place = tuple(fake.shape), tuple(fake.stride()), fake.storage_offset()
    return fake.dtype, *place, *bits, fake.numel(), fake.is_contiguous()


def views_of(x):
    """Views of a matrix: parts, gaps, repeated axes, other orders and, of complex numbers, parts of
    each number and conjugates."""
    views = [
        x,
        x.mT,
        x[1:, ::2],
        x[:, 1],
        x.flatten()[3:7],
        x[:1].expand(4, -1),
        x[None].permute(1, 2, 0),
    ]
    if x.is_complex():
        views += [
            x.conj(),
            x.mH[1:],
            x.conj().imag,
            x.real,
            torch.view_as_real(x.resolve_conj())[..., 1],
            x.imag.mT,
        ]
        views += [torch.view_as_real(x.resolve_conj()).mT, x.mH.conj().mT, x.conj()[0].conj().imag]
    return views


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_that_a_graph_says_of_its_tensors_is_kept(dtype):
    views = views_of(torch.ones(4, 6, dtype=dtype))
    graph = torch.fx.Graph()
    for number, view in enumerate(views):
        graph.placeholder(f"x{number}").meta["val"] = view
    graph.placeholder("several").meta["val"] = (views[0], [views[1], 3], None, True, 1j)
    graph.output(())
    expected = [pytree.tree_map(facts_of, x.meta["val"]) for x in graph.nodes if "val" in x.meta]
    module = graph_cache.unpack(graph_cache.pack(torch.fx.GraphModule({}, graph)))
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert [pytree.tree_map(facts_of, node.meta["val"]) for node in nodes] == expected


def of_inputs(x, y):
    """Views are read, and are among the results."""
    return [(x * 2 + view.sum()).mean() for view in views_of(y)], views_of(y)[4:]


def of_values(x, y):
    """The same of what is computed."""
    return of_inputs(x, x * y)


def of_products(x, y):
    return (x.mH @ y).mH[1:], (y.conj() * x).imag.mT, [(x.mH @ x).diagonal().real.sum()]


@pytest.mark.slow
@pytest.mark.parametrize("function", [of_inputs, of_values, of_products])
@pytest.mark.parametrize("turned", [False, True])
def test_views_of_complex_numbers_from_the_cache(function, turned):
    x, y = (torch.randn(4, 6, dtype=torch.complex64) for _ in range(2))
    x, y = (v.requires_grad_() for v in ((x.conj(), y.mH.mT) if turned else (x, y)))

    def outcome(call):
        results = pytree.tree_leaves(call(x, y))
        total = sum((r * (i + 1 - 0.5j)).abs().sum() for i, r in enumerate(results))
        return *results, *torch.autograd.grad(total, (x, y), allow_unused=True)

    expected = outcome(function)
    for hits in (0, 1):
        got = outcome(compiled_anew(function))
        assert cache_hits() == (hits, 1 - hits)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
