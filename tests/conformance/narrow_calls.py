"""Calls of every public function of tensors with floating operands, for test_narrow.py.

A function that is not named here is called with the first of TEMPLATES that it takes in float64."""

import numpy as np

import glasshouse as gh
import glasshouse.nn.functional as F
from glasshouse import fft, linalg, special

SPACES = {
    "gh": gh,
    "gh.nn.functional": F,
    "gh.linalg": linalg,
    "gh.special": special,
    "gh.fft": fft,
}


class Draw:
    """A floating operand of a call: its shape, and in which range it is drawn (`x` is the one under
    test, others stay as they are: "unit" is of the order of 1, "part" lies between 0 and 1)."""

    def __init__(self, *shape: int, kind: str = "x"):
        self.shape, self.kind = shape, kind


def unit(*shape: int) -> Draw:
    return Draw(*shape, kind="unit")


def part(*shape: int) -> Draw:
    return Draw(*shape, kind="part")


def call(name: str, *args, **named):
    """A call of the function of this name; operands are drawn, all else is passed on."""
    return name, args, named


M, N, SQUARE, VECTOR = Draw(4, 6), Draw(4, 6), Draw(4, 4), Draw(6)
LINES, IMAGES, VOLUMES = Draw(2, 3, 10), Draw(2, 3, 6, 6), Draw(1, 2, 4, 4, 4)
TEMPLATES = [(M,), (M, N), (M, N, Draw(4, 6)), (SQUARE,), (VECTOR,), (VECTOR, Draw(6)), (IMAGES,)]

LABELS = np.array([1, 0, 3, 2])
ROWS = np.array([3, 0, 2])
PLACES = np.array([[1, 0, 3, 3, 2, 1]])
MASK = np.array([[True, False, True, True, False, False]] * 4)
SIGNS = np.array([[1.0, -1.0, 1.0, 1.0, -1.0, -1.0]] * 4)
REGULAR = np.eye(4) * 4 + np.arange(16).reshape(4, 4) / 16

CHANNELS = np.arange(3) / 4 + 0.5
BATCH = np.arange(2, dtype=np.int64)


def each(names: str, *args, space: str = "gh", **named) -> list:
    """The same call of several functions."""
    return [call(f"{space}.{name}", *args, **named) for name in names.split()]


def of_layers(names: str, *args, **named) -> list:
    return each(names, *args, space="gh.nn.functional", **named)


POLYNOMIALS = [name for name in dir(special) if "_polynomial_" in name]  # their degree is a count
BOTH, MATHEMATICS = ("gh", "gh.nn.functional"), ("gh", "gh.linalg")
LONG = Draw(70_000)  # more elements than float16 has numbers for

