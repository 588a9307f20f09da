"""Networks that read and write text, with transformers' architectures and parameter names.

Tokens (N, L) go in; states, scores of the vocabulary or of classes come out. Read `parts.py`, then
`bert.py`, `gpt2.py`, `llama.py`, `encoder_decoder.py`, `t5.py`, `marian.py`, `pretrained.py`;
`plain.py` has an encoder and a decoder of `nn`'s own layers."""

from glasshouse.text.models.bert import *
from glasshouse.text.models.encoder_decoder import shift_right
from glasshouse.text.models.gguf import *
from glasshouse.text.models.gpt2 import *
from glasshouse.text.models.llama import *
from glasshouse.text.models.marian import *
from glasshouse.text.models.plain import *
from glasshouse.text.models.pretrained import *
from glasshouse.text.models.t5 import *
