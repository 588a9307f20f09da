"""Whisper of transformers, the tiny configuration, reads ten seconds of sound without gradients."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
model = WhisperForConditionalGeneration(WhisperConfig(max_source_positions=500)).eval()
compiled = torch.compile(model, backend="glasshouse")
sound, tokens = torch.randn(1, 80, 1000), torch.randint(0, 50000, (1, 32))


def step():
    with torch.no_grad():
        return compiled(input_features=sound, decoder_input_ids=tokens, use_cache=False).logits
