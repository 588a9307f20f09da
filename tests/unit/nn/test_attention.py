"""Attention and transformer layers against PyTorch's."""

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import nn
from glasshouse.base.errors import DTypeError, OptionError, ShapeError

rng = np.random.default_rng(0)


def mask_of(kind, shape):
    """A mask in which every query may attend somewhere."""
    if kind is None:
        return None
    allowed = np.random.default_rng(1).uniform(size=shape) < 0.6
    allowed[..., 0] = True
    return allowed if kind == "bool" else np.where(allowed, rng.normal(size=shape), -np.inf)


@pytest.mark.parametrize("kind", [None, "bool", "float"])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}])
def test_scaled_dot_product_attention_equals_pytorchs(twin, kind, options):
    torch = twin.torch
    q, k, v = (
        rng.normal(size=(2, 3, 4, 5)),
        rng.normal(size=(2, 3, 6, 5)),
        rng.normal(size=(2, 3, 6, 7)),
    )
    mask = mask_of(kind, (2, 1, 4, 6))
    t = None if mask is None else torch.tensor(mask)
    twin.function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, **options),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, t, **options),
        q,
        k,
        v,
    )


def test_causal_and_grouped_queries(twin):
    theirs = twin.torch.nn.functional.scaled_dot_product_attention
    q, k, v = (
        rng.normal(size=(2, 6, 4, 5)),
        rng.normal(size=(2, 2, 4, 5)),
        rng.normal(size=(2, 2, 4, 5)),
    )
    twin.function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        lambda q, k, v: theirs(q, k, v, is_causal=True, enable_gqa=True),
        q,
        k,
        v,
    )


def test_a_query_without_keys_gives_zero():
    q = gh.asarray(rng.normal(size=(2, 3))).requires_grad_()
    mask = np.array([[True, True], [False, False]])
    y = F.scaled_dot_product_attention(q, q, q, mask)
    y.sum().backward()
    assert not y.numpy()[1].any() and np.isfinite(q.grad.numpy()).all()


OPTIONS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"kdim": 5, "vdim": 7},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True, "kdim": 3},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("attn", [None, "bool", "float", "heads"])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
def test_multihead_attention_equals_pytorchs(twin, options, attn, padding):
    torch = twin.torch
    ours, theirs = (lib.MultiheadAttention(8, 2, **options) for lib in (nn, torch.nn))
    q, k, v = (
        rng.normal(size=(3, n, d))
        for n, d in ((4, 8), (6, options.get("kdim", 8)), (6, options.get("vdim", 8)))
    )
    if not options.get("batch_first"):
        q, k, v = (x.transpose(1, 0, 2) for x in (q, k, v))
    masks = {}
    if attn is not None:
        shape = (6, 4, 6) if attn == "heads" else (4, 6)
        mask = mask_of("bool" if attn == "heads" else attn, shape)
        masks["attn_mask"] = ~mask if mask.dtype == bool else mask
    if padding:
        masks["key_padding_mask"] = np.arange(6) >= np.array([[6], [4], [5]])
    tensors = {name: torch.tensor(m) for name, m in masks.items()}
    twin.module(ours, Masked(theirs, tensors, torch), q, k, v, **masks)
    twin.module(ours, Masked(theirs, tensors, torch), q, k, v, average_attn_weights=False, **masks)


class Masked:
    """PyTorch's module with the masks as its tensors."""

    def __init__(self, module, tensors, torch):
        self.module, self.tensors = module, tensors

    def __getattr__(self, name):
        return getattr(self.module, name)

    def __repr__(self):
        return repr(self.module)

    def double(self):
        self.module.double()
        return self

    def __call__(self, *args, **options):
        return self.module(*args, **(options | self.tensors))


