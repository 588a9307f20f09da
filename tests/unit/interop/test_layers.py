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
    made = INFOS[name].module_inputs_func(INFOS[name], **options)
    made = [sample for sample in made if sample.forward_input is not None]
    # PyTorch's own lazy norms fail on its samples without a batch, which come later.
    for sample in itertools.islice(made, 1 if first else MOST):
        built, given = sample.constructor_input, sample.forward_input
        options = {key: in_float32(value) for key, value in built.kwargs.items()}
        yield (lambda _, built=built: built.args[first:]), options, (*given.args, given.kwargs)


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


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.filterwarnings("ignore")
def test_a_layer_takes_the_state_of_its_twin_and_gives_its_outputs(name):
    compared = 0
    for arguments, options, inputs in samples(name):
        inputs, named = (inputs[:-1], inputs[-1]) if isinstance(inputs[-1], dict) else (inputs, {})
        theirs = getattr(torch.nn, name)(*arguments(torch.nn), **options).eval()
        own_options = {key: ours_of(value) for key, value in options.items()}
        ours = getattr(nn, name)(*map(ours_of, arguments(nn)), **own_options).eval()
        if name.startswith("Lazy"):
            theirs(*inputs, **named)
        with torch.no_grad():
            expected = tensors_of(theirs(*inputs, **named))
        ours.load_state_dict(state_dict_from_torch(theirs.state_dict()))
        got = tensors_of(ours(*map(ours_of, inputs), **ours_of(named)))
        assert len(got) == len(expected)
        for mine, other in zip(got, expected):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)
        compared += 1
    assert compared
