"""Glasshouse: a machine-learning framework whose inside is open.

Array functions follow the Array API standard, neural networks PyTorch's habits, transforms JAX's
names. Below them lie about 80 primitives; every layer can be seen and replaced.

    import glasshouse as gh

Packages for files and other libraries (checkpoints, safetensors, torch) are imported by name:
`from glasshouse import interop`."""

from glasshouse import (
    analyze,
    autograd,
    backends,
    base,
    capture,
    data,
    dispatch,
    distributed,
    distributions,
    estimate,
    fit,
    memory,
    metrics,
    nn,
    ops,
    optim,
    profile,
    speech,
    targets,
    tensor,
    text,
    vision,
)
from glasshouse.analyze import meta
from glasshouse.autograd import no_grad as inference_mode
from glasshouse.autograd import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from glasshouse.base import tree
from glasshouse import amp, cuda
from glasshouse.base.device import device
from glasshouse.base.dtype import *
from glasshouse.base.dtype import DType as dtype
from glasshouse.base.dtype import bool_ as bool
from glasshouse.base.dtype import complex64 as cfloat
from glasshouse.base.dtype import complex128 as cdouble
from glasshouse.base.dtype import float16 as half
from glasshouse.base.dtype import float32 as float
from glasshouse.base.dtype import float64 as double
from glasshouse.base.dtype import int16 as short
from glasshouse.base.dtype import int32 as int
from glasshouse.base.dtype import int64 as long
from glasshouse.base.errors import *
from glasshouse.capture.api import *
from glasshouse.capture.jit import jit, make_graph
from glasshouse.capture.compilers import list_compilers, register_compiler
from glasshouse.dispatch import (
    Mode,
    Primitive,
    add_op_callback,
    autocast,
    bind,
    is_autocast_enabled,
    primitives,
)
from glasshouse.interop.saved_trees import save
from glasshouse.nn.functional import (
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    alpha_dropout,
    avg_pool1d,
    batch_norm,
    bilinear,
    binary_cross_entropy_with_logits,
    celu,
    celu_,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_embedding_loss,
    cosine_similarity,
    ctc_loss,
    dropout,
    embedding,
    embedding_bag,
    feature_alpha_dropout,
    group_norm,
    hardshrink,
    hinge_embedding_loss,
    instance_norm,
    kl_div,
    layer_norm,
    log_softmax,
    margin_ranking_loss,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    poisson_nll_loss,
    prelu,
    relu,
    relu_,
    rms_norm,
    rrelu,
    rrelu_,
    selu,
    selu_,
    softmax,
    threshold,
    threshold_,
    triplet_margin_loss,
)
from glasshouse.profile import FlopCounter, record_function
from glasshouse.targets import detect_anomaly, deterministic
from glasshouse.tensor import (
    Tensor,
    cumprod,
    cumsum,
    fft,
    linalg,
    random,
    set_print_options,
    special,
)
from glasshouse.tensor.standard.contract import *
from glasshouse.tensor.standard.creation import *
from glasshouse.tensor.standard.elementwise import *
from glasshouse.tensor.standard.index import *
from glasshouse.tensor.standard.manipulate import *
from glasshouse.tensor.standard.namespace import *
from glasshouse.tensor.standard.reduce import *
from glasshouse.tensor.standard.search import *
from glasshouse.tensor.standard.arithmetic import *
from glasshouse.tensor.torch_names.arrange import *
from glasshouse.tensor.torch_names.counts import *
from glasshouse.tensor.torch_names.drawing import *
from glasshouse.tensor.torch_names.eigenpairs import *
from glasshouse.tensor.torch_names.joining import *
from glasshouse.tensor.torch_names.creation import *
from glasshouse.tensor.torch_names.matrices import *
from glasshouse.tensor.torch_names.products import *
from glasshouse.tensor.torch_names.scans import *
from glasshouse.tensor.torch_names.scatter import *
from glasshouse.tensor.torch_names.segments import *
from glasshouse.tensor.torch_names.short_time import *
from glasshouse.tensor.torch_names.statistics import *
from glasshouse.tensor.synonyms import *
from glasshouse.tensor.random import Generator
from glasshouse.tensor.random import global_generator as default_generator
from glasshouse.nn.quantized import quantize
from glasshouse.text.loading import load
from glasshouse.transforms import *
from glasshouse.version import __version__
from glasshouse import onnx
from glasshouse.standalone import export_program, load_step, save_step
from glasshouse import _missing_names
