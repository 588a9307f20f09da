"""The FLOP counter: exact counts, whatever runs, by operator, module and pass."""

import gc
import threading
import weakref

import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError
from glasshouse.bench import torch_twins
from glasshouse.compile.programs import program
from glasshouse.nn import functional as F
from glasshouse.speech.models import AsrTransformer
from glasshouse.text.models import BertLike
from glasshouse.vision import models as vision

# GFLOP forward, and forward and backward, of one image: torchvision's published counts, twice the
# multiply-adds; all but the first layer three times.
REFERENCES = {
    "alexnet": (1.42837696, 4.14457728),
    "vgg16": (30.94052864, 92.648177664),
    "resnet18": (3.628146688, 10.64841216),
    "resnet50": (8.178368512, 24.299077632),
    "vit_b_16": (35.127656448, 105.151758336),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_counts_of_known_models(name):
    model = getattr(vision, name)()
    with gh.FlopCounter(model) as fc:
        out = model(gh.zeros((1, 3, 224, 224)))
    forward = fc.total()
    with fc:
        out.sum().backward()
    assert (forward / 1e9, fc.total() / 1e9) == REFERENCES[name]
    assert fc.uncalled() == []


def torch_counts(model, *inputs):
    """(forward, both) by PyTorch's counter, on tensors without storage."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = model.to("meta")
    inputs = [x.to("meta") for x in inputs]
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        out = model(*inputs)
        forward = counter.get_total_flops()
        out.sum().backward()
    return forward, counter.get_total_flops()


SMALL = {
    "alexnet": ({}, (2, 3, 224, 224)), "vgg16": ({}, (1, 3, 64, 64)),
    "resnet18": ({}, (2, 3, 64, 64)), "resnet50": ({}, (2, 3, 64, 64)),
    "vit_b_16": ({"num_layers": 2}, (1, 3, 224, 224)),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SMALL, "bert", "asr"])
def test_counts_equal_those_of_torch(name):
    torch = pytest.importorskip("torch")
    if name == "bert":
        options = {"vocab": 50, "layers": 2, "dim": 16, "heads": 2, "ff": 32}
        ours, x = BertLike(**options), gh.ones((2, 12), dtype=gh.int64)
        theirs_x = torch.ones((2, 12), dtype=torch.int64)
    elif name == "asr":
        options = {"features": 8, "layers": 2, "dim": 16, "heads": 2, "ff": 32}
        ours, x, theirs_x = AsrTransformer(**options), gh.ones((2, 90, 8)), torch.ones(2, 90, 8)
    else:
        options, shape = SMALL[name]
        ours, x, theirs_x = getattr(vision, name)(**options), gh.ones(shape), torch.ones(shape)
    with gh.FlopCounter() as fc:
        out = ours(x)
        forward = fc.total()
        out.sum().backward()
    assert (forward, fc.total()) == torch_counts(torch_twins.TWINS[name](**options), theirs_x)


def test_gpt2_small_counts_are_the_published_ones():
    # 12 layers, width 768, 1,024 tokens, vocabulary 50,257; nanoGPT's published numbers
    width, tokens, vocab = 768, 1024, 50257

    class Block(gh.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = gh.nn.Linear(width, 3 * width), gh.nn.Linear(width, width)
            self.up, self.down = gh.nn.Linear(width, 4 * width), gh.nn.Linear(4 * width, width)
            self.norm1, self.norm2 = gh.nn.LayerNorm(width), gh.nn.LayerNorm(width)

        def forward(self, x):
            q, k, v = (
                part.reshape((1, tokens, 12, 64)).transpose(1, 2)
                for part in gh.split(self.qkv(self.norm1(x)), 3, axis=-1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape((1, tokens, width)))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(gh.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = gh.nn.Embedding(vocab, width)
            self.blocks = gh.nn.Sequential(*(Block() for _ in range(12)))
            self.head = gh.nn.Linear(width, vocab, bias=False)

        def forward(self, idx):
            return self.head(self.blocks(self.embed(idx)))

    with gh.FlopCounter() as fc:
        out = Gpt()(gh.zeros((1, tokens), dtype=gh.int64))
        forward = fc.total()
        out.sum().backward()
    assert forward == 291_648_307_200
    assert fc.total() == 874_944_921_600


def counted(fn, view="matrix", column="model"):
    with gh.FlopCounter() as fc:
        fn()
    return fc.total(view, column)


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_backward_of_grouped_convolutions(groups):
    x = gh.ones((2, 8, 6, 6)).requires_grad_()
    w = gh.ones((8, 8 // groups, 3, 3)).requires_grad_()
    once = 2 * 2 * 8 * 4 * 4 * (8 // groups) * 9
    assert counted(lambda: F.conv2d(x, w, groups=groups)) == once
    assert counted(lambda: F.conv2d(x, w, groups=groups).sum().backward()) == 3 * once


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"dilation": 2}, {"padding": 1}, {"stride": 2, "padding": 2}]
)
def test_forward_and_backward_are_three_times_the_forward(options):
    x, w = gh.ones((1, 3, 9, 9)).requires_grad_(), gh.ones((4, 3, 3, 3)).requires_grad_()
    forward = counted(lambda: F.conv2d(x, w, **options))
    assert counted(lambda: F.conv2d(x, w, **options).sum().backward()) == 3 * forward
    t = gh.ones((3, 4, 3, 3)).requires_grad_()
    forward = counted(lambda: F.conv_transpose2d(x, t, stride=2))
    assert forward == 2 * 9 * 9 * 3 * 4 * 9
    assert counted(lambda: F.conv_transpose2d(x, t, stride=2).sum().backward()) == 3 * forward


def test_algorithmic_count_leaves_padding_out():
    # 10 x 10, 3 x 3 kernel, padding 1: of 900 taps on the border 784 meet data
    x, w = gh.ones((1, 1, 10, 10)), gh.ones((1, 1, 3, 3))
    with gh.FlopCounter() as fc:
        F.conv2d(x, w, padding=1)
    assert fc.total() == 2 * 900
    assert fc.total(column="algorithmic") == 2 * 28 * 28


@pytest.mark.quick
def test_complex_products_count_four_times():
    a = gh.ones((3, 4), dtype=gh.complex64)
    assert counted(lambda: a @ gh.ones((4, 5), dtype=gh.complex64)) == 4 * 2 * 3 * 4 * 5
    x = gh.ones((10,), dtype=gh.complex64)
    assert counted(lambda: x * x, "all") == 60
    assert counted(lambda: x + x, "all") == 20


def test_attention_and_recurrence_are_counted():
    q = gh.ones((2, 3, 7, 4))
    assert counted(lambda: F.scaled_dot_product_attention(q, q, q)) == 2 * 2 * (2 * 3 * 7 * 7 * 4)


def test_frozen_weights_have_no_weight_gradient():
    layer = gh.nn.Linear(5, 6, bias=False)
    layer.weight.requires_grad_(False)
    x = gh.ones((3, 5)).requires_grad_()
    assert counted(lambda: layer(x).sum().backward()) == 2 * (2 * 3 * 5 * 6)


def test_recomputation_is_counted_apart():
    layer = gh.nn.Linear(5, 5)
    x = gh.ones((3, 5)).requires_grad_()
    once = 2 * 3 * 5 * 5
    with gh.FlopCounter() as fc:
        gh.checkpoint(layer)(x).sum().backward()
    assert fc.total() == 3 * once
    assert fc.total(column="executed") == 4 * once
    assert fc.total(column="executed", phase="recompute") == once
    assert fc.total(module="Linear", column="executed") == 4 * once


def test_transforms_are_counted():
    w = gh.ones((4, 4))
    x = gh.ones((4,))

    def f(x):
        return ((w @ x.reshape((4, 1))) ** 2).sum()

    once = 2 * 16
    assert counted(lambda: gh.grad(f)(x)) == 2 * once
    assert counted(lambda: gh.jacobian(lambda x: w @ x.reshape((4, 1)))(x)) >= 4 * once
    assert counted(lambda: gh.hessian(f)(x)) > counted(lambda: gh.hvp(f, (x,), (x,))) > 2 * once
    assert counted(lambda: gh.vmap(lambda x: w @ x)(gh.ones((3, 4, 1)))) == 3 * once


def test_backward_belongs_to_the_module_of_its_forward():
    model = vision.resnet18(num_classes=10)
    with gh.FlopCounter() as fc:
        model(gh.ones((1, 3, 64, 64))).sum().backward()
    both = {p: fc.total(module="ResNet.conv1", phase=p) for p in ("forward", "backward")}
    assert both["forward"] == both["backward"] > 0  # the images need no gradient
    tree = fc.by_module(depth=1)
    assert tree["ResNet"] == fc.total()
    deep = fc.by_module()
    assert deep["ResNet.layer1"] == sum(deep[f"ResNet.layer1.{i}"] for i in range(2))


def test_control_flow_counts_what_ran():
    a = gh.ones((2, 2))

    def f(flag):
        return a @ a if flag else a

    assert counted(lambda: f(True)) == 16 and counted(lambda: f(False)) == 0


@pytest.mark.parametrize("backend", ["numpy", "lazy"])
def test_counts_do_not_depend_on_the_backend(backend):
    with gh.backends.use(backend):
        layer = gh.nn.Linear(4, 3)
        opt = gh.optim.AdamW(layer.parameters())
        with gh.FlopCounter() as fc:
            layer(gh.ones((2, 4))).sum().backward()
            opt.step()
        assert fc.total() == 2 * 2 * 2 * 4 * 3
        assert fc.by_phase("all")["optimizer"] > 0
        assert fc.total("all", "bytes") > 0 and fc.intensity > 0


@pytest.mark.quick
def test_macs_count_half_the_products():
    with gh.FlopCounter(multiply_add=1) as fc:
        gh.ones((2, 3)) @ gh.ones((3, 4))
    assert fc.total() == 24


def test_counters_may_be_nested_and_count_their_own_thread():
    a = gh.ones((2, 2))
    with gh.FlopCounter() as outer:
        a @ a
        with gh.FlopCounter() as inner:
            a @ a
        thread = threading.Thread(target=lambda: gh.ones((9, 9)) @ gh.ones((9, 9)))
        thread.start()
        thread.join()
    assert (outer.total(), inner.total()) == (32, 16)


def test_an_exception_inside_ends_the_counting():
    with pytest.raises(ZeroDivisionError), gh.FlopCounter() as fc:
        gh.ones((2, 2)) @ gh.ones((2, 2))
        raise ZeroDivisionError
    before = fc.total()
    gh.ones((2, 2)) @ gh.ones((2, 2))
    assert fc.total() == before == 16


def test_table_names_modules_operators_and_what_is_not_counted():
    model = gh.nn.Sequential(gh.nn.Linear(3, 4), gh.nn.ReLU())
    with gh.FlopCounter() as fc:
        model(gh.ones((2, 3))).sum().backward()
    text = str(fc)
    for part in ("Sequential", "matmul", "forward", "backward", "not counted", "algorithmic"):
        assert part in text
    assert fc.uncounted()["add"] >= 1
    assert fc.get_total_flops() == fc.get_flop_counts()["Global"]["matmul"]
    assert fc.by_operator() == {"matmul": fc.total()}


def test_bad_arguments():
    with pytest.raises(OptionError, match="multiply_add to be 1 or 2"):
        gh.FlopCounter(multiply_add=3)
    with pytest.raises(OptionError, match="expected a Module"):
        gh.FlopCounter(model=3)
    fc = gh.FlopCounter()
    with pytest.raises(OptionError, match="Did you mean 'matrix'"):
        fc.total("matrx")
    with pytest.raises(OptionError, match="as column"):
        fc.total(column="flops")
    with pytest.raises(OptionError, match="within itself"), fc, fc:
        pass


def test_op_callbacks_see_every_call_or_a_sample():
    x, log = gh.ones((3,)), []
    with gh.add_op_callback(lambda call: log.append((call.primitive.name, call.cost.flops))):
        x + x
    x * x
    assert log == [("add", 3)]
    sampled = []
    with gh.add_op_callback(sampled.append, every=3):
        for _ in range(10):
            x + x
    assert len(sampled) == 3
    with pytest.raises(OptionError, match="every to be 1 or more"):
        gh.add_op_callback(print, every=0)
    with pytest.raises(OptionError, match="expected a function"):
        gh.add_op_callback(3)


def test_captured_runs_are_counted_from_their_table():
    w = gh.ones((4, 4))

    @gh.optimize
    def product(x):
        return x @ w

    x = gh.ones((2, 4))
    for _ in range(3):
        product(x)
    with gh.FlopCounter() as fc, gh.FlopCounter() as inner:
        for _ in range(5):
            product(x).numpy()
        assert inner.total() == fc.total() == 5 * 2 * 2 * 4 * 4
        product(x).numpy()
    assert fc.total() == inner.total() == 6 * 64
    assert fc.by_phase() == {"forward": 6 * 64}
    thread = threading.Thread(target=lambda: product(x).numpy())
    with fc:
        thread.start()
        thread.join()
    assert fc.total() == 6 * 64  # a counter counts its own thread


def test_a_counter_alone_reads_no_clock_in_captured_runs(monkeypatch):
    @gh.optimize
    def product(x):
        return x @ x

    x = gh.ones((4, 4))
    for _ in range(3):
        product(x)
    monkeypatch.setattr(program, "perf_counter_ns", None)
    with gh.FlopCounter() as fc:
        product(x).numpy()
    assert fc.total() == 128


def test_captured_runs_count_though_their_program_is_gone():
    def products():
        @gh.optimize
        def product(x):
            return x @ x

        return product

    x, kept = gh.ones((4, 4)), products()
    kept(x), kept(x)
    with gh.FlopCounter() as fc:
        product = products()
        for _ in range(3):
            product(x).numpy()
        kept(x).numpy()
        alive = weakref.ref(product)
        del product, kept
        gc.collect()
        assert alive() is None
    assert fc.total() == 4 * 128


def test_captured_runs_of_several_shapes_and_with_errors_inside():
    @gh.optimize
    def product(x):
        return x @ x

    sizes = (2, 3, 4)
    for _ in range(2):
        for n in sizes:
            product(gh.ones((n, n)))
    with pytest.raises(ZeroDivisionError), gh.FlopCounter() as fc:
        for n in (*sizes, *sizes):
            product(gh.ones((n, n))).numpy()
        raise ZeroDivisionError
    product(gh.ones((2, 2))).numpy()
    assert fc.total() == 2 * sum(2 * n**3 for n in sizes)
    with fc:  # again: it goes on
        product(gh.ones((2, 2))).numpy()
        assert fc.total() == fc.total() == 2 * sum(2 * n**3 for n in sizes) + 16
        fc.reset()
        assert fc.total() == 0
        product(gh.ones((2, 2))).numpy()
    assert fc.total() == 16


def test_captured_runs_of_threads_at_a_time():
    @gh.optimize
    def product(x):
        return x @ x

    x, totals = gh.ones((4, 4)), {}
    product(x), product(x)

    def work(runs):
        with gh.FlopCounter() as fc:
            for _ in range(runs):
                product(x).numpy()
        totals[runs] = fc.total()

    threads = [threading.Thread(target=work, args=(runs,)) for runs in (5, 50, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {runs: 128 * runs for runs in (5, 50, 500)}


def test_modules_of_captured_programs_have_run():
    model = gh.nn.Sequential(gh.nn.Linear(4, 4), gh.nn.ReLU(), gh.nn.Linear(4, 2))
    fast, x = gh.optimize(model), gh.ones((2, 4))
    for _ in range(3):
        fast(x)
    with gh.FlopCounter(model) as fc:
        fast(x)
    assert fc.uncalled() == []


def test_modules_keep_their_names_when_the_model_is_gone():
    def train():
        model = gh.nn.Sequential(gh.nn.Linear(3, 4), gh.nn.Linear(4, 2))
        model(gh.ones((2, 3))).sum().backward()

    with gh.profile() as p, gh.FlopCounter() as fc:
        train()
        gc.collect()
    assert {"Sequential.0": 96, "Sequential.1": 96}.items() <= fc.by_module().items()
    assert "Sequential.1" in {row.module for row in p.modules().rows()}
    model = gh.nn.Sequential(gh.nn.Linear(3, 4))
    with gh.FlopCounter() as fc:
        model(gh.ones((2, 3)))
    model[0] = gh.nn.Identity()
    assert fc.by_module()["Sequential.0"] == 48


def test_counters_and_profiles_begin_inside_captured_functions():
    layer = gh.nn.Linear(3, 4)

    @gh.optimize
    def count(x):
        with gh.FlopCounter() as fc:
            y = layer(x)
        return y, fc.total()

    @gh.optimize
    def measure(x):
        with gh.profile() as p:
            y = layer(x).numpy()
        return y, p

    for _ in range(3):
        assert count(gh.ones((2, 3)))[1] == 48
        assert "matmul" in measure(gh.ones((2, 3)))[1].key_averages().table()


def test_modules_behind_a_graph_break_are_the_same():
    class Broken(gh.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = gh.nn.Linear(4, 4), gh.nn.Linear(4, 4)

        def forward(self, x, fails):
            x = self.first(x)
            gh.graph_break()
            if fails:
                raise ArithmeticError
            return gh.checkpoint(self.second)(x)

    class Whole(gh.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = Broken(), gh.nn.Linear(4, 4)

        def forward(self, x, fails=False):
            return self.last(self.inner(x, fails))

    model = Whole()

    def step(x):
        model(x).sum().backward()

    results, x = [], gh.ones((2, 4))
    for run in (step, *[gh.optimize(step)] * 3):
        with gh.FlopCounter() as fc:
            run(x)
        results.append({name: n for name, n in fc.by_module(column="executed").items() if n})
    assert results[1:] == results[:1] * 3 and "Whole.inner.second" in results[0]
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            gh.optimize(model)(x, True)
        assert gh.nn.current_module_path() == ""


@pytest.mark.parametrize("backend", ["lazy", "numpy"])
def test_gradients_that_nobody_asked_for_are_not_computed(backend):
    with gh.backends.use(backend):
        model = gh.nn.Sequential(gh.nn.Linear(4, 4), gh.nn.Tanh(), gh.nn.Linear(4, 4))
        x = gh.random.normal((2, 4)).requires_grad_(True)
        for _ in range(2):  # the second time some of it is recorded by C
            y = (model(x) ** 2).sum()
            with gh.FlopCounter() as fc:
                (result,) = gh.autograd.grad(y, x, retain_graph=True)
            assert fc.total() == 2 * 64  # as many products as in the forward pass
            y.backward()
        assert (result == x.grad / 2).all() and model[0].weight.grad is not None
        model.zero_grad()
        (result,) = gh.autograd.grad((model(x) ** 2).sum(), x, create_graph=True)
        (result**2).sum().backward()  # of a gradient penalty, which does reach the weights
        assert all((p.grad != 0).any() for p in (model[0].weight, model[2].weight, model[2].bias))
