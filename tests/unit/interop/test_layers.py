"""Every layer that we and PyTorch have takes PyTorch's state and gives PyTorch's outputs.

Arguments and inputs are PyTorch's own samples of its modules; those that it has none of stand here.
Both sides are found by name, so a new layer is compared without a line in this file."""

import inspect
import itertools
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn
from glasshouse.interop import from_torch, state_dict_from_torch

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

MOST = 3  # samples of a layer; the others differ in what tests/unit/nn compares


def x(*shape):
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def ids(*shape):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 4, shape))


def encoder_layer(module):
    return module.TransformerEncoderLayer(8, 2, 12, batch_first=True)


def decoder_layer(module):
    return module.TransformerDecoderLayer(8, 2, 12, batch_first=True)


# name: (arguments or what makes them of the library, options, inputs)
OWN = {
    "AdaptiveLogSoftmaxWithLoss": ((16, 12, [3, 7]), {}, (x(5, 16), ids(5))),
    "AlphaDropout": ((0.5,), {}, (x(2, 3),)),
    "ChannelShuffle": ((2,), {}, (x(2, 4, 3, 3),)),
    "CosineSimilarity": ((1,), {}, (x(3, 4), x(3, 4) + 1)),
    # With more channels PyTorch's takes the first for a neighbour of all that are far away.
    "CrossMapLRN2d": ((3,), {}, (x(2, 2, 3, 3),)),
    "Dropout": ((0.5,), {}, (x(2, 3),)),
    "Dropout1d": ((0.5,), {}, (x(2, 3, 4),)),
    "Dropout2d": ((0.5,), {}, (x(2, 3, 4, 4),)),
    "Dropout3d": ((0.5,), {}, (x(2, 3, 2, 2, 2),)),
    "EmbeddingBag": ((4, 3), {}, (ids(2, 5),)),
    "FeatureAlphaDropout": ((0.5,), {}, (x(2, 3),)),
    "Flatten": ((), {}, (x(2, 3, 4),)),
    "Fold": (((4, 5), (2, 2)), {}, (x(2, 12, 12),)),
    "Hardsigmoid": ((), {}, (x(2, 3),)),
    "Identity": ((), {}, (x(2, 3),)),
    "MaxUnpool1d": ((2,), {}, (x(1, 1, 2), torch.tensor([[[1, 2]]]))),
    "MaxUnpool2d": ((2,), {}, (x(1, 1, 1, 2), torch.tensor([[[[1, 6]]]]))),
    "MaxUnpool3d": ((2,), {}, (x(1, 1, 1, 1, 1), torch.tensor([[[[[5]]]]]))),
    "NLLLoss2d": ((), {}, (x(2, 4, 3, 3), ids(2, 3, 3))),
    "PairwiseDistance": ((), {}, (x(3, 4), x(3, 4) + 1)),
    "PixelShuffle": ((2,), {}, (x(2, 8, 3, 3),)),
    "PixelUnshuffle": ((2,), {}, (x(2, 2, 4, 6),)),
    "RReLU": ((), {}, (x(2, 3),)),
    "Sequential": (lambda nn: (nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), {}, (x(2, 3),)),
    "TransformerDecoder": (lambda nn: (decoder_layer(nn), 2), {}, (x(2, 3, 8), x(2, 4, 8))),
    "TransformerEncoder": (lambda nn: (encoder_layer(nn), 2), {}, (x(2, 3, 8),)),
    "TripletMarginLoss": ((), {}, (x(3, 4), x(3, 4) + 1, x(3, 4) - 1)),
    "TripletMarginWithDistanceLoss": ((), {}, (x(3, 4), x(3, 4) + 1, x(3, 4) - 1)),
    "Unflatten": ((1, (2, 3)), {}, (x(2, 6),)),
    "Unfold": (((2, 2),), {}, (x(2, 3, 4, 5),)),
    "Upsample": ((None, 2), {"mode": "bilinear"}, (x(2, 3, 4, 4),)),
    "UpsamplingBilinear2d": ((None, 2), {}, (x(2, 3, 4, 4),)),
    "UpsamplingNearest2d": ((None, 2), {}, (x(2, 3, 4, 4),)),
}
# Bases, containers without a forward, and layers for several devices.
NO_FORWARD = {
    "Container", "DataParallel", "Module", "ModuleDict", "ModuleList", "ParameterDict",
    "ParameterList", "RNNBase", "RNNCellBase", "SyncBatchNorm",
}  # fmt: skip