@pytest.mark.parametrize("options", [{}, {"batch_first": True}])
def test_self_attention_and_cross_attention_equal_pytorchs(twin, options):
    torch = twin.torch
    ours, theirs = (lib.MultiheadAttention(8, 4, **options).double() for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    x, y = rng.normal(size=(5, 5, 8)), rng.normal(size=(3, 5, 8))
    if options:
        y = y.transpose(1, 0, 2)
    twin.function(lambda x: ours(x, x, x), lambda x: theirs(x, x, x), x)
    twin.function(lambda x, y: ours(y, x, x), lambda x, y: theirs(y, x, x), x, y)
    twin.function(
        lambda x: ours(x, x, x, need_weights=False),
        lambda x: theirs(x, x, x, need_weights=False),
        x,
    )
    causal = ~np.tril(np.ones((5, 5), bool))
    twin.function(
        lambda x: ours(x, x, x, is_causal=True),
        lambda x: theirs(
            x, x, x, attn_mask=torch.tensor(causal), is_causal=True, need_weights=True
        ),
        x,
    )
    twin.function(lambda x: ours(x[0], x[0], x[0]), lambda x: theirs(x[0], x[0], x[0]), x)


def parameters_of(module):
    """Return the arguments that multi_head_attention_forward takes of a module."""
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    first = (module.embed_dim, module.num_heads, module.in_proj_weight, module.in_proj_bias)
    last = (module.dropout, module.out_proj.weight, module.out_proj.bias)
    extra = (module.bias_k, module.bias_v, module.add_zero_attn)
    separate = {name: getattr(module, name) for name in names}
    separate["use_separate_proj_weight"] = module.in_proj_weight is None
    return (*first, *extra, *last), separate


@pytest.mark.parametrize("options", [{}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True}])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_the_function_equals_pytorchs(twin, options, static, need_weights):
    torch, inputs = twin.torch, {"need_weights": need_weights, "average_attn_weights": False}
    ours, theirs = (lib.MultiheadAttention(8, 2, **options).double() for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    shapes = [(4, 3, 8), (6, 3, options.get("kdim", 8)), (6, 3, options.get("vdim", 8))]
    extra = [(6, 6, 4), (6, 6, 4)] if static and not options else []

    def run(lib, module, q, k, v, *fixed):
        first, separate = parameters_of(module)
        fixed = dict(zip(("static_k", "static_v"), fixed, strict=False))
        return lib.multi_head_attention_forward(q, k, v, *first, **separate, **fixed, **inputs)

    twin.function(
        lambda *xs: run(F, ours, *xs),
        lambda *xs: run(torch.nn.functional, theirs, *xs),
        *(rng.normal(size=shape) for shape in shapes + extra),
    )


def test_second_derivatives_equal_pytorchs(twin):
    torch = twin.torch
    ours, theirs = (lib.MultiheadAttention(4, 2).double() for lib in (nn, torch.nn))
    ours.load_state_dict(theirs.state_dict())
    x, results = rng.normal(size=(3, 1, 4)), []
    for lib, module, tensor in ((gh, ours, gh.asarray(x)), (torch, theirs, torch.tensor(x))):
        tensor.requires_grad_()
        y = (module(tensor, tensor, tensor)[0] ** 3).sum()
        (g,) = lib.autograd.grad(y, tensor, create_graph=True)
        (g**2).sum().backward()
        results.append((tensor.grad.numpy(), module.in_proj_weight.grad.numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_initial_values_follow_pytorch():
    gh.random.seed(0)
    layer = nn.MultiheadAttention(32, 4)
    bound = (6 / (32 * 4)) ** 0.5
    weight = layer.in_proj_weight.numpy()
    assert np.abs(weight).max() <= bound and weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not layer.in_proj_bias.numpy().any() and not layer.out_proj.bias.numpy().any()


LAYER = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"activation": "gelu"}, {"batch_first": True}, {"bias": False}],
)
@pytest.mark.parametrize("training", [True, False])
def test_encoder_layer_equals_pytorchs(twin, options, training):
    ours, theirs = (lib.TransformerEncoderLayer(**LAYER, **options) for lib in (nn, twin.torch.nn))
    x = rng.normal(size=(4, 3, 8))
    twin.module(ours.train(training), theirs.train(training), x)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_encoder_equals_pytorchs(twin, norm_first):
    torch = twin.torch
    nets = []
    for lib in (nn, torch.nn):
        layer = lib.TransformerEncoderLayer(**LAYER, norm_first=norm_first, batch_first=True)
        nets.append(lib.TransformerEncoder(layer, 3, norm=lib.LayerNorm(8)))
    x = rng.normal(size=(3, 4, 8))
    twin.module(*nets, x)
    padding = np.arange(4) >= np.array([[4], [2], [3]])
    causal = ~np.tril(np.ones((4, 4), bool))
    twin.function(
        lambda x: nets[0](x, causal, padding),
        lambda x: nets[1](x, torch.tensor(causal), torch.tensor(padding)),
        x,
    )


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_equals_pytorchs(twin, norm_first):
    torch = twin.torch
    nets = []
    for lib in (nn, torch.nn):
        layer = lib.TransformerDecoderLayer(**LAYER, norm_first=norm_first)
        nets.append(lib.TransformerDecoder(layer, 2, norm=lib.LayerNorm(8)))
    twin.module(*nets, rng.normal(size=(4, 3, 8)), rng.normal(size=(5, 3, 8)))


