"""Symbolic trace and profile: graphs that compute what the model does; what their nodes cost."""

import json
import pickle

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.analyze import (
    register_function,
    register_shape_rule,
    symbolic_profile,
    symbolic_trace,
)
from glasshouse.base.errors import BackendError, OptionError
from glasshouse.vision import models as vision

IMAGE = ((2, 3, 64, 64), "float32")


class Net(gh.nn.Module):
    """Loops, shape control flow, nested results, a keyword."""

    def __init__(self):
        super().__init__()
        self.layers = gh.nn.ModuleList([gh.nn.Linear(4, 4) for _ in range(3)])
        self.scale = gh.nn.Parameter(gh.ones((4,)))

    def forward(self, x, repeat=1, flag=False):
        for layer in self.layers:
            for _ in range(repeat):
                x = gh.nn.functional.relu(layer(x)) * self.scale
        if x.shape[0] > 1 and not flag:
            x = x + gh.arange(4)
        return {"out": x, "parts": [x.sum(axis=0), x.T]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alexnet", "resnet18", "vit_b_16"])
def test_traced_models_compute_the_same(name):
    options = {"num_layers": 2, "image_size": 64} if name == "vit_b_16" else {}
    gh.random.seed(0)
    model = getattr(vision, name)(num_classes=10, **options).eval()
    gm = symbolic_trace(model, [IMAGE])
    x = gh.random.normal(IMAGE[0])
    gm.graph.lint()
    again = pickle.loads(pickle.dumps(gm))
    assert again.code == gm.code
    with gh.backends.use("numpy"):
        expected = model(x).numpy()
        assert (gm(x).numpy() == expected).all() and (again(x).numpy() == expected).all()
    assert dict(gm.named_parameters()).keys() == dict(model.named_parameters()).keys()


def test_control_flow_and_containers_resolve():
    model = Net()
    gm = symbolic_trace(model, {"x": ((2, 4), "float32")}, {"repeat": 2})
    x = gh.random.normal((2, 4))
    ours, theirs = gm(x), model(x, repeat=2)
    assert (ours["out"].numpy() == theirs["out"].numpy()).all()
    assert (ours["parts"][1].numpy() == theirs["parts"][1].numpy()).all()
    assert len(gm.graph.find("call_module")) == 6
    alone = symbolic_trace(model, {"x": ((1, 4), "float32")})
    assert len(alone.graph) < len(symbolic_trace(model, [((2, 4), "float32")]).graph)


class Spelled(gh.nn.Module):
    """Functions, methods, operators and indices."""

    def __init__(self):
        super().__init__()
        self.inner = gh.nn.Linear(4, 6)

    def forward(self, x):
        y = gh.nn.functional.relu(self.inner(x)).view(x.shape[0], 2, -1)
        return gh.concat([y, 2 / (1 + y)], axis=1).transpose(1, 2)[:, 1:, ..., 0] - y.mean()


def test_calls_are_named_as_they_were_written():
    model, spec = Spelled(), ((3, 4), "float32")
    gm = symbolic_trace(model, [spec])
    lines = [line.partition("  #")[0].strip() for line in gm.code.splitlines()]
    assert lines[2:] == [
        "relu = F.relu(inner)",
        "view = relu.view(3, 2, -1)",
        "add = 1 + view",
        "truediv = 2 / add",
        "concat = gh.concat([view, truediv], axis=1)",
        "transpose = concat.transpose(1, 2)",
        "getitem = transpose[:, 1:, ..., 0]",
        "mean = view.mean()",
        "sub = getitem - mean",
        "return sub",
    ]
    x = gh.random.normal((3, 4))
    for same in (gm, pickle.loads(pickle.dumps(gm))):
        assert (same(x).numpy() == model(x).numpy()).all()
    below = symbolic_trace(model, [spec], primitives=True)
    assert "primitives['where']" in below.code and "F.relu" not in below.code
    assert (below(x).numpy() == model(x).numpy()).all()


def test_model_is_unchanged_by_tracing():
    model = vision.resnet18(num_classes=10)
    before = {name: b.numpy().copy() for name, b in model.named_buffers()}
    symbolic_trace(model, [IMAGE])
    assert all((b.numpy() == before[name]).all() for name, b in model.named_buffers())
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_nodes_know_spec_module_and_line():
    gm = symbolic_trace(vision.resnet18(num_classes=10), [IMAGE])
    node = next(n for n in gm.graph if n.target == "layer1.0.conv1")
    assert str(node.meta["spec"]) == "float32[2, 64, 16, 16]"
    assert node.meta["module"].startswith("ResNet.layer1.0")
    user = symbolic_trace(Net(), [((2, 4), "float32")]).graph.find("call_module")[0]
    assert "test_trace.py:" in user.meta["line"]


def test_checkpoint_regions_are_kept():
    class Blocks(gh.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = gh.nn.Linear(4, 4), gh.nn.Linear(4, 4)

        def forward(self, x):
            x = gh.checkpoint(lambda v: gh.tanh(self.a(v)))(x)
            return gh.checkpoint(lambda v: gh.tanh(self.b(v)) + v)(x)

    model = Blocks()
    gm = symbolic_trace(model, [((2, 4), "float32")])
    assert gm.code.count("checkpoint(region_") == 2
    x = gh.random.normal((2, 4)).requires_grad_()
    with gh.FlopCounter() as fc:
        gm(x).sum().backward()
    assert fc.total(column="executed", phase="recompute") == 2 * 2 * 2 * 4 * 4
    plain = symbolic_trace(model, [((2, 4), "float32")], trace_act_ckpt=False)
    assert "checkpoint" not in plain.code


@pytest.mark.slow
def test_biases_are_split_off():
    model = vision.alexnet(num_classes=10, dropout=0.0)
    gm = symbolic_trace(model, [IMAGE], bias_addition_split=True)
    names = [n.name for n in gm.graph if n.name.startswith("add_bias")]
    assert len(names) == 8
    x = gh.random.normal(IMAGE[0])
    np.testing.assert_allclose(gm(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_branches_on_values_name_the_line():
    class Branches(gh.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(BackendError, match=r"test_trace.py:\d+"):
        symbolic_trace(Branches(), [((2,), "float32")])


def test_functions_can_be_registered():
    def by_value(x):
        return gh.asarray(np.sort(x.numpy()))

    call = register_function(by_value)

    @register_shape_rule(by_value)
    def shape(x):
        return (tuple(x.shape), "float32")

    class Uses(gh.nn.Module):
        def forward(self, x):
            return call(x) * 2

    gm = symbolic_trace(Uses(), [((3,), "float32")])
    assert gm.graph.find("call_function", by_value)
    assert gm(gh.asarray([1.0, -1.0, 3.0])).tolist() == [-2, 2, 6]


def test_bad_arguments():
    model = Net()
    with pytest.raises(OptionError, match="Did you mean 'repeat'"):
        symbolic_trace(model, {"repeats": ((2, 4), "float32")})
    with pytest.raises(OptionError, match=r"forward\(x, repeat=1, flag=False\); got too many"):
        symbolic_trace(model, [((2, 4), "float32")] * 4)
    with pytest.raises(OptionError, match="expected a Module"):
        symbolic_trace(lambda x: x, [((2,), "float32")])
    with pytest.raises(OptionError, match="traced module"):
        symbolic_profile(model, ((2, 4), "float32"))


# -- the profile: ViT-B/16, batch 8, in closed form ---------------------------------------------

BATCH, TOKENS, WIDTH, HEADS, LAYERS = 8, 197, 768, 12, 12
ROWS = BATCH * TOKENS
ROW_BYTES = 4 * ROWS * WIDTH


@pytest.fixture(scope="module")
def vit():
    gm = symbolic_trace(vision.vit_b_16(), [((BATCH, 3, 224, 224), "float32")])
    spec = ((BATCH, 3, 224, 224), "float32")
    return {c: symbolic_profile(gm, spec, convention=c) for c in ("exact", "colossal")}


def linear(m, k, n):
    return 2 * m * k * n


@pytest.mark.slow
def test_exact_rows_are_closed_forms(vit):
    t = vit["exact"]
    patches = linear(BATCH * 196, 3 * 16 * 16, WIDTH)
    assert t["conv_proj"].forward_flops == patches + BATCH * 196 * WIDTH  # and its bias
    assert t["conv_proj"].param == 4 * (WIDTH * 3 * 16 * 16 + WIDTH)
    assert t["conv_proj"].backward == 0  # images need no gradient
    assert t["flatten"].output == t["flatten"].temp == t["transpose"].temp == 0  # views
    assert t["concat"].temp + t["concat"].output == ROW_BYTES
    assert t["add"].forward_flops == ROWS * WIDTH
    layer = "encoder_layers_encoder_layer_0_"
    mlp = t[layer + "mlp_0"]
    assert mlp.forward_flops == linear(ROWS, WIDTH, 3072) + ROWS * 3072
    assert mlp.backward == ROW_BYTES and mlp.param == 4 * (WIDTH * 3072 + 3072)
    assert mlp.output == 4 * ROW_BYTES  # the next layer keeps it
    attention = t[layer + "self_attention"]
    assert attention.param == 4 * (4 * WIDTH * WIDTH + 4 * WIDTH)
    head = t["heads_head"]
    assert head.forward_flops == linear(BATCH, WIDTH, 1000) + BATCH * 1000
    assert head.param == 4 * (WIDTH * 1000 + 1000)
    assert t.total("param") == 4 * 86_567_656
    assert t.total("accumulate") == t.total("incremental")


def test_colossal_rows_are_closed_forms(vit):
    t = vit["colossal"]
    size = ROWS * WIDTH
    assert t["conv_proj"].forward_flops == BATCH * 196 * WIDTH * 768 == 924_844_032
    assert t["conv_proj"].backward_flops == t["conv_proj"].forward_flops
    assert t["images"].accumulate == 4 * BATCH * 3 * 224 * 224 and t["images"].incremental == 0
    assert t["add"].forward_flops == size
    layer = "encoder_layers_encoder_layer_0_"
    assert t[layer + "ln_1"].forward_flops == 5 * size == t[layer + "ln_1"].backward_flops
    assert t[layer + "ln_1"].param == 4 * 2 * WIDTH
    # Kept: its operand, counted where that was made, mean and deviation of each row, its result.
    assert t["add"].incremental == ROW_BYTES
    assert t[layer + "ln_1"].incremental == ROW_BYTES + 2 * 4 * ROWS
    assert t[layer + "mlp_0"].forward_flops == ROWS * WIDTH * 3072
    assert t[layer + "mlp_0"].backward_flops == 2 * ROWS * WIDTH * 3072
    assert t[layer + "mlp_1"].forward_flops == ROWS * 3072  # GELU
    assert t[layer + "dropout"].forward_flops == 0
    scores = BATCH * HEADS * TOKENS * TOKENS
    macs = 4 * ROWS * WIDTH * WIDTH + 2 * scores * 64
    assert t[layer + "self_attention"].forward_flops == macs + scores
    assert t["heads_head"].forward_flops == BATCH * WIDTH * 1000
    assert t.total("param") == 346_270_624
    assert "4.59 Mb" in t.table() and "924.84 MFLOPs" in t.table()


def test_tables_sort_and_become_other_things(vit):
    t = vit["exact"]
    assert t.sorted("forward_flops")[0].forward_flops == max(r.forward_flops for r in t)
    assert len(json.loads(t.to_json())) == len(t) and "<td>conv_proj</td>" in t.to_html()
    assert "encoder" in t.modules(3) and "total" in str(t)
    with pytest.raises(OptionError, match="Did you mean"):
        t["conv_prj"]
    with pytest.raises(OptionError, match="expected a column"):
        t.total("flops")
    with pytest.raises(OptionError, match="exact, colossal"):
        symbolic_profile(symbolic_trace(Net(), [((2, 4), "float32")]), convention="x")