def layers(module) -> set[str]:
    pairs = inspect.getmembers(module, inspect.isclass)
    return {name for name, cls in pairs if issubclass(cls, module.Module)}


BOTH = sorted((layers(nn) & layers(torch.nn)) - NO_FORWARD)
INFOS = {info.name.rpartition(".")[2]: info for info in module_db}


def samples(name: str):
    """(arguments of the constructor by library, its options, inputs) of a layer."""
    if name in OWN:
        arguments, options, inputs = OWN[name]
        yield (arguments if callable(arguments) else lambda _: arguments), options, inputs
        return
    first = 0 if name in INFOS else 1  # a lazy layer is not told the size of its input
    name = name if name in INFOS else name.removeprefix("Lazy")
    options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": False}
    torch.manual_seed(0)
    result = INFOS[name].module_inputs_func(INFOS[name], **options)
    result = [sample for sample in result if sample.forward_input is not None]
    # PyTorch's own lazy norms fail on its samples without a batch, which come later.
    for sample in itertools.islice(result, 1 if first else MOST):
        built, operands = sample.constructor_input, sample.forward_input
        options = {key: in_float32(value) for key, value in built.kwargs.items()}
        yield (
            (lambda _, built=built: built.args[first:]),
            options,
            (*operands.args, operands.kwargs),
        )


def in_float32(value):
    """Some samples hold float64, whatever is asked for."""
    return value.float() if isinstance(value, torch.Tensor) else value


