"""Text token by token: caches of keys and values, draws from scores, and the loop of both.

Read `attention.py` (caches that a loop of one's own takes), `slots.py` (texts of unequal lengths in
one cache), `sampling.py`, `writer.py` (from a prompt to tokens), `beams.py`, `drafts.py`."""

from glasshouse.nn.generation.attention import GroupedQueryAttention, GrowingKVCache, KVCache
from glasshouse.nn.generation.sampling import TokenSampler
from glasshouse.nn.generation.slots import Prefix, SlotCache, states_at
from glasshouse.nn.generation.writer import Generation, Writer, generate, read_prefix
