"""Operators by families: values, dtypes and strides of results, what is written to inputs, and,
of views, which results share memory, are eager's.

`tools/judges/inductor_torch_tests.py` runs PyTorch's tests themselves, whose sources it needs."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from glasshouse.base.flags import flags  # noqa: E402
from glasshouse.torch.backend.entry_point import glasshouse  # noqa: E402

pytestmark = pytest.mark.library_warnings

INF, NAN = float("inf"), float("nan")


def numbers(*shape):
    """Distinct numbers of both signs, the same in each run."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(*shape, generator=generator)


def places(high, *shape):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(8))


# -- memory ----------------------------------------------------------------------------------------


def views(x):
    pairs = x.unflatten(1, (2, 3))
    return [
        *(x, x.t(), x[1:, ::2], x[:, 1], x[None], x.expand(2, *x.shape), x.detach()),
        *(*x.split([1, 3]), *x.unbind(1)[:2], x.diagonal(1), x.movedim(0, 1), x.view(-1)),
        *(pairs.mT, pairs.flatten(1), x.unfold(1, 2, 2), x.narrow(1, 2, 3), x.squeeze(0)),
        x.view(torch.int32),
    ]


def places_in_memory(x):
    return [x.as_strided((2, 2), (1, 3), 2), x.as_strided((3,), (4,))]


def results_that_share(x):
    y = x * 2
    return y, y, y[1:], y.t(), {"whole": y.view(-1), "none": None, "size": y.shape[0]}


def layouts(x):
    image, last = x.to(memory_format=torch.channels_last), x.transpose(1, 3)
    return [
        *(image + 1, image.mul(x), image.clone(), torch.empty_like(image).fill_(2), image.flip(1)),
        *(image.permute(0, 2, 3, 1) + 1, last.exp(), x.transpose(1, 2).contiguous()),
        *(torch.cat([image, image], 1), torch.stack([x[:, 0], x[:, 1]], 2), image.sum((2, 3))),
        *(image.new_zeros(2, 3), torch.zeros_like(last), x.broadcast_to(2, *x.shape)),
    ]


def writes(x, y, z):
    x.add_(1)
    x[:, 1] = y[:, 0]
    x.t().mul_(2)
    y.copy_(x)
    y[y > 0] = 7
    y.diagonal().zero_()
    z[..., -1] += 3
    z.view(-1)[2:4].fill_(-1)
    z.index_put_((torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2])), torch.ones(3), accumulate=True)
    return x + y, z


def complex_views(x):
    z = torch.complex(x, x.flip(0))
    parts = torch.view_as_real(z)
    return [
        *(z.real, z.imag, parts, z.conj() * 2, z.abs(), z.angle(), z.mH @ z, z.conj().imag),
        *(torch.view_as_complex(parts.contiguous()), z.sum(0), z == z.conj(), z.resolve_conj()),
    ]


# -- dtypes ----------------------------------------------------------------------------------------


