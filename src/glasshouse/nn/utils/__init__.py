"""PyTorch's `torch.nn.utils`, under its name: gradients, parametrizations, pruning, sequences."""

from glasshouse.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from glasshouse.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from glasshouse.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from glasshouse.nn.utils.init import skip_init
from glasshouse.nn.utils.recomputed import (
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from glasshouse.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
