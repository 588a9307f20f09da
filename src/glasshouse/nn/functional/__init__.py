"""Layers and losses as functions, with PyTorch's names and arguments."""

from glasshouse.nn.functional.activation import (
    alpha_dropout,
    celu,
    celu_,
    drop_path,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    elu,
    elu_,
    feature_alpha_dropout,
    gelu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    threshold_,
)
from glasshouse.nn.functional.asg import asg_align, asg_loss, asg_path
from glasshouse.nn.functional.attention import scaled_dot_product_attention
from glasshouse.nn.functional.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from glasshouse.nn.functional.ctc import ctc_align, ctc_loss
from glasshouse.nn.functional.distance import pairwise_distance, pdist
from glasshouse.nn.functional.gates import geglu, glu, reglu, swiglu
from glasshouse.nn.functional.likelihood import (
    dice_loss,
    focal_loss,
    gaussian_nll_loss,
    info_nce_loss,
    label_smoothing_loss,
    linear_cross_entropy,
    nt_xent_loss,
    poisson_nll_loss,
    sigmoid_focal_loss,
)
from glasshouse.nn.functional.embedding import embedding_bag
from glasshouse.nn.functional.flex import (
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
    sliding_window,
)
from glasshouse.nn.functional.linear import bilinear, embedding, linear, one_hot
from glasshouse.nn.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from glasshouse.nn.functional.margin import (
    contrastive_loss,
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from glasshouse.nn.functional.multihead import multi_head_attention_forward
from glasshouse.nn.functional.norm import (
    batch_norm,
    cosine_similarity,
    cross_map_lrn2d,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from glasshouse.nn.functional.padding import fold, pad, unfold
from glasshouse.nn.functional.positions import (
    alibi_slopes,
    relative_buckets,
    rotate,
    sinusoids,
)
from glasshouse.nn.functional.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
)
from glasshouse.nn.functional.rearrange import channel_shuffle, pixel_shuffle, pixel_unshuffle
from glasshouse.nn.functional.rearrange import channel_shuffle as native_channel_shuffle
from glasshouse.nn.functional.resize import interpolate
from glasshouse.nn.functional.sample import affine_grid, grid_sample
from glasshouse.nn.functional.unpool import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from glasshouse.nn.functional.transducer import rnnt_loss
from glasshouse.tensor.elementwise import tanh