def whole_numbers(a, b, small):
    return [
        *(a // b, a % b, a / b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a // 2),
        *(small + 200, small * small, -small, small >> 1, small << 3, ~small, small & 6, small | 9),
        *(a.sum(), small.sum(), small.cumsum(0), (a > 0).sum(), (a > 0).cumsum(0), a.prod(1)),
        *(a.abs(), a.sign(), a.clamp(-2, 2), a.bitwise_xor(b), torch.gcd(a, b), a.float().mean()),
        *(a + 0.5, a * True, small + 1.5, small + a, (a > b) * 2, (a > b) & (a < 3), a**2),
    ]


def casts(x):
    return [
        *(x.to(dtype) for dtype in (torch.int8, torch.int32, torch.int64, torch.bool)),
        *(x.half(), x.bfloat16(), x.half() + x, x.bfloat16() * 2, x.double() + x, x + 1j),
        *(x.half().sum(), x.bfloat16().mean(0), x.half().var(), x.bfloat16().softmax(1)),
        *(x.type_as(x.int()), x.round().to(torch.int16), x.new_tensor([1, 2]), x.bool().any(1)),
        *(torch.where(x > 0, x, 0), torch.where(x > 0, 1, 2), torch.where(x > 0, x.half(), x)),
        *(torch.tensor(2.5) * x.int(), x.int() + 1.5, x.int() + torch.tensor(1.5)),
    ]


# -- values ----------------------------------------------------------------------------------------


def ends_of_numbers(x):
    y = x.flip(0)
    return [
        *(x.clamp(-1, 1), x.clamp(min=0), x.relu(), x.sigmoid(), x.tanh(), x.exp(), x.log()),
        *(torch.maximum(x, y), torch.fmin(x, y), x.isnan(), x.isfinite(), x.sign(), x.sqrt()),
        *(x.nan_to_num(1, 2, 3), x.round(), x.round(decimals=1), x.trunc(), x.floor(), x.frac()),
        *(x.max(), x.min(), x.argmax(), x.argmin(), x.amax(0), x.sum(), x.nansum(), x.nanmean()),
        *(x.softmax(0), x.log_softmax(0), x.logsumexp(0), x.cumsum(0), x.cummax(0)[1]),
        *(x % 2, x // 2, torch.remainder(x, -2), x.sgn(), x.signbit(), x.rsqrt(), x.sort()[1]),
        *(torch.isclose(x, x, equal_nan=True), x.logaddexp(y), x.hypot(x), x.atan2(y)),
    ]


def reductions(x):
    return [
        *(x.sum((0, 2)), x.mean(1, keepdim=True), x.prod(0), x.var(1)),
        *(x.std((0, 1), correction=0), *torch.std_mean(x, 2), *torch.var_mean(x), *x.aminmax()),
        *(*x.max(1), *x.min(2, keepdim=True), x.norm(), x.norm(1, 0), x.norm(INF, 2)),
        *(torch.linalg.vector_norm(x, 3, (0, 1)), x.amin((0, 2)), (x > 0).all(0)),
        *(x.cumsum(1), x.cumprod(2), x.logcumsumexp(0), x.count_nonzero(1), x.argsort(2)),
        *(*x.sort(1, descending=True), *x.topk(2, 2), *x.kthvalue(2, 1), *x.median(0)),
        *(x[:0].sum(0), x[:0].prod(), x[:, :0].any(1), x[:, :0].all(), torch.cat([x[:0], x])),
    ]


def indices(x, i, j):
    rows, inner, ways = i[:, None].expand(-1, 5), torch.tensor([-1.0, 0.0, 1.0]), ("amax", "mean")
    return [
        *(x[i], x[i, j], x[:, j], x[-1], x[..., None], x[i[:, None], j], x[1, j], x[[0, -1]]),
        *(x.gather(1, j[None].expand(4, -1)), x.take_along_dim(x.argsort(1), 1), x.take(i)),
        *(x.index_select(0, i), x.index_add(0, i, x[:3]), x.index_copy(0, i[:1], x[:1])),
        *(x.index_fill(1, j, 9.0), x.scatter(1, j[None], 5.0), x.scatter_add(0, rows, x[:3])),
        *(x.scatter_reduce(0, rows, x[:3], way) for way in ways),
        *(x.masked_fill(x > 0, -1), x.where(x > 0, 0), x.roll((1, -2), (0, 1)), x.flip(0, 1)),
        *(x.tril(-1), x.triu(1), x.rot90(), x.repeat(2, 1), x.repeat_interleave(2, 1), x.tile(2)),
        *(F.embedding(i, x, padding_idx=0), torch.searchsorted(x[0].sort()[0], x[1])),
        *(torch.bucketize(x, inner), torch.diag_embed(x), x.slice_scatter(x[:2], 0, 1, 3)),
        *torch.meshgrid(i, j, indexing="ij"),
        *(x.select_scatter(x[0], 0, 2), torch.block_diag(x, x), x.unfold(1, 2, 1)),
    ]


# -- layers ----------------------------------------------------------------------------------------


def pictures(x, w):
    image, turned = x.to(memory_format=torch.channels_last), w.transpose(0, 1).contiguous()
    narrow, grid = w[:, :1], torch.linspace(-1.2, 1.2, 36).reshape(2, 3, 3, 2)
    return [
        *(F.conv2d(x, w), F.conv2d(x, w, stride=2, padding=1), F.conv2d(image, w)),
        *(F.conv2d(x, w, dilation=2, padding="same"), F.conv2d(x, narrow, groups=3)),
        *(F.conv1d(x[:, :, 0], w[:, :, 0], padding=1), F.unfold(x, 3, padding=1)),
        F.conv_transpose2d(x, turned, stride=2, output_padding=1),
        *F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        *(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, ceil_mode=True)),
        *(F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 3), F.lp_pool2d(x**2, 2, 2)),
        *(F.pad(x, (1, 2, 0, 1), "reflect"), F.pad(x, (1, 1, 2, 2), "circular")),
        *(F.pad(x, (-1, 2), value=4), F.interpolate(x, scale_factor=2)),
        F.interpolate(x, (5, 4), mode="bilinear", align_corners=True),
        *(F.interpolate(x, (9, 4), mode="bicubic"), F.pixel_unshuffle(x, 2), F.pixel_shuffle(w, 1)),
        F.grid_sample(x, grid, align_corners=False),
        *(F.fold(F.unfold(x, 2), (8, 6), 2), F.local_response_norm(x, 2), F.avg_pool3d(x, 2)),
    ]


