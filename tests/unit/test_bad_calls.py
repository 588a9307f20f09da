"""A table of wrong calls: each error names what was expected, what came, and the fix."""

import numpy as np
import pytest
from wrong_calls import FORM, read

import glasshouse as gh
from glasshouse import interop, nn
from glasshouse.data import DataLoader, TensorDataset
from glasshouse.nn import functional as F

X = gh.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))
V = gh.ones(3)
N = gh.asarray([1, 2, 3])
B = gh.asarray([True, False])
C = gh.asarray([1j])
IMAGES = gh.zeros((2, 3, 8, 8))
LABELS = gh.asarray([0, 1])


def leaf():
    return gh.tensor([1.0, 2.0], requires_grad=True)


def backward_twice():
    y = leaf().sum()
    y.backward()
    y.backward()


def model():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


TABLE = {
    # creation
    "asarray-text": (lambda: gh.asarray("abc"), gh.DTypeError, "abc"),
    "asarray-ragged": (lambda: gh.asarray([[1], [1, 2]]), gh.ShapeError, "ragged"),
    "asarray-none": (lambda: gh.asarray([None, 1]), gh.DTypeError, "number"),
    "asarray-dtype": (lambda: gh.asarray(1, dtype="flaot32"), gh.DTypeError, "'float32'"),
    "asarray-device": (lambda: gh.asarray(1, device="tpu"), gh.DeviceError, "tpu"),
    "zeros-negative": (lambda: gh.zeros((2, -1)), gh.ShapeError, "(2, -1)"),
    "zeros-float-size": (lambda: gh.zeros(2.5), gh.DTypeError, "2.5"),
    "ones-dtype": (lambda: gh.ones(2, dtype=list), gh.DTypeError, "list"),
    "full-text": (lambda: gh.full(2, "a"), gh.DTypeError, "a"),
    "arange-step": (lambda: gh.arange(0, 5, 0), Exception, "0"),
    "linspace-num": (lambda: gh.linspace(0.0, 1.0, -1), gh.OptionError, "-1"),
    "eye-negative": (lambda: gh.eye(-1), gh.ShapeError, "-1"),
    "tril-vector": (lambda: gh.tril(V), gh.ShapeError, "(3,)"),
    "one-hot-float": (lambda: gh.one_hot(V, 3), gh.DTypeError, "float32"),
    "from-dlpack": (lambda: gh.from_dlpack(3), gh.DTypeError, "int"),
    "requires-grad-int": (lambda: gh.tensor([1], requires_grad=True), gh.DTypeError, "int64"),
    # elementwise
    "add-shapes": (lambda: X + gh.ones((3, 3)), gh.ShapeError, "(3, 4)"),
    "add-overflow": (lambda: gh.asarray([1], dtype=gh.uint8) + 300, gh.DTypeError, "300"),
    "sub-bool": (lambda: B - B, gh.DTypeError, "bool"),
    "neg-bool": (lambda: -B, gh.DTypeError, "bool"),
    "less-complex": (lambda: C < C, gh.DTypeError, "complex64"),
    "floor-complex": (lambda: gh.floor(C), gh.DTypeError, "complex64"),
    "maximum-complex": (lambda: gh.maximum(C, C), gh.DTypeError, "complex64"),
    "atan2-complex": (lambda: gh.atan2(C, C), gh.DTypeError, "complex64"),
    "erf-complex": (lambda: gh.erf(C), gh.DTypeError, "complex64"),
    "and-float": (lambda: V & V, gh.DTypeError, "float32"),
    "or-float": (lambda: gh.bitwise_or(V, V), gh.DTypeError, "float32"),
    "invert-float": (lambda: ~V, gh.DTypeError, "float32"),
    "shift-float": (lambda: V << 1, gh.DTypeError, "float32"),
    "sin-text": (lambda: gh.sin("x"), gh.DTypeError, "x"),
    "exp-none": (lambda: gh.exp(None), gh.DTypeError, "None"),
    "where-condition": (lambda: gh.where("a", V, V), gh.DTypeError, "a"),
    "where-shapes": (lambda: gh.where(B, V, V), gh.ShapeError, "(2,)"),
    # reductions
    "sum-axis": (lambda: X.sum(axis=2), gh.ShapeError, "2"),
    "sum-axis-text": (lambda: X.sum(axis="rows"), gh.DTypeError, "rows"),
    "sum-axis-twice": (lambda: X.sum(axis=(0, 0)), gh.ShapeError, "(0, 0)"),
    "max-empty": (lambda: gh.zeros((0, 2)).max(axis=0), gh.ShapeError, "(0, 2)"),
    "max-complex": (lambda: gh.max(C), gh.DTypeError, "complex64"),
    "argmax-empty": (lambda: gh.zeros(0).argmax(), gh.ShapeError, "(0,)"),
    "argmax-axis": (lambda: X.argmax(axis=5), gh.ShapeError, "5"),
    "mean-axis": (lambda: X.mean(axis=-3), gh.ShapeError, "-3"),
    "cumsum-axis": (lambda: gh.cumsum(X), gh.ShapeError, "axis"),
    "cumsum-axis-out": (lambda: gh.cumsum(X, axis=2), gh.ShapeError, "2"),
    "logsumexp-axis": (lambda: gh.logsumexp(X, axis=3), gh.ShapeError, "3"),
    # movement
    "reshape-size": (lambda: X.reshape(5, 2), gh.ShapeError, "(5, 2)"),
    "reshape-two-unknown": (lambda: X.reshape(-1, -1), gh.ShapeError, "-1"),
    "reshape-uneven": (lambda: X.reshape(-1, 5), gh.ShapeError, "5"),
    "permute-short": (lambda: gh.permute_dims(X, (0,)), gh.ShapeError, "(0,)"),
    "permute-twice": (lambda: gh.permute_dims(X, (0, 0)), gh.ShapeError, "(0, 0)"),
    "broadcast-to": (lambda: gh.broadcast_to(X, (5, 4)), gh.ShapeError, "(5, 4)"),
    "concat-shapes": (lambda: gh.concat([X, V]), gh.ShapeError, "(3,)"),
    "concat-empty": (lambda: gh.concat([]), Exception, "one"),
    "concat-pair": (lambda: gh.concat(X, X), gh.DTypeError, "a tensor as axis"),
    "stack-pair": (lambda: gh.stack(X, X), gh.DTypeError, "a tensor as axis"),
    "stack-shapes": (lambda: gh.stack([X, V]), gh.ShapeError, "(3,)"),
    "squeeze-size": (lambda: gh.squeeze(X, axis=0), gh.ShapeError, "0"),
    "expand-dims-axis": (lambda: gh.expand_dims(X, axis=7), gh.ShapeError, "7"),
    "flip-axis": (lambda: gh.flip(X, axis=2), gh.ShapeError, "2"),
    "moveaxis-axis": (lambda: gh.moveaxis(X, 0, 9), gh.ShapeError, "9"),
    "repeat-negative": (lambda: gh.repeat(V, -1), Exception, "-1"),
    "T-cube": (lambda: IMAGES.T, gh.ShapeError, "(2, 3, 8, 8)"),
    "mT-vector": (lambda: V.mT, gh.ShapeError, "(3,)"),
    # indexing
    "index-out": (lambda: X[3], gh.IndexOutOfRangeError, "got 3"),
    "index-too-many": (lambda: X[0, 0, 0], gh.IndexOutOfRangeError, "got 3"),
    "index-float": (lambda: X[1.0], gh.DTypeError, "1.0"),
    "index-text": (lambda: X["a"], gh.DTypeError, "a"),
    "index-list-out": (lambda: X[[0, 9]], gh.IndexOutOfRangeError, "got 9"),
    "index-mask": (lambda: X[B], gh.IndexOutOfRangeError, "got 2"),
    "set-shape": (lambda: X.__setitem__(0, gh.ones(9)), gh.ShapeError, "(9,)"),
    "set-complex": (lambda: X.__setitem__(0, 1j), gh.DTypeError, "complex"),
    "take-float": (lambda: gh.take(V, [0.5]), gh.DTypeError, "float"),
    "take-out": (lambda: gh.take(V, [4]), gh.IndexOutOfRangeError, "got 4"),
    "take-along-ndim": (lambda: gh.take_along_axis(X, N), gh.ShapeError, "(3,)"),
    "searchsorted-side": (lambda: gh.searchsorted(V, V, side="up"), gh.OptionError, "up"),
    "nonzero-0d": (lambda: gh.nonzero(gh.asarray(1.0)), gh.ShapeError, "0-d"),
    # products and linear algebra
    "matmul-sizes": (lambda: X @ X, gh.ShapeError, "(3, 4)"),
    "matmul-scalar": (lambda: gh.matmul(V, gh.asarray(1.0)), gh.ShapeError, "()"),
    "matmul-bool": (lambda: B @ B, gh.DTypeError, "bool"),
    "einsum-letters": (lambda: gh.einsum("ij,jk->il", X, X.T), gh.OptionError, "l"),
    "einsum-count": (lambda: gh.einsum("ij,jk", X), gh.OptionError, "1"),
    "tensordot-axes": (lambda: gh.tensordot(X, X, axes=3), gh.ShapeError, "3"),
    "inv-singular": (lambda: gh.linalg.inv(gh.zeros((2, 2))), gh.LinAlgError, "pivot"),
    "inv-oblong": (lambda: gh.linalg.inv(X), gh.ShapeError, "(3, 4)"),
    "det-vector": (lambda: gh.linalg.det(V), gh.ShapeError, "(3,)"),
    "cholesky-negative": (lambda: gh.linalg.cholesky(-gh.eye(2)), gh.LinAlgError, "positive"),
    "solve-rows": (lambda: gh.linalg.solve(gh.eye(2), V), gh.ShapeError, "(3,)"),
    "qr-mode": (lambda: gh.linalg.qr(X, mode="thin"), gh.OptionError, "thin"),
    "norm-ord": (lambda: gh.linalg.matrix_norm(X, ord="max"), gh.OptionError, "max"),
    "eigh-half": (lambda: gh.linalg.eigh(gh.eye(2).half()), gh.DTypeError, "float16"),
    # random
    "seed-text": (lambda: gh.random.seed("x"), gh.DTypeError, "x"),
    "uniform-int": (lambda: gh.random.uniform(2, dtype=gh.int8), gh.DTypeError, "int8"),
    "normal-shape": (lambda: gh.random.normal((-1,)), gh.ShapeError, "-1"),
    "randint-order": (lambda: gh.random.randint(4, 4), gh.OptionError, "4"),
    "bernoulli-p": (lambda: gh.random.bernoulli(2.0, 3), gh.OptionError, "2.0"),
    "choice-many": (lambda: gh.random.choice(2, 5, replace=False), gh.ShapeError, "5"),
    "set-state": (lambda: gh.random.default_generator().set_state({}), gh.OptionError, "{}"),
    # gradients
    "backward-untracked": (lambda: V.sum().backward(), gh.GradError, "requires_grad"),
    "backward-many": (lambda: (leaf() * 2).backward(), gh.GradError, "(2,)"),
    "backward-twice": (backward_twice, gh.GradError, "retain_graph"),
    "backward-shape": (lambda: (leaf() * 2).backward(V), gh.ShapeError, "(3,)"),
    "grad-only-inputs": (
        lambda: gh.autograd.grad(leaf().sum(), leaf(), only_inputs=False),
        gh.OptionError,
        "backward()",
    ),
    "grad-materialize": (
        lambda: gh.autograd.grad(leaf().sum(), leaf(), allow_unused=False, materialize_grads=True),
        gh.OptionError,
        "allow_unused=False",
    ),
    "grad-unused": (lambda: gh.autograd.grad(leaf().sum(), leaf()), gh.GradError, "input 0"),
    "grad-untracked": (lambda: gh.autograd.grad(leaf().sum(), V), gh.GradError, "requires"),
    "leaf-write": (lambda: leaf().__iadd__(1), gh.GradError, "no_grad"),
    "grad-vector": (lambda: gh.grad(lambda v: v)(V), gh.GradError, "(3,)|[3]"),
    "grad-int": (lambda: gh.grad(gh.sum)(N), gh.DTypeError, "int64"),
    "grad-argnums": (lambda: gh.grad(gh.sum, argnums=2)(V), gh.GradError, "2"),
    "jvp-tangent": (lambda: gh.jvp(gh.sum, (V,), (gh.ones(2),)), gh.ShapeError, "(2,)"),
    "jacobian-mode": (lambda: gh.jacobian(gh.sin, mode="both"), gh.OptionError, "both"),
    "vmap-sizes": (lambda: gh.vmap(gh.add)(V, gh.ones(2)), gh.ShapeError, "[3, 2]"),
    "vmap-none": (lambda: gh.vmap(gh.sin, in_axes=None)(V), gh.ShapeError, "None"),
    "vmap-bool": (lambda: gh.vmap(lambda v: v if v else -v)(V), gh.TransformError, "where"),
    "vmap-item": (lambda: gh.vmap(lambda v: v.item())(V), gh.TransformError, "vmap"),
    "hook": (lambda: V.register_hook(print), gh.GradError, "requires_grad"),
    # the tensor
    "bool-many": (lambda: bool(V), gh.ShapeError, "(3,)"),
    "item-many": (lambda: V.item(), gh.ShapeError, "(3,)"),
    "index-of-float": (lambda: [1, 2][gh.asarray(1.0)], gh.DTypeError, "float32"),
    "len-0d": (lambda: len(gh.asarray(1)), gh.DTypeError, "0-d"),
    "to-device": (lambda: V.to("cuda"), gh.DeviceError, "cuda"),
    "cast-complex": (lambda: C.float(), gh.DTypeError, "complex64"),
    "print-option": (lambda: gh.set_print_options(digits=3), gh.OptionError, "digits"),
    "isdtype": (lambda: gh.isdtype(gh.float32, "floaty"), Exception, "floaty"),
    "finfo-int": (lambda: gh.finfo(gh.int8), gh.DTypeError, "int8"),
    "iinfo-float": (lambda: gh.iinfo(gh.float32), gh.DTypeError, "float32"),
    # backends
    "use-name": (lambda: gh.backends.use("nunpy"), gh.OptionError, "'numpy'"),
    "use-number": (lambda: gh.backends.use(3), gh.BackendError, "3"),
    "replace-name": (
        lambda: gh.backends.current().replace("mull", np.multiply),
        gh.OptionError,
        "'mul'",
    ),
    "replace-kernel": (lambda: gh.backends.current().replace("mul", 1), gh.BackendError, "1"),
    # layers
    "linear-features": (lambda: nn.Linear(4, 2)(V), gh.ShapeError, "(3,)"),
    "linear-size": (lambda: nn.Linear(0.5, 2), Exception, "0.5"),
    "conv-channels": (lambda: nn.Conv2d(4, 2, 3)(IMAGES), gh.ShapeError, "(2, 3, 8, 8)"),
    "conv-kernel": (lambda: nn.Conv2d(3, 2, 9)(IMAGES), gh.ShapeError, "9"),
    "conv-groups": (lambda: nn.Conv2d(3, 2, 3, groups=2), Exception, "2"),
    "conv-padding": (lambda: nn.Conv2d(3, 2, 3, padding="sane"), gh.OptionError, "sane"),
    "pool-rank": (lambda: nn.MaxPool2d(2)(V), gh.ShapeError, "(3,)"),
    "pool-large": (lambda: nn.AvgPool2d(9)(IMAGES), gh.ShapeError, "9"),
    "batchnorm-features": (lambda: nn.BatchNorm2d(4)(IMAGES), gh.ShapeError, "(2, 3, 8, 8)"),
    "layernorm-shape": (lambda: nn.LayerNorm(5)(X), gh.ShapeError, "(3, 4)"),
    "groupnorm-groups": (lambda: nn.GroupNorm(2, 3), Exception, "2"),
    "dropout-p": (lambda: nn.Dropout(1.5), gh.OptionError, "1.5"),
    "embedding-float": (lambda: nn.Embedding(3, 2)(V), gh.DTypeError, "float32"),
    "embedding-out": (lambda: nn.Embedding(3, 2)(N), gh.IndexOutOfRangeError, "3"),
    "attention-heads": (lambda: nn.MultiheadAttention(5, 2), Exception, "2"),
    "sequential-type": (lambda: nn.Sequential(3), Exception, "3"),
    "state-missing": (lambda: model().load_state_dict({}), gh.CheckpointError, "0.weight"),
    "state-shape": (
        lambda: model().load_state_dict({"0.weight": gh.ones(2), "0.bias": V}),
        gh.CheckpointError,
        "0.weight",
    ),
    "module-attribute": (lambda: model().wieght, AttributeError, "wieght"),
    # losses
    "cross-entropy-labels": (
        lambda: F.cross_entropy(gh.zeros((2, 3)), gh.asarray([0, 7])),
        IndexError,
        "7",
    ),
    "cross-entropy-shape": (
        lambda: F.cross_entropy(gh.zeros((2, 3)), gh.asarray([0, 1, 2])),
        gh.ShapeError,
        "(3,)",
    ),
    "cross-entropy-dtype": (
        lambda: F.cross_entropy(gh.zeros((2, 3)), gh.zeros(2)),
        Exception,
        "float32",
    ),
    "mse-reduction": (lambda: F.mse_loss(V, V, reduction="meen"), gh.OptionError, "'mean'"),
    "nll-weight": (
        lambda: F.nll_loss(gh.zeros((2, 3)), LABELS, weight=gh.ones(2)),
        gh.ShapeError,
        "(2,)",
    ),
    "bce-shape": (lambda: F.binary_cross_entropy(V, gh.ones(2)), gh.ShapeError, "(2,)"),
    "softmax-axis": (lambda: F.softmax(X, dim=5), gh.ShapeError, "5"),
    # optimizers and schedules
    "optim-empty": (lambda: gh.optim.SGD([], lr=0.1), Exception, "[]|no|none"),
    "optim-lr": (lambda: gh.optim.SGD([leaf()], lr=-1.0), gh.OptionError, "-1.0"),
    "optim-betas": (lambda: gh.optim.Adam([leaf()], betas=(2.0, 0.9)), gh.OptionError, "2.0"),
    "optim-type": (lambda: gh.optim.SGD([3], lr=0.1), gh.DTypeError, "int"),
    "optim-nonleaf": (lambda: gh.optim.SGD([leaf() * 2], lr=0.1), Exception, "leaf"),
    "optim-nesterov": (lambda: gh.optim.SGD([leaf()], lr=0.1, nesterov=True), Exception, "0"),
    "clip-norm": (lambda: gh.optim.clip_grad_norm_([leaf()], -1.0), Exception, "-1.0"),
    "schedule-step": (
        lambda: gh.optim.StepLR(gh.optim.SGD([leaf()], lr=0.1), step_size=0),
        Exception,
        "0",
    ),
    "schedule-optimizer": (lambda: gh.optim.StepLR(3, step_size=1), Exception, "3|int"),
    # data and metrics
    "dataset-sizes": (lambda: TensorDataset(X, gh.ones(2)), gh.ShapeError, "2"),
    "dataset-index": (lambda: TensorDataset(X)[9], IndexError, "9"),
    "loader-batch": (lambda: DataLoader(TensorDataset(X), batch_size=0), gh.OptionError, "0"),
    "loader-workers": (
        lambda: DataLoader(TensorDataset(X), num_workers=-1),
        gh.OptionError,
        "-1",
    ),
    "loader-source": (lambda: DataLoader(iter([1])), gh.DTypeError, "list_iterator"),
    "loader-both": (
        lambda: DataLoader([1], sampler=[0], shuffle=True),
        gh.OptionError,
        "shuffle or sampler",
    ),
    "loader-batches": (
        lambda: DataLoader([1], 2, batch_sampler=[[0]]),
        gh.OptionError,
        "batch_sampler",
    ),
    "loader-prefetch": (
        lambda: DataLoader([1], prefetch_factor=2),
        gh.OptionError,
        "num_workers=0",
    ),
    "loader-persistent": (
        lambda: DataLoader([1], persistent_workers=True),
        gh.OptionError,
        "num_workers=0",
    ),
    "loader-timeout": (lambda: DataLoader([1], timeout=-1), gh.OptionError, "-1"),
    "loader-context": (
        lambda: DataLoader([1], multiprocessing_context="frok"),
        gh.OptionError,
        "'fork'",
    ),
    "loader-collate": (lambda: DataLoader([1], collate_fn="pad"), gh.DTypeError, "'pad'"),
    "loader-state": (
        lambda: DataLoader([1]).load_state_dict({"epoch": 1}),
        gh.CheckpointError,
        "'epoch': 1",
    ),
    "sampler-source": (lambda: gh.data.RandomSampler(3), gh.DTypeError, "int"),
    "sampler-weights": (
        lambda: gh.data.WeightedRandomSampler([1.0, -1.0], 2),
        gh.OptionError,
        "-1.0",
    ),
    "sampler-draws": (
        lambda: gh.data.WeightedRandomSampler([1.0, 0.0], 2, replacement=False),
        gh.OptionError,
        "at most 1",
    ),
    "sampler-rank": (lambda: gh.data.DistributedSampler([1], 2, 2), gh.OptionError, "got 2"),
    "sampler-tokens": (
        lambda: gh.data.BucketBatchSampler([9], max_tokens=8),
        gh.OptionError,
        "at least 9",
    ),
    "split-sum": (lambda: gh.data.random_split([1, 2], [1, 2]), gh.OptionError, "sum to 3"),
    "subset-index": (lambda: gh.data.Subset([1, 2], [2]), gh.IndexOutOfRangeError, "got 2"),
    "stack-lengths": (lambda: gh.data.StackDataset([1], [1, 2]), gh.ShapeError, "[1, 2]"),
    "pad-side": (lambda: gh.data.PadCollate(side="rigth"), gh.OptionError, "'right'"),
    "pad-rank": (
        lambda: gh.data.PadCollate()([V.numpy(), X.numpy()]),
        gh.ShapeError,
        "(3,), (3, 4)",
    ),
    "stream-buffer": (
        lambda: gh.data.IterableSource([1]).shuffle(0),
        gh.OptionError,
        "buffer_size",
    ),
    "stream-iterator": (lambda: gh.data.IterableSource(iter([1])), gh.DTypeError, "list_iterator"),
    "stream-shard": (lambda: gh.data.IterableSource([1]).shard(2, 2), gh.OptionError, "got 2"),
    "shards-missing": (lambda: gh.data.TarShards("/no/such.tar"), gh.OptionError, "/no/such.tar"),
    "idx-missing": (lambda: gh.data.read_idx("/no/such"), gh.CheckpointError, "/no/such"),
    "resize-filter": (lambda: gh.data.Resize(8, "bilinaer"), gh.OptionError, "'bilinear'"),
    "crop-scale": (
        lambda: gh.data.RandomResizedCrop(8, scale=(0.5, 0.1)),
        gh.OptionError,
        "(0.5, 0.1)",
    ),
    "flip-share": (lambda: gh.data.RandomFlip(1.5), gh.OptionError, "1.5"),
    "normalize-std": (lambda: gh.data.Normalize([0.0], [0.0]), gh.OptionError, "0.0"),
    "digits-split": (lambda: gh.data.digits(split="tset"), gh.OptionError, "'test'"),
    "accuracy-shape": (
        lambda: gh.metrics.Accuracy().update(gh.zeros((2, 3)), N),
        gh.ShapeError,
        "3",
    ),
    "average-text": (lambda: gh.metrics.Average().update("a"), gh.DTypeError, "a"),
    # files
    "load-missing": (lambda: interop.load_safetensors("/no/such"), gh.CheckpointError, "/no/such"),
    "load-checkpoint": (
        lambda: interop.load_checkpoint("/no/such", model=model()),
        gh.CheckpointError,
        "/no/such",
    ),
    "save-type": (lambda: interop.save_safetensors("/tmp/x", {"a": "b"}), gh.DTypeError, "a"),
}


def test_the_table_is_long():
    assert len(TABLE) >= 150


@pytest.mark.parametrize("name", TABLE)
def test_wrong_call(name):
    call, error, text = TABLE[name]
    before = X.numpy().copy(), gh.random.default_generator().state(), gh.backends.current()
    with pytest.raises(error) as caught:
        read(call())
    message = str(caught.value)
    assert any(part in message for part in text.split("|")), message
    if type(caught.value).__module__.startswith("glasshouse"):
        assert FORM.match(message), message
    assert (X.numpy() == before[0]).all() and gh.dispatch.active_modes() == ()
    assert gh.backends.current() is before[2] and gh.is_grad_enabled()


def test_tensors_of_other_libraries_are_refused():
    torch = pytest.importorskip("torch")
    for call in (gh.asarray, gh.sin, lambda t: gh.ones(2) + t, lambda t: gh.concat([t, t])):
        with pytest.raises(gh.DTypeError, match="from_dlpack"):
            call(torch.ones(2))
