"""Functions that PyTorch has too, on its own sample inputs: values, dtypes, shapes, gradients."""

import functools
import warnings

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
SAMPLES = {"float64": 2, "int64": 1}  # of each function
LARGEST = 400  # elements of a sample

# Functions that mean something else here (docs/start/from_pytorch.md), whose results are not
# unique or random, or whose samples are made for another form of the call.
LEFT_OUT = set("""
max min sort split unsafe_split std var equal take repeat where meshgrid einsum polygamma
as_strided as_strided_scatter as_strided_copy narrow tensordot normal bernoulli multinomial
randn rand randint randn_like rand_like randint_like empty empty_like empty_strided
empty_permuted svd_lowrank pca_lowrank kthvalue topk mode bool byte bfloat16 half float double
short int long cfloat cdouble char eig linalg.eig svd qr linalg.eigh linalg.eigvalsh
linalg.lstsq linalg.lu linalg.pinv linalg.qr linalg.svd linalg.matrix_rank linalg.diagonal
linalg.vander special.polygamma diff addmv addbmm baddbmm fill zero_ linspace nextafter sgn
nonzero argsort conv1d conv2d conv3d normal_ uniform dropout alpha_dropout feature_alpha_dropout
bilinear binomial poisson cauchy exponential geometric log_normal uniform special.bessel_j0
special.bessel_j1 special.bessel_y0 special.bessel_y1 special.log_softmax special.softmax item
to cdist linalg.vector_norm linalg.norm linalg.matrix_power norm prelu ctc_loss
cosine_similarity unfold_copy renorm lerp cov histogram square complex cross
""".split())  # fmt: skip


VALUES_ONLY = ("igamma", "igammac", "special.gammainc", "special.gammaincc")  # large graphs


@functools.cache
def operators() -> dict:
    """The entries of PyTorch's table of operators that have a function here, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    plain = [op for op in op_db if not op.variant_test_name]
    return {op.name: op for op in plain if op.name not in LEFT_OUT and function_of(op.name)}


def function_of(name: str):
    """Our function, or None: what stands in nn, fft or a private module has tests of its own."""
    if name.startswith(("nn.", "fft.", "_", "masked.", "sparse.", "ops.", "signal.")):
        return None
    place = gh
    for part in name.split("."):
        place = getattr(place, part, None)
    return place if callable(place) else None


def ours(x, pairs: list):
    """An argument of PyTorch's as one of ours; leaves come to `pairs` with theirs."""
    if isinstance(x, torch.Tensor):
        y = gh.tensor(x.detach().numpy().copy(), requires_grad=x.requires_grad)
        if x.requires_grad:
            x.grad = None
            pairs.append((x, y))
        return y
    if isinstance(x, torch.dtype):
        return getattr(gh, str(x).partition(".")[2])
    return type(x)(ours(part, pairs) for part in x) if type(x) in (list, tuple) else x


def tensors_in(x, kind) -> list:
    if isinstance(x, (list, tuple)):
        return [y for part in x for y in tensors_in(part, kind)]
    return [x] if isinstance(x, kind) else []


def weighted(xs, arange):
    """A number that depends on every element of every result."""
    return sum((x.abs() ** 2 * arange(x) if x.is_complex() else x * arange(x)).sum() for x in xs)


def theirs_like(x):
    return torch.arange(1.0, x.numel() + 1, dtype=torch.float64).reshape(x.shape)


def ours_like(x):
    return gh.arange(1.0, x.numel() + 1, dtype=gh.float64).reshape(x.shape)


def samples(name: str, dtype: str):
    op, wanted = operators()[name], getattr(torch, dtype)
    tracked = dtype == "float64" and op.supports_autograd
    if wanted not in op.dtypes or dtype == "int64" and name.startswith("special."):
        return
    torch.manual_seed(0)
    count = 0
    for sample in op.sample_inputs("cpu", wanted, requires_grad=tracked):
        args = (sample.input, *sample.args)
        inputs = tensors_in(args, torch.Tensor)
        scalar = any(x.ndim == 0 for x in inputs) and ("dim" in sample.kwargs or len(args) > 1)
        if not scalar and all(x.numel() <= LARGEST for x in inputs):
            yield op, args, {k: v for k, v in sample.kwargs.items() if k != "device"}
            count += 1
        if count == SAMPLES[dtype]:
            return


def names() -> list[str]:
    return sorted(operators())


def compare(results, expected):
    assert len(results) == len(expected)
    for x, y in zip(results, expected, strict=True):
        assert x.shape == tuple(y.shape)
        assert x.dtype.name == str(y.dtype).partition(".")[2]
        y = y.detach().resolve_conj().numpy()
        np.testing.assert_allclose(x.numpy(), y, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("name", names())
def test_results_and_gradients(name, dtype):
    for op, args, named in samples(name, dtype):
        pairs = []
        inputs = [ours(x, pairs) for x in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch gives up a function
            expected = tensors_in(op(*args, **named), torch.Tensor)
        named = {key: ours(x, pairs) for key, x in named.items()}
        results = tensors_in(function_of(name)(*inputs, **named), gh.Tensor)
        compare(results, expected)
        if name in VALUES_ONLY:
            continue
        tracked = [i for i, y in enumerate(expected) if y.requires_grad and y.numel()]
        if pairs and tracked:
            weighted([expected[i] for i in tracked], theirs_like).backward()
            weighted([results[i] for i in tracked], ours_like).backward()
            for x, y in pairs:
                gradient = np.zeros(y.shape) if y.grad is None else y.grad.numpy()
                wanted = np.zeros(y.shape) if x.grad is None else x.grad.resolve_conj().numpy()
                np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6)