def layers(x, w, b):
    mean, var, top = torch.zeros(6), torch.ones(6), w[:4]
    target = torch.tensor([0, 5, -100, 2])
    return [
        *(F.linear(x, w, b), x @ w, x @ b, torch.addmm(x, x, w, beta=0.5), torch.outer(b, b)),
        *(torch.einsum("ij,kj->ik", x, w), torch.baddbmm(x[None], x[None], w[None])),
        *(F.layer_norm(x, (6,), b), F.group_norm(x, 3, b, b), F.rms_norm(x, (6,)), F.normalize(x)),
        *(F.batch_norm(x, mean, var, b, training=True), mean, var, F.batch_norm(x, mean, var)),
        *(F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.hardtanh(x), F.mish(x)),
        *(F.softplus(x, 3), F.leaky_relu(x), F.prelu(x, b[:1]), F.glu(x), F.hardswish(x)),
        *(F.cross_entropy(x, target), F.cross_entropy(x, target, label_smoothing=0.1)),
        *(F.smooth_l1_loss(x, top), F.huber_loss(x, top), F.mse_loss(x, top), F.logsigmoid(x)),
        *(F.kl_div(x, top.exp(), reduction="sum"), F.dropout(x, 0.0), F.cosine_similarity(x, top)),
        F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=b.detach().abs()),
        F.scaled_dot_product_attention(x[None], w[None], w[None]),
        *(torch.cdist(x, w), torch.linalg.inv(w @ w.T + torch.eye(6)), F.pairwise_distance(x, top)),
    ]


CASES = {  # a function, and what makes its arguments
    "views": (views, lambda: [numbers(4, 6)]),
    "places in memory": (places_in_memory, lambda: [numbers(4, 6)]),
    "views of a view": (views, lambda: [numbers(6, 6)[2:]]),
    "results that share an expanded row": (
        results_that_share,
        lambda: [numbers(1, 6).expand(4, 6)],
    ),
    "results that share": (results_that_share, lambda: [numbers(4, 6)]),
    "layouts": (layouts, lambda: [numbers(2, 4, 3, 5)]),
    "writes": (writes, lambda: [numbers(4, 4), numbers(4, 4).t(), numbers(3, 3)]),
    "complex": (complex_views, lambda: [numbers(4, 3)]),
    "whole numbers": (
        whole_numbers,
        lambda: [places(9, 3, 4) - 4, places(4, 3, 4) + 1, places(250, 3, 4).byte()],
    ),
    "casts": (casts, lambda: [numbers(4, 6) * 3]),
    "ends": (ends_of_numbers, lambda: [torch.tensor([INF, -INF, NAN, 0.0, -0.0, 2.5, -2.5, 1e30])]),
    "reductions": (reductions, lambda: [numbers(4, 3, 5)]),
    "reductions of a view": (reductions, lambda: [numbers(5, 3, 4).permute(2, 1, 0)]),
    "indices": (indices, lambda: [numbers(4, 5), torch.tensor([3, 0, 3]), torch.tensor([1, 4, 1])]),
    "pictures": (pictures, lambda: [numbers(2, 3, 8, 6), numbers(6, 3, 3, 3)]),
    "layers": (layers, lambda: [numbers(4, 6), numbers(6, 6), numbers(6)]),
}

DIFFERENTIATED = ("layouts", "complex", "reductions of a view", "indices", "pictures", "layers")
OF_MEMORY = ("views", "results that share", "writes")  # as the names begin


def flat(results) -> list:
    return torch.utils._pytree.tree_leaves(results)


def alike(x, others) -> list[int]:
    """Which of other tensors lie in the memory of one."""
    if not isinstance(x, torch.Tensor) or not x.numel():
        return []
    mine = x.untyped_storage().data_ptr()
    return [i for i, y in enumerate(others) if y.untyped_storage().data_ptr() == mine]


def outcome(function, arguments) -> tuple[list, list, list, list]:
    """(arguments after the call, results, gradients, which of all share memory)."""
    results = flat(function(*arguments))
    tensors = [*arguments, *(x for x in results if isinstance(x, torch.Tensor))]
    tracked = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if tracked:
        sum((i + 1) * x.real.double().nan_to_num().sum() for i, x in enumerate(tracked)).backward()
    shared = [alike(x, tensors) for x in results]
    return arguments, results, [x.grad for x in arguments], shared


def assert_alike(ours, eager, where) -> None:
    for i, (x, y) in enumerate(zip(ours, eager, strict=True)):
        if not isinstance(y, torch.Tensor):
            assert type(x) is type(y) and x == y, (where, i)
            continue
        assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride()), (where, i)
        wide = y.dtype not in (torch.float16, torch.bfloat16)
        near = {"rtol": 1e-4, "atol": 1e-5} if wide else {"rtol": 1e-2, "atol": 1e-2}
        if where == "gradients":  # sums over a family, in which eager's own are 1e-4 off
            near["rtol"] = 1e-3
        torch.testing.assert_close(x, y, equal_nan=True, msg=f"{where} {i}", **near)


def assert_as_eager(name: str, differentiates: bool) -> None:
    function, make = CASES[name]

    def arguments():
        return [x.requires_grad_(differentiates and x.is_floating_point()) for x in make()]

    with flags.override(compile="never"):
        ours = outcome(torch.compile(function, backend=glasshouse, fullgraph=True), arguments())
    eager = outcome(function, arguments())
    for where, mine, theirs in zip(("arguments", "results", "gradients"), ours, eager):
        assert_alike(mine, theirs, where)
    if name.startswith(OF_MEMORY):
        assert ours[3] == eager[3]


@pytest.mark.parametrize("name", CASES)
def test_a_family_ends_as_eager(name):
    assert_as_eager(name, differentiates=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_a_family_has_eagers_gradients(name):
    assert_as_eager(name, differentiates=True)