# fmt: off
CALLS = [
    # reductions and scans
    *each("sum mean var std prod max min logsumexp cumulative_sum cumulative_prod cumsum cumprod "
          "cummax cummin logcumsumexp median nanmedian nansum nanmean std_mean var_mean argmax "
          "argmin sort argsort softmax log_softmax diff flip mode amax amin aminmax", M, axis=1),
    *each("sum mean var std max min logsumexp median nansum nanmean std_mean var_mean amax amin "
          "norm cumsum count_nonzero", LONG),
    *each("kthvalue topk", M, 3, axis=1),
    *each("softmax log_softmax", M, 1, space="gh.special"),
    *each("multigammaln", M, 2, space="gh.special"),
    *each("polygamma", 1, M, space="gh.special"),
    *each(" ".join(POLYNOMIALS), M, 5, space="gh.special"),
    *each(" ".join(POLYNOMIALS), M, np.arange(6), space="gh.special"),
    *each("quantile nanquantile", M, 0.3, axis=1),
    *each("quantile nanquantile", LONG, 0.7),
    *each("std var", Draw(1000), correction=1),
    *each("std var mean", VOLUMES, axis=(0, 2)),
    *each("softmax log_softmax logsumexp", Draw(2, 5000), axis=-1),
    call("gh.histc", M, 5, -1.0, 1.0),
    *[call("gh.renorm", M, p, 0, 1.0) for p in (1.0, 2.0, 3.0)],
    *[call("gh.norm", x, *p) for x, p in ((M, (3.0,)), (VECTOR, (2,)), (M, (1,)))],
    *each("corrcoef cov", M),
    *each("corrcoef cov", VECTOR),
    # elements
    *each("addcmul addcdiv", M, N, unit(4, 6), value=0.5),
    call("gh.lerp", M, N, 0.3), call("gh.lerp", M, N, part(4, 6)),
    *each("clip clamp", M, -0.5, 0.5),
    *each("clamp_min clamp_max", M, 0.1),
    call("gh.threshold", M, 0.1, 2.0),
    call("gh.round", M, 1),
    call("gh.ldexp", M, np.array(2)),
    call("gh.polygamma", 1, M),
    call("gh.mvlgamma", M, 1),
    call("gh.where", MASK, M, N),
    call("gh.masked_fill", M, MASK, 2.0),
    *[call("gh.pow", M, p) for p in (2, 3.0, 0.5, unit(4, 6))],
    call("gh.pow", part(4, 6), M),
    call("gh.float_power", M, unit(4, 6)),
    *each("igamma igammac", part(4, 6), M),
    *each("prelu", M, unit(1)),
    *of_layers("prelu", M, unit(1)),
    *each("allclose array_equal is_same_size", M, N),
    call("gh.astype", M, gh.float32),
    # distances and norms
    *[call(f"{s}.pdist", M, p) for s in BOTH for p in (1.0, 2.0, 3.0)],
    *[call("gh.cdist", M, N, p) for p in (1.0, 2.0, 3.0)],
    *[call("gh.dist", M, N, p) for p in (2.0, 3.0)],
    *[call("gh.nn.functional.pairwise_distance", M, N, p) for p in (1.0, 2.0, 3.0)],
    *[call("gh.nn.functional.normalize", M, p) for p in (1.0, 2.0, 3.0)],
    *[call("gh.linalg.vector_norm", x, p) for x in (M, LONG) for p in (0, 1, 2, 3, 0.5, np.inf)],
    *[call("gh.linalg.matrix_norm", M, p) for p in ("fro", 1, -1, np.inf)],
    *[call("gh.linalg.norm", M, p) for p in (None, "fro", 1)],
    *[call("gh.linalg.norm", VECTOR, p) for p in (2, 3)],
    # products
    *each("matmul mm", M, unit(6, 3)),
    call("gh.matmul", Draw(3, 4000), unit(4000, 2)),
    call("gh.bmm", Draw(2, 3, 4), unit(2, 4, 3)),
    call("gh.mv", M, unit(6)),
    *each("dot vdot", VECTOR, unit(6)),
    call("gh.inner", M, unit(4, 6)),
    call("gh.einsum", "ij,jk->ik", M, unit(6, 3)),
    *[call(f"{s}.tensordot", M, unit(6, 3), axes=1) for s in MATHEMATICS],
    *[call(f"{s}.cross", Draw(4, 3), unit(4, 3)) for s in MATHEMATICS],
    *[call(f"{s}.vecdot", M, unit(4, 6)) for s in MATHEMATICS],
    *[call(f"{s}.matrix_power", part(4, 4), 2) for s in MATHEMATICS],
    call("gh.linalg.outer", VECTOR, unit(4)),
    call("gh.linalg.matmul", M, unit(6, 3)),
    # layers
    *of_layers("softmax softmin log_softmax", M, 1),
    *of_layers("adaptive_avg_pool1d adaptive_max_pool1d adaptive_max_pool1d_with_indices",
               LINES, 4),
    *each("adaptive_avg_pool1d adaptive_max_pool1d", LINES, 4),
    *of_layers("adaptive_avg_pool2d adaptive_max_pool2d adaptive_max_pool2d_with_indices",
               IMAGES, 4),
    *of_layers("adaptive_avg_pool3d adaptive_max_pool3d adaptive_max_pool3d_with_indices",
               VOLUMES, 2),
    *of_layers("avg_pool1d max_pool1d max_pool1d_with_indices", LINES, 3, 2, 1),
    *each("avg_pool1d max_pool1d", LINES, 3, 2, 1),
    *of_layers("avg_pool2d max_pool2d max_pool2d_with_indices", IMAGES, 3, 2, 1),
    *of_layers("avg_pool3d max_pool3d max_pool3d_with_indices", VOLUMES, 2, 1, 1),
    *each("max_pool2d", IMAGES, 3, 2, 1), *each("max_pool3d", VOLUMES, 2, 1, 1),
    *of_layers("avg_pool1d", Draw(1, 1, 3000), 3000),
    *[call(f"gh.nn.functional.lp_pool{n}d", x, p, 2)
      for n, x in ((1, LINES), (2, IMAGES), (3, VOLUMES)) for p in (2, 3)],
    *[call(f"{s}.conv{n}d", x, w) for s in BOTH for n, x, w in (
        (1, LINES, unit(4, 3, 3)), (2, IMAGES, unit(4, 3, 3, 3)),
        (3, VOLUMES, unit(3, 2, 2, 2, 2)))],
    *[call(f"{s}.conv_transpose{n}d", x, w) for s in BOTH for n, x, w in (
        (1, LINES, unit(3, 2, 3)), (2, IMAGES, unit(3, 2, 2, 2)),
        (3, VOLUMES, unit(2, 1, 2, 2, 2)))],
    *[call(f"{s}.group_norm", LINES, 3, CHANNELS, CHANNELS) for s in BOTH],
    *[call(f"{s}.layer_norm", M, (6,), unit(6), unit(6)) for s in BOTH],
    *[call(f"{s}.rms_norm", M, (6,), unit(6)) for s in BOTH],
    *[call(f"{s}.batch_norm", LINES, CHANNELS, CHANNELS) for s in BOTH],
    *[call(f"{s}.batch_norm", IMAGES, None, None, training=True) for s in BOTH],
    *of_layers("cross_map_lrn2d local_response_norm", IMAGES, 3),
    *of_layers("bilinear", M, unit(4, 5), unit(2, 6, 5)),
    *of_layers("interpolate", IMAGES, scale_factor=2, mode="bilinear"),
    *of_layers("interpolate", IMAGES, size=(4, 5), mode="bicubic"),
    *of_layers("interpolate", IMAGES, scale_factor=0.5, mode="nearest"),
    *of_layers("grid_sample", IMAGES, part(2, 3, 3, 2)),
    *of_layers("affine_grid", Draw(2, 2, 3), (2, 3, 4, 4)),
    *of_layers("fold", Draw(2, 8, 9), (4, 4), 2), *of_layers("unfold", IMAGES, 2),
    *of_layers("pad", M, (1, 2)), *each("pad", M, (1, 2)),
    *of_layers("embedding", ROWS, M), *each("embedding", ROWS, M),
    *of_layers("embedding_bag", PLACES, M), *of_layers("embedding_bag", PLACES, M, mode="sum"),
    *each("embedding_bag", PLACES, M),
    # losses
    *of_layers("mse_loss l1_loss smooth_l1_loss huber_loss", LONG, unit(70_000)),
    *of_layers("mse_loss l1_loss", LONG, unit(70_000), reduction="sum"),
    *of_layers("binary_cross_entropy", part(4, 6), part(4, 6)),
    *of_layers("nll_loss cross_entropy label_smoothing_loss focal_loss", M, LABELS),
    *of_layers("nll_loss cross_entropy", Draw(70_000, 2), np.arange(70_000) % 2),
    *of_layers("nll_loss cross_entropy", M, LABELS, np.arange(6) / 8 + 0.5),
    *of_layers("gaussian_nll_loss", M, N, part(4, 6)),
    *of_layers("cosine_embedding_loss contrastive_loss", M, N, SIGNS[0, :4]),
    *each("cosine_embedding_loss", M, N, SIGNS[0, :4]),
    *of_layers("multi_margin_loss", M, LABELS),
    *of_layers("multilabel_margin_loss", M, np.array([[1, 3, -1, 0, 0, 0]] * 4)),
    # places
    *each("index_select", M, 0, ROWS), *each("gather", M, 0, PLACES),
    *each("index_add index_copy", M, 0, ROWS, unit(3, 6)),
    *each("index_fill", M, 0, ROWS, 2.0),
    *[call("gh.index_reduce", M, 0, np.array([1, 1, 1]), unit(3, 6), r) for r in ("mean", "prod")],
    *each("scatter scatter_add", M, 0, PLACES, unit(1, 6)),
    *[call("gh.scatter_reduce", M, 0, PLACES, unit(1, 6), r) for r in ("sum", "mean", "amin")],
    call("gh.scatter_add", Draw(2), 0, np.zeros(5000, np.int64), unit(5000)),
    call("gh.scatter_reduce", Draw(2), 0, np.zeros(70_000, np.int64), unit(70_000), "mean"),
    *[call("gh.segment_reduce", VECTOR, r, lengths=np.array([2, 4])) for r in ("sum", "mean")],
    *each("stft", Draw(64), 16, return_complex=True),
    *each("view_as_complex view_as_complex_copy", Draw(4, 2)),
]
# fmt: on