@pytest.mark.slow
def test_dropout_acts_only_while_training():
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.5)
    x = gh.asarray(rng.normal(size=(4, 3, 8)).astype("f4"))
    assert (layer(x).numpy() != layer(x).numpy()).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


@pytest.mark.slow
def test_per_example_gradients_of_a_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    xs = gh.random.normal((3, 4, 8))
    grads = gh.vmap(gh.grad(lambda x: (layer(x[None]) ** 2).sum()))(xs)
    alone = gh.grad(lambda x: (layer(x[None]) ** 2).sum())(xs[1])
    np.testing.assert_allclose(grads[1].numpy(), alone.numpy(), rtol=1e-3, atol=1e-4)


X = gh.ones((4, 3, 8))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            lambda: nn.MultiheadAttention(8, 3),
            OptionError,
            "expected num_heads to divide embed_dim; got embed_dim=8",
        ),
        (
            lambda: nn.MultiheadAttention(8, 2)(X, X, gh.ones((4, 3, 7))),
            ShapeError,
            "expected value of 8 features",
        ),
        (
            lambda: nn.MultiheadAttention(8, 2)(X, X[:, :2], X[:, :2]),
            ShapeError,
            "Check batch_first=False",
        ),
        (lambda: nn.MultiheadAttention(8, 2)(X[0, 0], X, X), ShapeError, "2 or 3 axes"),
        (
            lambda: nn.MultiheadAttention(8, 2)(X, X, X, attn_mask=gh.ones((3, 4))),
            ShapeError,
            "expected attn_mask of (4, 4) or (6, 4, 4); got (3, 4)",
        ),
        (
            lambda: nn.MultiheadAttention(8, 2)(X, X, X, gh.ones((4, 3))),
            ShapeError,
            "expected key_padding_mask of (3, 4)",
        ),
        (
            lambda: nn.MultiheadAttention(8, 2)(
                X, X, X, attn_mask=gh.asarray(np.ones((4, 4), int))
            ),
            DTypeError,
            "boolean or floating attn_mask; got int64",
        ),
        (
            lambda: nn.TransformerEncoderLayer(8, 2, activation="gleu"),
            OptionError,
            "Did you mean 'gelu'?",
        ),
        (lambda: nn.TransformerEncoderLayer(8, 3), OptionError, "num_heads to divide"),
        (
            lambda: nn.TransformerEncoder("layer", 2),
            DTypeError,
            "TransformerEncoder: expected a layer to copy; got str",
        ),
        (lambda: nn.TransformerEncoder(nn.ReLU(), 0), OptionError, "num_layers"),
        (
            lambda: F.scaled_dot_product_attention(X, X, gh.ones((4, 2, 8))),
            ShapeError,
            "expected query (..., L, E)",
        ),
        (
            lambda: F.scaled_dot_product_attention(X, X, X, gh.ones((2, 3)) > 0),
            ShapeError,
            "a mask that broadcasts to (4, 3, 3)",
        ),
        (
            lambda: F.scaled_dot_product_attention(X, X, X, gh.ones((3, 3)), is_causal=True),
            OptionError,
            "attn_mask or is_causal; got both",
        ),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
