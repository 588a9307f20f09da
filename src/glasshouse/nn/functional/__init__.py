"""Layers and losses as functions, with PyTorch's names and arguments."""

from glasshouse.nn.functional.activation import (
    alpha_dropout,
    celu,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    rrelu,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from glasshouse.nn.functional.asg import asg_align, asg_loss, asg_path
from glasshouse.nn.functional.attention import scaled_dot_product_attention
from glasshouse.nn.functional.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from glasshouse.nn.functional.ctc import ctc_align, ctc_loss
from glasshouse.nn.functional.distance import pairwise_distance, pdist
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
from glasshouse.nn.functional.linear import embedding, linear, one_hot
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
    group_norm,
    instance_norm,
    layer_norm,
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
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from glasshouse.nn.functional.transducer import rnnt_loss
from glasshouse.tensor.elementwise import tanh
