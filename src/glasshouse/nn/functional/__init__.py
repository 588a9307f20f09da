"""Layers and losses as functions, with PyTorch's names and arguments.

Tensors go in and come out; a layer of `nn` adds parameters and nothing else. Read `linear.py`,
`activation.py`, `norm.py` and `conv.py`; `attention.py`, `multihead.py` and `flex.py`, attention;
`loss.py` and those of sequences, `ctc.py`, `asg.py`, `transducer.py`, with their `lattice.py`."""

from glasshouse.nn.functional.activation import *
from glasshouse.nn.functional.asg import asg_align, asg_loss, asg_path
from glasshouse.nn.functional.attention import scaled_dot_product_attention
from glasshouse.nn.functional.conv import *
from glasshouse.nn.functional.ctc import ctc_align, ctc_loss
from glasshouse.nn.functional.distance import pairwise_distance, pdist
from glasshouse.nn.functional.gates import geglu, glu, reglu, swiglu
from glasshouse.nn.functional.likelihood import *
from glasshouse.nn.functional.embedding import embedding_bag
from glasshouse.nn.functional.flex import *
from glasshouse.nn.functional.linear import bilinear, embedding, linear, one_hot
from glasshouse.nn.functional.loss import *
from glasshouse.nn.functional.margin import *
from glasshouse.nn.functional.multihead import multi_head_attention_forward
from glasshouse.nn.functional.norm import *
from glasshouse.nn.functional.padding import fold, pad, unfold
from glasshouse.nn.functional.positions import *
from glasshouse.nn.functional.pool import *
from glasshouse.nn.functional.rearrange import channel_shuffle, pixel_shuffle, pixel_unshuffle
from glasshouse.nn.functional.rearrange import channel_shuffle as native_channel_shuffle
from glasshouse.nn.functional.resize import interpolate
from glasshouse.nn.functional.sample import affine_grid, grid_sample
from glasshouse.nn.functional.unpool import *
from glasshouse.nn.functional.transducer import rnnt_loss
from glasshouse.tensor.standard.elementwise import tanh
