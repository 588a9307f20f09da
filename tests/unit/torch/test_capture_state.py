"""State of PyTorch and of tensors that a captured function reads and sets, beside values: without a
guard it breaks the graph, with one it is captured again where it changes."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from same_outcome import nothing, same_story  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.torch.scopes.state_modes import autocast_nesting  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)
BASE = torch.arange(20.0)


def plain(number):
    return (X + number,)


def leaf(number):
    return (X + number * 0.1).clone().requires_grad_()


# -- of tensors ------------------------------------------------------------------------------------


def where_a_view_begins():
    return lambda x: (x * 2, x.storage_offset()), lambda i: (BASE[i : i + 4],), nothing


def which_output():
    base = BASE.clone().requires_grad_()
    return lambda x: (x * 2, x.output_nr), lambda i: (base.split(4)[i],), nothing


def shared_with_processes():
    def arguments(i):
        x = torch.ones(3)
        return (x.share_memory_() if i >= 2 else x,)

    return lambda x: (x * 2, x.is_shared()), arguments, nothing


def version():
    def arguments(i):
        x = torch.ones(3)
        for _ in range(i):
            x.add_(1)
        return (x,)

    return lambda x: (x * 2, x._version), arguments, nothing


def is_a_view():
    return (
        lambda x: (x * 2, x._is_view(), x._base is None),
        lambda i: (BASE[:4] if i % 2 else torch.ones(4),),
        nothing,
    )


def which_operation_made_it():
    return (
        lambda y: (y * 2, y.grad_fn.name()),
        lambda i: (leaf(i) * 2 if i % 2 else leaf(i).sin(),),
        nothing,
    )


def keeps_its_gradient():
    def arguments(i):
        x = leaf(i) * 2
        if i > 2:
            x.retain_grad()
        return (x,)

    return lambda y: (y * 2, y.retains_grad), arguments, nothing


def same_tensor_twice():
    return (
        lambda a, b: (a is b, a + b),
        lambda i: (X, X) if i % 2 else (X, X.clone()),
        nothing,
    )


def written_where_memory_is_shared():
    def arguments(i):
        x = torch.ones(6)
        return (x[:3], x[1:4]) if i % 2 else (x[:3], x[3:])

    def fn(a, b):
        a.add_(1)
        return a * b

    return fn, arguments, nothing


def data_is_set():
    p = nn.Parameter(torch.ones(3))

    def fn(x):
        p.data = p.data * 2 + x
        return p.sum(), p.data.sum()

    return fn, lambda i: (torch.ones(3) * i,), lambda: p


def data_is_written():
    p = nn.Parameter(torch.ones(3))

    def fn(x):
        p.data.add_(x)
        p.data[0] = 3
        return p * 2

    return fn, lambda i: (torch.ones(3) * i,), lambda: p


def gradient_is_written_and_dropped():
    p = nn.Parameter(torch.ones(3))

    def fn(x):
        (p * x).sum().backward()
        p.grad.mul_(2)
        gradient = p.grad
        p.grad = None
        return gradient

    return fn, lambda i: (torch.ones(3) * i,), lambda: p.grad


def frozen_and_not():
    layer = nn.Linear(4, 4)

    def fn(x, i):
        layer.weight.requires_grad = bool(i % 2)
        return layer(x).sum(), layer.weight.requires_grad

    return fn, lambda i: (X, i), lambda: layer.weight.requires_grad


def frozen_as_a_whole():
    layer = nn.Linear(4, 4)

    def fn(x, i):
        layer.requires_grad_(i % 2 == 0)
        layer.train(i % 3 == 0)
        return layer(x).sum(), layer.training

    return fn, lambda i: (X, i), lambda: layer.weight.requires_grad


def attribute_of_a_tensor():
    x = X.clone()

    def fn(x):
        x.tag = getattr(x, "tag", 0) + 1
        return x * x.tag, x.tag

    return fn, lambda i: (x,), lambda: x.tag


def parameter_is_replaced():
    layer = nn.Linear(4, 4)

    def fn(x):
        y = layer(x)
        layer.weight = nn.Parameter(layer.weight.detach() * 2)
        return y, layer(x)

    return fn, plain, layer.state_dict


def parameters_are_swapped():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)

    def fn(x):
        y = a(x)
        torch.utils.swap_tensors(a.weight, b.weight)
        return y, a(x)

    return fn, plain, a.state_dict


def memory_of_an_array():
    array = torch.ones(3).numpy()

    def fn(x):
        array[0] += 1
        return torch.from_numpy(array) + x, torch.from_numpy(array).sum()

    return fn, lambda i: (torch.ones(3),), lambda: array.tolist()


def array_of_a_tensor():
    def fn(x):
        x.numpy()[0] += 1
        return x * 2

    return fn, lambda i: (torch.ones(3),), nothing


OF_TENSORS = [
    where_a_view_begins, which_output, shared_with_processes, version, is_a_view,
    which_operation_made_it, keeps_its_gradient, same_tensor_twice, written_where_memory_is_shared,
    data_is_set, data_is_written, gradient_is_written_and_dropped, frozen_and_not,
    frozen_as_a_whole, attribute_of_a_tensor, parameter_is_replaced, parameters_are_swapped,
    memory_of_an_array, array_of_a_tensor,
]  # fmt: skip


@pytest.mark.parametrize("make", OF_TENSORS, ids=lambda make: make.__name__)
def test_what_tensors_are(make):
    same_story(make)


@pytest.mark.parametrize("compiler", ["aot_eager", "program"])
def test_memory_that_overlaps_only_later(compiler):
    same_story(written_where_memory_is_shared, compiler=compiler)


def test_parameters_of_a_compiled_graph_are_swapped():
    same_story(parameters_are_swapped, compiler="program")


def test_a_segment_that_a_compiler_refuses_runs_as_it_is():
    with pytest.warns(UserWarning, match="the compiler raised"):
        same_story(data_is_written, compiler="aot_eager")


# -- of PyTorch ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _state():
    threads, fast = torch.get_num_threads(), torch.backends.mha.get_fastpath_enabled()
    yield
    torch.set_num_threads(threads)
    torch.backends.mha.set_fastpath_enabled(fast)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)


def threads_outside():
    def arguments(i):
        torch.set_num_threads(1 + i % 2)
        return (X,)

    return lambda x: (x * 2, torch.get_num_threads()), arguments, nothing


def threads_inside():
    def fn(x):
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        y = x * 2
        within = torch.get_num_threads()
        torch.set_num_threads(1)
        return y, before, within

    return fn, plain, torch.get_num_threads


def fast_path():
    def arguments(i):
        torch.backends.mha.set_fastpath_enabled(i < 2)
        return (X,)

    return lambda x: (x * 2, torch.backends.mha.get_fastpath_enabled()), arguments, nothing


def autocast_of_another_device():
    def arguments(i):
        torch.set_autocast_enabled("xla", i % 2 == 1)
        return (X,)

    return lambda x: (x * 2, torch.is_autocast_enabled("xla")), arguments, nothing


def seeds():
    def arguments(i):
        torch.manual_seed(i)
        return (X,)

    return lambda x: (x * 2, torch.initial_seed(), torch.rand(2)), arguments, nothing


def seed_inside():
    def fn(x):
        torch.manual_seed(5)
        return torch.rand(3) + x[:, 0], torch.get_rng_state().sum().item()

    return fn, plain, nothing


def generators():
    generator = torch.Generator().manual_seed(1)

    def fn(x, g):
        return torch.rand(3, generator=generator) + x[:, 0], x.clone().normal_(generator=g)

    return fn, lambda i: (X, torch.Generator().manual_seed(i)), generator.initial_seed


def forked_numbers():
    def fn(x):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            y = torch.rand(3)
        return y, torch.rand(2)

    return fn, plain, nothing


def default_dtype_inside():
    def fn(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(3)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(2) + x[0, :2]

    return fn, plain, lambda: str(torch.get_default_dtype())


def deterministic_inside():
    def fn(x):
        torch.use_deterministic_algorithms(True)
        within = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(False)
        return x * 2, within, torch.are_deterministic_algorithms_enabled()

    return fn, plain, nothing


def anomalies():
    def fn(x):
        with torch.autograd.detect_anomaly(check_nan=False):
            y = (x * 2).sum()
            y.backward()
        return y, torch.is_anomaly_enabled()

    return fn, lambda i: (leaf(i),), nothing


def inference():
    def fn(x):
        with torch.inference_mode():
            y = x * 2
        return y.is_inference(), y.requires_grad, y.sum().item()

    return fn, lambda i: (leaf(i),), torch.is_inference_mode_enabled


def kernels_of_attention():
    def fn(x):
        q = x.reshape(1, 1, 3, 4)
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(q, q, q)
        return y, torch.backends.cuda.flash_sdp_enabled()

    return fn, plain, torch.backends.cuda.flash_sdp_enabled


OF_TORCH = [
    threads_outside, threads_inside, fast_path, autocast_of_another_device, seeds, seed_inside,
    generators, forked_numbers, default_dtype_inside, deterministic_inside, anomalies, inference,
    kernels_of_attention,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("make", OF_TORCH, ids=lambda make: make.__name__)
def test_state_of_torch(make):
    same_story(make)


# -- modes after an error -------------------------------------------------------------------------

BEFORE = ("", "with torch.no_grad(): {}", "with torch.enable_grad(): {}",
          "with torch.autocast('cpu', torch.bfloat16): {}",
          "with torch.no_grad(), torch.enable_grad(): {}")  # fmt: skip
AROUND = ("{}", "with torch.no_grad():\n        with torch.enable_grad(): {}",
          "with torch.autocast('cpu', torch.bfloat16): {}")  # fmt: skip


@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("outside", [True, False])
def test_modes_behind_an_error(broken, before, around, outside):
    """A write to a leaf that needs a gradient is an error where gradients are recorded. Regions of
    autocast are closed after it: PyTorch keeps casts of weights until the last one ends."""
    inside = "gh.graph_break()" if broken else "y = y * 2"
    lines = [before.format(inside) or inside, around.format("x.add_(x[0].item())")]
    space = {"gh": gh, "torch": torch}
    exec("def fn(x):\n    y = x * 1\n    " + "\n    ".join(lines) + "\n    return y", space)
    stories = []
    for called in (space["fn"], gh.optimize("eager")(space["fn"])):
        story = []
        for _ in range(3):
            x = torch.ones(2, requires_grad=True)
            with torch.set_grad_enabled(outside):
                try:
                    story.append(str(called(x)))
                except RuntimeError as error:
                    story.append(str(error))
                story.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
                story.append(autocast_nesting())
            story.append(x.tolist())
        stories.append(story)
    assert stories[0] == stories[1]


# -- numbers of NumPy -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "int8", "bool_", "float16"])
@pytest.mark.parametrize("compiler", ["eager", "program"])
def test_numbers_of_numpy(name, compiler):
    number = getattr(np, name)(1)
    functions = [lambda x: (x.mul_(2), x + number), lambda x: torch.where(x > 0, x, number)]
    functions.append(lambda x, np=2: x * np + number)
    for fn in functions:
        captured = gh.optimize(compiler)(fn)
        for _ in range(3):
            assert str(captured(torch.ones(2))) == str(fn(torch.ones(2)))
