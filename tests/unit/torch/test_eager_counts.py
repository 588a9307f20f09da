"""The FLOP counter around eager PyTorch, against counts by hand and PyTorch's own counter."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from glasshouse.bench.torch_cases import import_torchvision  # noqa: E402

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def counted(compute, column="model", view="matrix"):
    with gh.FlopCounter() as fc:
        compute()
    return fc.by_phase(view, column)


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def trained(*operands, by):
    """Both passes of a function of tensors that are differentiated."""

    def run():
        y = by(*operands)
        y = y[0] if isinstance(y, tuple) else y
        torch.autograd.backward(y, torch.ones_like(y))

    return run


# Operands, function, and FLOPs of forward and backward by hand.
BY_HAND = {
    "mm": ([(3, 4), (4, 5)], torch.mm, 2 * 3 * 4 * 5, 4 * 3 * 4 * 5),
    "addmm": ([(5,), (3, 4), (4, 5)], torch.addmm, 2 * 3 * 4 * 5, 4 * 3 * 4 * 5),
    "bmm": ([(2, 3, 4), (2, 4, 5)], torch.bmm, 2 * 2 * 3 * 4 * 5, 4 * 2 * 3 * 4 * 5),
    "baddbmm": (
        [(2, 3, 5), (2, 3, 4), (2, 4, 5)],
        torch.baddbmm,
        2 * 2 * 3 * 4 * 5,
        4 * 2 * 3 * 4 * 5,
    ),
    "mv": ([(3, 4), (4,)], torch.mv, 2 * 3 * 4, 2 * 3 * 4),
    "dot": ([(7,), (7,)], torch.dot, 2 * 7, 0),
    "einsum": (
        [(2, 3, 4), (2, 4, 5)],
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        2 * 2 * 3 * 4 * 5,
        4 * 2 * 3 * 4 * 5,
    ),
    "einsum of three axes": (
        [(2, 3, 4), (3, 4, 5)],
        lambda a, b: torch.einsum("bij,ijk->bk", a, b),
        2 * 2 * 12 * 5,
        4 * 2 * 12 * 5,
    ),
    "convolution": (
        [(2, 4, 8, 8), (6, 4, 3, 3)],
        F.conv2d,
        2 * 2 * 6 * 6 * 6 * 4 * 9,
        4 * 2 * 6 * 6 * 6 * 4 * 9,
    ),
    "padded, strided convolution": (
        [(2, 4, 8, 8), (6, 4, 3, 3)],
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        2 * 2 * 6 * 4 * 4 * 4 * 9,
        4 * 2 * 6 * 4 * 4 * 4 * 9,
    ),
    "grouped convolution": (
        [(2, 8, 8, 8), (6, 4, 3, 3)],
        lambda x, w: F.conv2d(x, w, groups=2),
        2 * 2 * 6 * 6 * 6 * 4 * 9,
        4 * 2 * 6 * 6 * 6 * 4 * 9,
    ),
    "depthwise convolution": (
        [(2, 32, 8, 8), (32, 1, 3, 3)],
        lambda x, w: F.conv2d(x, w, groups=32, padding=1),
        2 * 2 * 32 * 8 * 8 * 9,
        4 * 2 * 32 * 8 * 8 * 9,
    ),
    "transposed convolution": (
        [(2, 4, 8, 8), (4, 6, 3, 3)],
        F.conv_transpose2d,
        2 * 2 * 4 * 8 * 8 * 6 * 9,
        4 * 2 * 4 * 8 * 8 * 6 * 9,
    ),
    "grouped transposed convolution": (
        [(2, 4, 8, 8), (4, 3, 3, 3)],
        lambda x, w: F.conv_transpose2d(x, w, groups=2),
        2 * 2 * 4 * 8 * 8 * 3 * 9,
        4 * 2 * 4 * 8 * 8 * 3 * 9,
    ),
    "convolution in one axis": (
        [(2, 4, 9), (6, 4, 3)],
        F.conv1d,
        2 * 2 * 6 * 7 * 12,
        4 * 2 * 6 * 7 * 12,
    ),
    "attention": (
        [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)],
        F.scaled_dot_product_attention,
        4 * 2 * 3 * 5 * 7 * 8,
        8 * 2 * 3 * 5 * 7 * 8,
    ),
    "attention of shared keys": (
        [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        4 * 2 * 4 * 5 * 5 * 8,
        8 * 2 * 4 * 5 * 5 * 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_products_count_as_by_hand(name):
    shapes, function, forward, backward = BY_HAND[name]
    result = counted(trained(*(leaf(*shape) for shape in shapes), by=function))
    assert (result["forward"], result.get("backward", 0)) == (forward, backward)


def test_complex_numbers_count_as_the_real_ones_that_they_take():
    a, b = (torch.randn(4, 4, dtype=torch.complex64) for _ in range(2))
    assert counted(lambda: a @ b) == {"forward": 4 * 2 * 4**3}


def test_a_frozen_weight_has_no_gradient_to_count():
    layer = nn.Linear(4, 5)
    layer.requires_grad_(False)
    result = counted(trained(leaf(3, 4), by=layer))
    assert result == {"forward": 2 * 3 * 4 * 5, "backward": 2 * 3 * 4 * 5}


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_counts_its_products_of_both_passes(bidirectional):
    steps, batch, wide, hidden = 5, 3, 4, 6
    lstm = nn.LSTM(wide, hidden, 2, bidirectional=bidirectional)
    ways = 1 + bidirectional
    rows, gates = steps * batch, 4 * hidden
    widths = (wide + hidden) + (ways * hidden + hidden)  # of both layers
    forward = ways * 2 * rows * gates * widths
    result = counted(trained(leaf(steps, batch, wide), by=lstm))
    assert result == {"forward": forward, "backward": 2 * forward}


def test_a_gru_counts_its_products():
    gru = nn.GRU(4, 6)
    result = counted(lambda: gru(torch.randn(5, 3, 4)))
    assert result["forward"] == 2 * 5 * 3 * 18 * (4 + 6)


def test_attention_computes_its_scores_again_in_the_backward_pass():
    q, k, v = (leaf(2, 3, 5, 8) for _ in range(3))
    result = counted(trained(q, k, v, by=F.scaled_dot_product_attention), "executed")
    product = 2 * 2 * 3 * 5 * 5 * 8
    assert result == {"forward": 2 * product, "backward": 4 * product, "recompute": product}


def test_elements_count_in_the_view_of_all():
    x = torch.randn(3, 4)
    assert counted(lambda: x + x, view="all") == {"forward": 12}
    assert counted(lambda: x.clone().add_(x), view="all") == {"forward": 12}


def test_padding_is_no_work_in_the_algorithmic_column():
    x, w = torch.randn(1, 1, 10, 10), torch.randn(1, 1, 3, 3)
    assert counted(lambda: F.conv2d(x, w, padding=1))["forward"] == 2 * 100 * 9
    exact = counted(lambda: F.conv2d(x, w, padding=1), "algorithmic")["forward"]
    assert exact == 2 * (9 * 100 - 2 * 3 * 10 - 2 * 3 * 10 + 4)


# -- modules and passes -----------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return x + self.mlp(torch.tanh(self.attention(x)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)
        return self.head(x) @ torch.ones(2, 2)


ATTENTION, MLP, HEAD, OWN = 2 * 4 * 64, 2 * 2 * 4 * 8 * 16, 2 * 4 * 16, 2 * 4 * 4


def test_both_passes_belong_to_the_modules_by_their_names():
    model = Encoder()
    with gh.FlopCounter(model) as fc:
        model(torch.randn(4, 8)).sum().backward()
    by = fc.by_module()
    for i, first in enumerate((True, False, False)):
        assert by[f"layer.{i}.attention"] == (2 if first else 3) * ATTENTION
        assert by[f"layer.{i}.mlp"] == 3 * MLP
    assert by["head"] == 3 * HEAD
    assert by["Encoder"] == 2 * OWN
    assert fc.total(phase="backward", module="layer.1") == 2 * (ATTENTION + MLP)


def test_a_part_of_the_model_has_the_name_that_the_model_gives_it():
    model = Encoder()
    with gh.FlopCounter(model) as fc:
        model.layer[1](torch.randn(4, 8))
    assert fc.by_module()["layer.1.attention"] == ATTENTION
    assert set(fc.uncalled()) >= {"layer.0.attention", "layer.2", "head"}
    assert "layer.1.mlp.0" not in fc.uncalled()


def test_a_module_that_raises_leaves_the_next_ones_where_they_are():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError

    model = Encoder()
    with gh.FlopCounter() as fc:
        with pytest.raises(ValueError):
            Failing()(None)
        model(torch.randn(4, 8))
    assert fc.by_module()["layer.0.attention"] == ATTENTION


def test_updates_belong_to_the_optimizer():
    layer = nn.Linear(4, 4)
    for optimizer in (
        torch.optim.SGD(layer.parameters(), lr=0.1),
        torch.optim.Adam(layer.parameters()),
    ):
        layer(torch.ones(1, 4)).sum().backward()
        with gh.FlopCounter() as fc:
            optimizer.step()
        assert set(fc.by_phase("all")) == {"optimizer"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_told_apart(reentrant):
    model = Encoder()
    x = leaf(4, 8)

    def run():
        y = x
        for layer in model.layer:
            y = torch.utils.checkpoint.checkpoint(layer, y, use_reentrant=reentrant)
        y.sum().backward()

    with gh.FlopCounter(model) as fc:
        run()
    once = 3 * (ATTENTION + MLP)
    assert fc.by_phase() == {"forward": once, "backward": 2 * once}
    again = fc.total(column="executed", phase="recompute")
    # Without reentry it ends where all is there that the backward pass needs.
    assert again == (once if reentrant else once - 3 * MLP // 2)
    assert fc.total(module="layer.1", phase="backward") == 2 * (ATTENTION + MLP)
    assert fc.total(column="executed", module="layer.1", phase="recompute") == again // 3


def test_a_checkpoint_within_a_module_belongs_to_it():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(
                lambda y: torch.relu(y @ self.w) @ self.w, x, use_reentrant=False
            )

    model = nn.Sequential(Inner(), Inner())
    with gh.FlopCounter() as fc:
        model(leaf(4, 8)).sum().backward()
    product = 2 * 4 * 64
    for name in "01":
        assert fc.total(module=name, phase="forward") == 2 * product
        assert fc.total(module=name, phase="backward") == 4 * product
        assert fc.total(column="executed", module=name, phase="recompute") == product


def test_gradients_of_gradients_are_counted():
    layer = nn.Linear(4, 4, bias=False)
    x = leaf(3, 4)
    product = 2 * 3 * 4 * 4
    with gh.FlopCounter(layer) as fc:
        (g,) = torch.autograd.grad((layer(x) ** 2).sum(), x, create_graph=True)
        g.sum().backward()
    # x W, g W'; of the second pass: g' W to the first product and g'' x, ...
    assert fc.by_phase()["forward"] == product
    assert fc.by_phase()["backward"] % product == 0 and fc.by_phase()["backward"] >= 4 * product
    assert fc.total(module="Linear") == fc.total()


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "vmap", "grad"])
def test_transforms_of_functions_count_as_in_pytorchs_counter(transform):
    w = torch.randn(4, 4)

    def f(x):
        return torch.tanh(x @ w)

    function, x = {
        "jacrev": (torch.func.jacrev(f), torch.randn(4)),
        "jacfwd": (torch.func.jacfwd(f), torch.randn(3, 4)),
        "hessian": (torch.func.hessian(lambda x: f(x).sum()), torch.randn(3, 4)),
        "vmap": (torch.func.vmap(f), torch.randn(5, 3, 4)),
        "grad": (torch.func.grad(lambda x: f(x).sum()), torch.randn(3, 4)),
    }[transform]
    with gh.FlopCounter() as fc:
        function(x)
    with FlopCounterMode(display=False) as theirs:
        function(x)
    products = {row.primitive for row in fc.rows() if row.model}
    vectors = sum(n for name, n in fc.by_operator().items() if name in ("aten::mv", "aten::dot"))
    assert products and fc.total() - vectors == theirs.get_total_flops()  # it leaves out vectors


# -- models, against PyTorch's counter where that is right --------------------------------------


def loss_of(out):
    return getattr(out, "logits", getattr(out, "last_hidden_state", out)).float().sum()


def equal_to_pytorchs(model, *inputs):
    def run():
        loss_of(model(*inputs)).backward()

    with FlopCounterMode(display=False) as theirs:
        run()
    with gh.FlopCounter(model) as fc:
        run()
    assert fc.total() == theirs.get_total_flops() > 0
    return fc


def test_resnet18_counts_as_published():
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    model, x = import_torchvision().models.resnet18(), torch.randn(1, 3, 224, 224)
    with torch.no_grad(), gh.FlopCounter(model, multiply_add=1) as fc:
        model(x)
    assert fc.total() == 1_814_073_344  # torchvision: 1.814 GMACs
    equal_to_pytorchs(model, torch.randn(2, 3, 32, 32))


@pytest.mark.parametrize("family", ["Bert", "GPT2", "Llama"])
def test_transformers_count_as_by_hand(family):
    transformers = pytest.importorskip("transformers")
    width, inner, words, tokens, layers, heads = 32, 64, 50, 8, 2, 4
    config, model = {
        "Bert": ({"hidden_size": width, "intermediate_size": inner}, "BertModel"),
        "GPT2": ({"n_embd": width, "n_inner": inner}, "GPT2LMHeadModel"),
        "Llama": ({"hidden_size": width, "intermediate_size": inner}, "LlamaForCausalLM"),
    }[family]
    more = {"n_layer": layers, "n_head": heads} if family == "GPT2" else {
        "num_hidden_layers": layers, "num_attention_heads": heads}  # fmt: skip
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = getattr(transformers, f"{family}Config")(**config, **more, **ends, vocab_size=words)
    config._attn_implementation = "sdpa"
    options = {"add_pooling_layer": False} if family == "Bert" else {}
    model = getattr(transformers, model)(config, **options).eval()
    with gh.FlopCounter(model) as fc:
        loss_of(model(torch.randint(0, words, (1, tokens)))).backward()
    projections = 2 * tokens * (4 * width**2 + (3 if family == "Llama" else 2) * width * inner)
    attention = 4 * tokens**2 * width
    head = 0 if family == "Bert" else 2 * tokens * width * words
    assert fc.by_phase()["forward"] == layers * (projections + attention) + head
    assert fc.by_phase()["backward"] == 2 * fc.by_phase()["forward"]
    name = {"Bert": "encoder.layer", "GPT2": "transformer.h", "Llama": "model.layers"}[family]
    assert fc.by_module()[f"{name}.1"] == 3 * (projections + attention)


def test_the_fast_path_of_an_encoder_layer_counts():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        fast = counted(lambda: layer(x))
    assert fast == {"forward": 2 * 10 * (4 * 16**2 + 2 * 16 * 32) + 4 * 2 * 25 * 16}


def test_inference_mode_counts():
    layer = nn.Linear(4, 5)
    with torch.inference_mode():
        assert counted(lambda: layer(torch.randn(2, 3, 4))) == {"forward": 2 * 6 * 4 * 5}


@pytest.mark.slow
def test_eager_and_compiled_count_the_same_by_module_and_pass():
    from glasshouse.torch.backend.entry_point import glasshouse

    model, x = Encoder(), torch.randn(4, 8)
    compiled = torch.compile(model, backend=glasshouse)
    with gh.FlopCounter(model) as eager:
        model(x).sum().backward()
    compiled(x).sum().backward()
    with gh.FlopCounter(model) as ours:
        compiled(x).sum().backward()
    assert ours.by_phase() == eager.by_phase()
    for name in ("layer.0.attention", "layer.1.mlp", "head"):
        assert ours.by_module()[name] == eager.by_module()[name]


def test_compiling_within_the_counter_counts_what_runs():
    from glasshouse.torch.backend.entry_point import glasshouse

    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    compiled = torch.compile(model, backend=glasshouse)
    with gh.FlopCounter() as fc:
        for _ in range(3):
            compiled(x)
    assert fc.total() == 3 * 2 * 4 * 64


@pytest.mark.slow
def test_a_captured_step_runs_captured_and_counts_as_eager():
    model, x = Encoder(), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    with gh.FlopCounter(model) as eager:
        step(x)
    captured = gh.optimize(step)
    for _ in range(3):
        captured(x)
    with gh.FlopCounter(model) as ours:
        captured(x)
    assert ours.by_phase() == eager.by_phase()
    assert not any(name.startswith("aten::") for name in ours.by_operator())


# -- what must not happen ---------------------------------------------------------------------


def test_counters_nest_and_end_in_any_order():
    a = torch.ones(4, 4)
    outer, inner = gh.FlopCounter(), gh.FlopCounter()
    with outer:
        with inner:
            a @ a
        a @ a
    assert (outer.total(), inner.total()) == (2 * 2 * 64, 2 * 64)
    assert not torch._C._len_torch_dispatch_stack()


def test_a_mode_of_the_users_stays_where_it_is():
    from torch.utils._python_dispatch import TorchDispatchMode

    log = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append(str(func))
            return func(*args, **(kwargs or {}))

    a, prof = torch.ones(4, 4), gh.profile()
    prof.start()
    with Noting():
        prof.stop()
        a @ a
    assert log == ["aten.mm.default"]
    assert not torch._C._len_torch_dispatch_stack()


def test_without_a_counter_pytorch_is_as_it_was():
    from torch.optim import optimizer

    before = torch.autograd._engine_run_backward, nn.Module._call_impl
    with gh.FlopCounter():
        pass
    assert (torch.autograd._engine_run_backward, nn.Module._call_impl) == before
    assert not optimizer._global_optimizer_pre_hooks


def test_results_gradients_and_strides_are_those_without_a_counter():
    torch.manual_seed(0)
    model, x = Encoder(), torch.randn(4, 8)
    plain = model(x)
    plain.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with gh.FlopCounter():
        counted_result = model(x)
        counted_result.sum().backward()
    assert torch.equal(plain, counted_result)
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, model.parameters()))


def run_python(text: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_pytorch_is_loaded_by_nobody_but_the_user():
    text = (
        "import sys, glasshouse as gh\n"
        "with gh.FlopCounter():\n    gh.ones((2, 2)) @ gh.ones((2, 2))\n"
        "with gh.profile():\n    gh.ones(2) + 1\n"
        "print('torch' in sys.modules, len(sys.meta_path))"
    )
    assert run_python(text).split()[0] == "False"


@pytest.mark.slow
def test_pytorch_that_is_imported_within_is_seen():
    text = (
        "import glasshouse as gh\n"
        "with gh.FlopCounter() as fc:\n"
        "    import torch\n"
        "    torch.ones(4, 4) @ torch.ones(4, 4)\n"
        "print(fc.total())"
    )
    assert run_python(text).split() == ["128"]
