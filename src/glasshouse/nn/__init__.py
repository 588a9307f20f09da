"""Neural networks: modules, layers, losses, initial values, and their functional forms."""

from glasshouse.dispatch.scope import current_module_path
from glasshouse.nn import functional, init
from glasshouse.nn.layers import (CELU, ELU, GELU, GLU, SELU, AdaptiveAvgPool1d, AdaptiveAvgPool2d,
    AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AlphaDropout,
    AvgPool1d, AvgPool2d, AvgPool3d, BCELoss, BCEWithLogitsLoss, CTCLoss, CrossEntropyLoss, Dropout,
    Dropout1d, Dropout2d, Dropout3d, Fold, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, HuberLoss,
    KLDivLoss, L1Loss, LeakyReLU, LogSigmoid, LogSoftmax, MSELoss, MaxPool1d, MaxPool2d, MaxPool3d,
    Mish, NLLLoss, PReLU, RReLU, ReLU, ReLU6, SiLU, Sigmoid, SmoothL1Loss, Softmax, Softmax2d,
    Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold, Unfold)
from glasshouse.nn.attention import MultiheadAttention
from glasshouse.nn.containers import ModuleDict, ModuleList, ParameterList, Sequential
from glasshouse.nn.conv import (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d)
from glasshouse.nn.linear import Embedding, Flatten, Identity, Linear, Unflatten
from glasshouse.nn.module import Module, Parameter, functional_call
from glasshouse.nn.norm import (BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, LayerNorm, RMSNorm)
from glasshouse.nn.transformer import (TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer)
