"""Checkpoints and other libraries: safetensors files and PyTorch."""

from glasshouse.interop.checkpoint import load_checkpoint, save_checkpoint
from glasshouse.interop.einops import register_einops
from glasshouse.interop.gguf import GgufFile, open_gguf
from glasshouse.interop.saved_trees import load, save
from glasshouse.interop.safetensors import load_safetensors, save_safetensors
from glasshouse.interop.shards import TensorFiles, open_safetensors, save_shards
from glasshouse.interop.torch import *
