"""Neural networks: modules, layers, losses, initial values, and their functional forms."""

from glasshouse.dispatch.scope import current_module_path
from glasshouse.nn import functional, init
from glasshouse.nn.layers import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AlphaDropout,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    Fold,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Mish,
    PReLU,
    RReLU,
    ReLU,
    ReLU6,
    SiLU,
    Sigmoid,
    Softmax,
    Softmax2d,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
    Unfold,
)
from glasshouse.nn.adaptive import (
    AdaptiveLogSoftmaxWithLoss,
    LinearCrossEntropyLoss,
    LinearCrossEntropyOptions,
)
from glasshouse.nn.attention import MultiheadAttention
from glasshouse.nn.containers import (
    Container,
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from glasshouse.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from glasshouse.nn.linear import Embedding, Flatten, Identity, Linear, Unflatten
from glasshouse.nn.loss import (
    ASGLoss,
    RNNTLoss,
    BCELoss,
    BCEWithLogitsLoss,
    CTCLoss,
    ContrastiveLoss,
    CosineEmbeddingLoss,
    CosineSimilarity,
    CrossEntropyLoss,
    DiceLoss,
    FocalLoss,
    GaussianNLLLoss,
    HingeEmbeddingLoss,
    HuberLoss,
    InfoNCELoss,
    KLDivLoss,
    L1Loss,
    LabelSmoothingLoss,
    MSELoss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
    NLLLoss2d,
    NTXentLoss,
    PairwiseDistance,
    PoissonNLLLoss,
    SigmoidFocalLoss,
    SmoothL1Loss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)
from glasshouse.nn.hooks import (
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from glasshouse.nn.module import ModuleBuffer as Buffer
from glasshouse.nn.module import Module, Parameter, functional_call
from glasshouse.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from glasshouse.nn.generation import GroupedQueryAttention, GrowingKVCache, KVCache
from glasshouse.nn.positions import (
    ALiBi,
    LearnedPositionEmbedding,
    RelativePositionBias,
    RotaryEmbedding,
    SinusoidalPositionEmbedding,
)
from glasshouse.nn.transformer import EncoderDecoder as Transformer
from glasshouse.nn.transformer import (
    LayerDrop,
    LayerDropSequential,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from glasshouse.nn import utils
from glasshouse.nn.utils import parametrize