def ours_of(value):
    """A value of PyTorch's as ours."""
    if isinstance(value, torch.Tensor):
        return from_torch(value.detach().clone())
    if isinstance(value, dict):
        return {key: ours_of(part) for key, part in value.items()}
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.PackedSequence(*map(ours_of, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(ours_of, value))
    if isinstance(value, torch.dtype):
        return getattr(gh, str(value).removeprefix("torch."))
    if callable(value) and hasattr(nn.functional, getattr(value, "__name__", "")):
        return getattr(nn.functional, value.__name__)
    return value


def tensors_of(result) -> list:
    """All tensors of a result, in order; also those of named tuples and packed sequences."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in tensors_of(part)]
    return [] if result is None else [result]


def twins(name: str, dtype=torch.float32):
    """(our layer, PyTorch's of the same state, inputs, named inputs), of each sample."""
    for arguments, options, inputs in samples(name):
        inputs, named = (inputs[:-1], inputs[-1]) if isinstance(inputs[-1], dict) else (inputs, {})
        theirs = getattr(torch.nn, name)(*arguments(torch.nn), **options).eval()
        own_options = {key: ours_of(value) for key, value in options.items()}
        ours = getattr(nn, name)(*map(ours_of, arguments(nn)), **own_options).eval()
        if name.startswith("Lazy"):
            theirs(*inputs, **named)
        ours.load_state_dict(state_dict_from_torch(theirs.state_dict()))
        if dtype is torch.float64:
            theirs, ours = theirs.double(), ours.double()
            inputs, named = in_float64(inputs), in_float64(named)
        yield ours, theirs, inputs, named


def in_float64(value):
    if isinstance(value, (torch.Tensor, torch.nn.utils.rnn.PackedSequence)):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: in_float64(part) for key, part in value.items()}
    return type(value)(map(in_float64, value)) if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.filterwarnings("ignore")
def test_a_layer_takes_the_state_of_its_twin_and_gives_its_outputs(name):
    compared = 0
    for ours, theirs, inputs, named in twins(name):
        with torch.no_grad():
            expected = tensors_of(theirs(*inputs, **named))
        own_state, state = ours.state_dict(), theirs.state_dict()
        assert [(k, v.shape) for k, v in own_state.items()] == [
            (k, tuple(v.shape)) for k, v in state.items()
        ]
        compare(tensors_of(ours(*map(ours_of, inputs), **ours_of(named))), expected, 1e-5)
        compared += 1
    assert compared


def compare(got, expected, tolerance: float):
    assert len(got) == len(expected)
    for mine, other in zip(got, expected, strict=True):
        other = other.detach().float() if other.dtype is torch.bfloat16 else other.detach()
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


def wave(results, like):
    """A number that depends on every element of the floating results, differently."""
    total = 0
    for x in results:
        if x.is_floating_point():
            total = total + (x * like(np.cos(np.arange(x.numel())).reshape(tuple(x.shape)))).sum()
    return total


def derivatives(grad, results, leaves, like, twice: bool):
    """First derivatives of results by leaves, and if wanted those of the sum of their squares; None
    where there are none."""
    total, none = wave(results, like), [None] * len(leaves)
    if isinstance(total, int) or not total.requires_grad:
        return none, none
    first = grad(total, leaves, create_graph=twice, allow_unused=True)
    total = sum((g * g).sum() for g in first if g is not None)
    if not twice or isinstance(total, int) or not total.requires_grad:
        return first, none
    return first, grad(total, leaves, allow_unused=True)


def compare_derivatives(got, expected, tolerance: float):
    """None is 0 on the other side."""
    for mine, other in zip(got, expected, strict=True):
        there = [g for g in (mine, other) if g is not None]
        if len(there) == 2:
            compare([mine], [other], tolerance)
        assert len(there) == 2 or not any(g.any() for g in there)


# Layers of which PyTorch has no second derivatives.
ONCE = {"Hardsigmoid", "MultiLabelMarginLoss", "MultiMarginLoss"}
NO_GRADIENT_OF_TARGETS = {"SoftMarginLoss"}
# docs/start/from_pytorch.md; PyTorch's gradient of CTC is that of what went into log_softmax.
OTHER_GRADIENTS = {"CTCLoss", "CrossMapLRN2d"}


@pytest.mark.parametrize("name", sorted(set(BOTH) - OTHER_GRADIENTS))
@pytest.mark.filterwarnings("ignore")
def test_first_and_second_derivatives_of_a_layer_are_those_of_its_twin(name):
    ours, theirs, inputs, named = next(twins(name, torch.float64))
    leaves, own_leaves = list(theirs.parameters()), list(ours.parameters())
    own_inputs = [ours_of(value) for value in inputs]
    tracked = inputs[:1] if name in NO_GRADIENT_OF_TARGETS else inputs
    for mine, other in zip(own_inputs, tracked, strict=False):
        if isinstance(other, torch.Tensor) and other.is_floating_point():
            leaves.append(other.requires_grad_())
            own_leaves.append(mine.requires_grad_())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = tensors_of(theirs(*inputs, **named))
        like = derivatives(torch.autograd.grad, expected, leaves, torch.tensor, name not in ONCE)
    got = tensors_of(ours(*own_inputs, **ours_of(named)))
    compare(got, expected, 1e-9)
    own = derivatives(gh.autograd.grad, got, own_leaves, gh.tensor, name not in ONCE)
    compare_derivatives(own[0], like[0], 1e-7)
    compare_derivatives(own[1], like[1], 1e-6)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.filterwarnings("ignore")
def test_a_layer_is_captured_batched_and_autocast(name):
    ours, _, inputs, named = next(twins(name))
    inputs, named = [ours_of(value) for value in inputs], ours_of(named)
    expected = [torch.from_numpy(x.numpy()) for x in tensors_of(ours(*inputs, **named))]
    captured = gh.optimize(lambda *xs: ours(*xs, **named))
    for _ in range(2):
        compare(tensors_of(captured(*inputs)), expected, 1e-5)
    with gh.autocast("bfloat16"):
        low = [
            x.float() if x.is_floating_point() else x for x in tensors_of(ours(*inputs, **named))
        ]
    if all(x.is_floating_point() for x in low):
        compare(low, [x.float() for x in expected], 0.1)
    if inputs and type(inputs[0]) is gh.Tensor:
        rows = gh.stack([inputs[0], inputs[0]])
        batched = gh.vmap(lambda x: ours(x, *inputs[1:], **named))(rows)
        compare([x[1] for x in tensors_of(batched)], expected, 1e-5)
