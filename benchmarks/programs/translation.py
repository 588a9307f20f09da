"""Numbers written in words of one language, translated into those of another by nn.Transformer."""

import math

import numpy as np
import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence

PAD, BOS, EOS = 0, 1, 2
SOURCE_WORDS, TARGET_WORDS = 33, 43
BATCH, WIDTH, HEADS, LONGEST = 16, 64, 4, 12


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 100):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding: Tensor):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, emb_size: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, emb_size)
        self.emb_size = emb_size

    def forward(self, tokens: Tensor):
        return self.embedding(tokens.long()) * math.sqrt(self.emb_size)


class Seq2SeqTransformer(nn.Module):
    def __init__(self, layers: int, dropout: float = 0.0):
        super().__init__()
        self.transformer = Transformer(
            d_model=WIDTH,
            nhead=HEADS,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=2 * WIDTH,
            dropout=dropout,
        )
        self.generator = nn.Linear(WIDTH, TARGET_WORDS)
        self.src_tok_emb = TokenEmbedding(SOURCE_WORDS, WIDTH)
        self.tgt_tok_emb = TokenEmbedding(TARGET_WORDS, WIDTH)
        self.positional_encoding = PositionalEncoding(WIDTH, dropout=dropout)

    def forward(self, src, trg, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask):
        src_emb = self.positional_encoding(self.src_tok_emb(src))
        tgt_emb = self.positional_encoding(self.tgt_tok_emb(trg))
        outs = self.transformer(
            src_emb,
            tgt_emb,
            src_mask,
            tgt_mask,
            None,
            src_padding_mask,
            tgt_padding_mask,
            src_padding_mask,
        )
        return self.generator(outs)


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz))) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, 0.0)


def create_mask(src, tgt):
    src_len, tgt_len = src.shape[0], tgt.shape[0]
    tgt_mask = generate_square_subsequent_mask(tgt_len)
    src_mask = torch.zeros((src_len, src_len))
    src_padding_mask = (src == PAD).float().masked_fill((src == PAD), float("-inf"))
    src_padding_mask = src_padding_mask.transpose(0, 1)
    tgt_padding_mask = torch.zeros(tgt_len, tgt.shape[1]).transpose(0, 1)
    tgt_padding_mask = tgt_padding_mask.masked_fill((tgt == PAD).transpose(0, 1), float("-inf"))
    return src_mask, tgt_mask, src_padding_mask, tgt_padding_mask


def tensor_transform(token_ids):
    return torch.cat((torch.tensor([BOS]), torch.tensor(token_ids), torch.tensor([EOS])))


def batches(count):
    draws = np.random.default_rng(0)
    results = []
    for _ in range(count):
        sources, targets = [], []
        for i in range(BATCH):
            words = draws.integers(30, size=LONGEST if i == 0 else draws.integers(3, LONGEST))
            sources.append(tensor_transform([int(w) + 3 for w in words]))
            targets.append(tensor_transform([40 - int(w) for w in words[::-1]]))
        results.append((pad_sequence(sources, padding_value=PAD), pad_sequence(targets)))
    return results


def models():
    transformer = Seq2SeqTransformer(2)
    for p in transformer.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return (transformer,)


def training(model):
    loss_fn = torch.nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001, betas=(0.9, 0.98), eps=1e-9)
    model.train()

    def step(src, tgt):
        tgt_input = tgt[:-1, :]
        src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
        logits = model(src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask)
        optimizer.zero_grad()
        tgt_out = tgt[1:, :]
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step
