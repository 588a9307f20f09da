"""Neural networks: modules, layers, losses, initial values, and their functional forms."""

from glasshouse.dispatch.scope import current_module_path
from glasshouse.nn import functional, init
from glasshouse.nn.layers import *
from glasshouse.nn.adaptive import *
from glasshouse.nn.attention import MultiheadAttention
from glasshouse.nn.blocks import *
from glasshouse.nn.containers import *
from glasshouse.nn.conv import *
from glasshouse.nn.images import *
from glasshouse.nn.lazy import *
from glasshouse.nn.linear import (
    Bilinear,
    Embedding,
    Flatten,
    Identity,
    Linear,
    TransposedLinear,
    Unflatten,
)
from glasshouse.nn.loss import *
from glasshouse.nn.hooks import *
from glasshouse.nn.module import ModuleBuffer as Buffer
from glasshouse.nn.module import Module, Parameter, functional_call
from glasshouse.nn.norm import *
from glasshouse.nn.generation import (
    Generation,
    GroupedQueryAttention,
    GrowingKVCache,
    KVCache,
    Prefix,
    TokenSampler,
    SlotCache,
    Writer,
    generate,
    read_prefix,
)
from glasshouse.nn.positions import *
from glasshouse.nn.transformer import EncoderDecoder as Transformer
from glasshouse.nn.shapes import *
from glasshouse.nn.speech_blocks import Conformer, ScalarLayerNorm, TDSBlock
from glasshouse.nn.recurrent import *
from glasshouse.nn.transformer import *
from glasshouse.nn import lora, utils
from glasshouse.nn.embedding import AdaptiveEmbedding, EmbeddingBag
from glasshouse.nn.quantized import (
    Int8Conv1d,
    Int8Conv2d,
    Int8Conv3d,
    Int8Linear,
    QuantizedEmbedding,
    QuantizedLinear,
    quantize,
    round_in_training,
)
from glasshouse.nn.utils import parametrize