RANDOM = "draws other numbers in each dtype"
SHAPES = "moves elements, or makes a shape, and computes nothing"
NO_TENSORS = "takes no floating tensors"
PRODUCTS = "adds products that were rounded, which are made by instructions of the narrow dtype"
MATRICES = "refuses 16-bit floats, as factorisations do (and PyTorch's)"
RUNS_OTHERS = "calls a function that it is passed"
ELSEWHERE = "computes in float32 by a rule with tests of its own"

EXCEPTIONS = {
    name: reason
    for reason, names in {
        RANDOM: """
rand_like randn_like randint_like normal bernoulli binomial multinomial poisson dropout
alpha_dropout feature_alpha_dropout rrelu F.rrelu F.dropout F.dropout1d F.dropout2d F.dropout3d
F.drop_path F.alpha_dropout F.feature_alpha_dropout F.gumbel_softmax F.fractional_max_pool2d
F.fractional_max_pool2d_with_indices F.fractional_max_pool3d F.fractional_max_pool3d_with_indices
rand randn randint randperm svd_lowrank pca_lowrank empty_like""",
        SHAPES: """
as_strided as_strided_copy as_strided_scatter broadcast_to channel_shuffle chunk diagonal_scatter
dsplit expand_copy hsplit vsplit moveaxis movedim narrow narrow_copy nonzero_static numel permute
permute_copy permute_dims pixel_shuffle pixel_unshuffle put put_along_axis repeat
repeat_interleave reshape roll select select_copy select_scatter split split_copy split_with_sizes
split_with_sizes_copy swapaxes swapdims take take_along_axis take_along_dim tensor_split tile
unflatten unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes view_copy masked_scatter
masked_select index_put add_at F.channel_shuffle F.native_channel_shuffle F.pixel_shuffle
F.pixel_unshuffle F.max_unpool1d F.max_unpool2d F.max_unpool3d view_as_real view_as_real_copy
one_hot F.one_hot hash_tensor""",
        NO_TENSORS: """
add_op_callback arange bartlett_window bincount bind bitwise_and bitwise_invert bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window broadcast_shapes can_cast
disable empty empty_permuted empty_strided eval explain export eye fft.fftfreq fft.rfftfreq finfo
fit from_numpy frombuffer full gcd get_default_dtype get_rng_state graph_break hamming_window
hann_window iinfo initial_seed is_autocast_enabled is_complex is_conj is_floating_point
is_grad_enabled is_inference is_neg is_nonzero is_signed is_tensor isdtype kaiser_window lcm
linspace list_compilers load logspace manual_seed mark_dynamic meta ones optimize promote_types
compile range register_compiler reset result_type run save seed set_rng_state skip to_dlpack
tril_indices triu_indices typename unravel_index verify zeros checkpoint F.alibi_slopes F.and_masks
F.create_block_mask F.create_mask F.noop_mask F.or_masks F.sinusoids F.sliding_window
cartesian_prod allow_in_graph assume_constant_result disallow_in_graph is_same_size array_equal
quantize allclose export_program load_step save_step""",
        PRODUCTS: """
addmm addmv addr addbmm baddbmm chain_matmul linalg.multi_dot bilinear F.bilinear ormqr orgqr
linalg.householder_product F.scaled_dot_product_attention F.flex_attention
F.multi_head_attention_forward F.linear_cross_entropy conv_tbc F.conv_tbc F.info_nce_loss
F.nt_xent_loss matrix_power linalg.matrix_power matrix_exp linalg.matrix_exp vander linalg.vander
kron""",
        MATRICES: """
cholesky cholesky_solve cholesky_inverse linalg.cholesky linalg.cholesky_ex linalg.ldl_solve
linalg.lu_solve linalg.solve linalg.solve_ex linalg.solve_triangular linalg.tensorinv
linalg.tensorsolve lu_solve lu_unpack triangular_solve lobpcg geqrf""",
        RUNS_OTHERS: """
cond eval_shape fori_loop grad hessian hvp jacfwd jacobian jacrev jit jvp linear_transpose linearize
make_graph scan stop_gradient switch value_and_grad vjp vmap while_loop""",
        ELSEWHERE: """
ctc_loss F.ctc_loss F.ctc_align F.asg_align F.asg_loss F.asg_path F.rnnt_loss istft histogramdd
F.relative_buckets""",
    }.items()
    for name in names.split()
}
EXCEPTIONS = {
    f"gh.{name.replace('F.', 'nn.functional.') if name.startswith('F.') else name}": reason
    for name, reason in EXCEPTIONS.items()
}
