"""PyTorch's models traced to graphs of torch.fx, and what their nodes cost."""

from importlib.util import find_spec
from math import prod

import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

from glasshouse.bench.torch_cases import import_torchvision  # noqa: E402

trace, profile = gh.analyze.symbolic_trace, gh.analyze.symbolic_profile


class Branching(nn.Module):
    """Branches and loops on sizes, a known mask, a tensor that is made inside, parts of a tuple."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x, ids=None, *, times=1):
        if x.dim() == 3:
            x = x.flatten(0, 1)
        for layer in self.layers[: len(x)]:
            x = F.relu(layer(x) * self.scale) + self.shift
        if ids is not None and (ids == 0).any():
            x = x.masked_fill((ids == 0).reshape(-1, 1), 0.0)
        left, right = x.chunk(2, -1)
        place = torch.arange(x.shape[0], dtype=x.dtype)[:, None]
        return {"out": torch.cat([left, right * times], -1) + place, "size": x.shape[0]}


def names(gm) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def test_a_traced_module_computes_what_the_model_does():
    model, x, ids = Branching(), torch.randn(2, 3, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    gm = trace(model, {"x": x, "ids": ids}, {"times": 3})
    assert isinstance(gm, torch.fx.GraphModule)
    result, expected = gm(x, ids), model(x, ids, times=3)
    assert torch.equal(result["out"], expected["out"]) and result["size"] == 6
    assert "flatten" in names(gm) and "masked_fill" in names(gm) and "arange" in names(gm)
    assert not {"getattr_1", "dim", "size"} & set(names(gm))
    assert all(p is q for p, q in zip(model.parameters(), gm.parameters(), strict=False))


def test_sizes_decide_as_they_are():
    gm = trace(Branching(), [((1, 4), torch.float32)])
    assert "flatten" not in names(gm) and len(gm.graph.find_nodes(op="call_module")) == 1


def test_nodes_say_spec_and_module():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Branching()

        def forward(self, x):
            return self.inner(x)["out"]

    gm = trace(Outer(), ((5, 4), "float32"))
    (relu, *_) = gm.graph.find_nodes(op="call_function", target=F.relu)
    assert relu.meta["module"] == "inner" and relu.meta["spec"].shape == (5, 4)


def test_which_modules_are_nodes_can_be_chosen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert names(trace(model, ((1, 2), "float32"))) == ["input_1", "_0", "_1_0", "output"]
    gm = trace(model, ((1, 2), "float32"), is_leaf=lambda m: m is model[1])
    assert names(gm) == ["input_1", "linear", "_1", "output"] or "_1" in names(gm)


def test_a_value_that_is_read_is_told():
    class Asking(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(BackendError, match=r"reads no values.*test_node_trace\.py:\d"):
        trace(Asking(), ((2, 2), "float32"))


def test_arguments_without_names_of_their_own_are_traced():
    class Open(nn.Module):
        def forward(self, x, *others, **named):
            return x + sum(others) - named.get("last", 0.0)

    spec = ((2, 3), "float32")
    x, y, z = torch.randn(3, 2, 3)
    assert torch.equal(trace(Open(), [spec] * 3)(x, (y, z)), Open()(x, y, z))
    gm = trace(Open(), {"x": spec, "last": spec})
    assert torch.equal(gm(x, {"last": z}), Open()(x, last=z))


def test_wrong_arguments_are_refused():
    model = Branching()
    with pytest.raises(OptionError, match="missing a required argument: 'x'"):
        trace(model, [])
    with pytest.raises(OptionError, match=r"Branching.forward\(x, ids.*too many"):
        trace(model, [torch.ones(1, 4)] * 3)
    with pytest.raises(OptionError, match="meta_args as a dict by name or a sequence"):
        trace(model, 3)
    with pytest.raises(OptionError, match="Did you mean 'x'"):
        trace(model, {"xx": torch.ones(1, 4)})
    with pytest.raises(OptionError, match="neither bias_addition_split nor primitives"):
        trace(model, torch.ones(1, 4), primitives=True)
    with pytest.raises(OptionError, match="2 arguments|1 arguments"):
        profile(trace(model, torch.ones(1, 4)))


def saved_bytes(model, x) -> int:
    """Return the bytes that autograd saves of a real forward, each storage once, without parameters
    and buffers."""
    own = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}
    saved = {}

    def pack(t):
        saved[t.untyped_storage()._cdata] = t.untyped_storage()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = model(x)
    del result
    return sum(s.nbytes() for where, s in saved.items() if where not in own)


@pytest.mark.parametrize("batch", [2, 5])
def test_what_is_saved_is_what_autograd_saves(batch):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 4),
    )
    x = torch.randn(batch, 3, 8, 8)
    table = profile(trace(model, x), x)
    assert table.total("accumulate") == saved_bytes(model, x) == table.total("incremental")
    assert table.total("param") == sum(p.nbytes for p in model.parameters())


def test_exact_flops_are_those_of_a_counter():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(32, 8)
    table = profile(trace(model, x), x)
    with gh.FlopCounter() as counter:
        model(x).sum().backward()
    assert table["_0"].forward_flops == 2 * 32 * 8 * 16 + 32 * 16
    assert table.total("forward_flops") == counter.total("all", phase="forward") - 32 * 4
    assert table["_0"].backward == 0 and table["_2"].backward == 4 * 32 * 16
    assert table["_2"].forward_ns > 0
    assert "_1" in str(table) and "<td>_1</td>" in table.to_html()


def colossal(model, *shapes):
    inputs = [(shape, "float32") for shape in shapes]
    gm = trace(model, inputs)
    return profile(gm, *inputs, convention="colossal")


def test_colossal_counts_by_its_formulas():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
        nn.LayerNorm(10, elementwise_affine=False),
        nn.Softmax(-1),
    )
    table = colossal(model, (2, 3, 8, 8))
    macs = 2 * 8 * 64 * 27
    assert (table["_0"].forward_flops, table["_0"].backward_flops) == (macs, macs)
    assert table["_1"].backward_flops == 5 * 2 * 8 * 64
    assert table["_1"].forward_flops == 5 * 2 * 8 * 64 + 1  # it counts the batches
    assert table["_2"].forward_flops == 2 * 8 * 64 and table["_4"].forward_flops == 0
    assert table["_5"].forward_flops == 2 * 128 * 10
    assert table["_5"].backward_flops == 2 * 2 * 128 * 10 + 2 * 10  # and the bias's, a sum
    assert table["_6"].forward_flops == 4 * 20 and table["_7"].forward_flops == 20
    assert table["_3"].forward_flops == 2 * 8 * 64 and table["_3"].backward_flops == 2 * 8 * 64


def test_a_tensor_that_is_passed_often_is_listed_as_often():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            out, _ = self.attention(x, x, x, need_weights=False)
            return torch.cat([out, x])

    table = colossal(Own(), (2, 5, 16))
    assert [row.name for row in table] == [
        "x",
        "attention",
        "getitem",
        "getitem_1",
        "cat",
        "output",
    ]
    assert table["attention"].backward == 3 * 4 * 2 * 5 * 16
    assert table["getitem"].backward == table["cat"].backward == 0
    scores = 2 * 2 * 5 * 5
    macs = 4 * 10 * 16 * 16 + 2 * scores * 8
    others = scores + 10 * 16 + 10 * 3 * 16  # softmax, q / sqrt(d), the bias apart
    assert table["attention"].forward_flops == macs + others


def test_torchvisions_vit_has_the_rows_of_the_published_table():
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    with torch.device("meta"):
        model = import_torchvision().models.vit_b_16()
    table = colossal(model, (8, 3, 224, 224))
    assert len(table) == 170
    assert table.total("param") == 346_270_624
    size, tokens = 8 * 197 * 768, 8 * 197
    assert table["x"].accumulate == 4 * prod((8, 3, 224, 224)) and table["x"].incremental == 0
    assert table["conv_proj"].forward_flops == table["conv_proj"].backward_flops == 924_844_032
    layer = table["encoder_layers_encoder_layer_11_ln_1"]
    assert layer.forward_flops == layer.backward_flops == 5 * size
    mlp = table["encoder_layers_encoder_layer_11_mlp_0"]
    assert mlp.forward_flops == tokens * 768 * 3072 and mlp.backward == 4 * size
    assert "4.59 Mb" in table.table() and "924.84 MFLOPs" in table.table()
