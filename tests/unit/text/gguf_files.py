"""Small GGUF files for the tests, written from the format's description."""

import re
import struct

import numpy as np

KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}
BLOCKS = {"Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34), "Q4_K": (256, 144),
          "Q6_K": (256, 210)}  # fmt: skip
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}
SIZES = {"llama.block_count": 2, "llama.context_length": 64, "llama.embedding_length": 64,
         "llama.feed_forward_length": 96, "llama.attention.head_count": 4,
         "llama.attention.head_count_kv": 2,
         "llama.attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip

WIDE = SIZES | {"llama.embedding_length": 256, "llama.feed_forward_length": 512}


def text(string):
    data = string.encode()
    return struct.pack("<Q", len(data)) + data


def value(x):
    """The code and the bytes of a value of the metadata."""
    if isinstance(x, bool):
        return 7, struct.pack("<B", x)
    if isinstance(x, int):
        return 4, struct.pack("<I", x)
    if isinstance(x, float):
        return 6, struct.pack("<f", x)
    if isinstance(x, str):
        return 8, text(x)
    codes = [value(item) if type(item) is not int else (5, struct.pack("<i", item)) for item in x]
    body = struct.pack("<IQ", codes[0][0], len(x)) + b"".join(data for _, data in codes)
    return 9, body


def gguf(metadata, tensors, version=3):
    """The bytes of a file; tensors are (kind, shape, bytes) by name."""
    data = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    for name, x in metadata.items():
        code, body = value(x)
        data += text(name) + struct.pack("<I", code) + body
    at = 0
    for name, (kind, shape, body) in tensors.items():
        data += text(name) + struct.pack("<I", len(shape))
        data += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        data += struct.pack("<IQ", KINDS[kind], at)
        at += -(-len(body) // 32) * 32
    data += bytes(-len(data) % 32)
    return data + b"".join(body + bytes(-len(body) % 32) for _, _, body in tensors.values())


def plain(array):
    return "F32", array.shape, np.asarray(array, "<f4").tobytes()


def renamed(names, state):
    """A model's tensors by a file's names; `names` are a model's parts by those of a file, in which
    N is a layer's number. Those that a file has not are left out."""
    parts, results = {new: old for old, new in names.items()}, {}
    for name, x in state.items():
        part, _, kind = name.rpartition(".")
        number = re.search(r"\.(\d+)\.", part)
        part = part if number is None else part.replace(number[0], ".N.", 1)
        if part in parts:
            old = parts[part] if number is None else parts[part].replace(".N.", number[0])
            results[f"{old}.{kind}"] = np.asarray(x)
    return results


def random_blocks(rng, kind, shape):
    """Random codes with scales of moderate size."""
    numbers, nbytes = BLOCKS[kind]
    size = 0.0004 if kind.endswith("K") else 0.004  # groups there scale it again
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // numbers, nbytes), np.uint8)
    for at in HALVES[kind]:
        scale = rng.normal(0, size, (*blocks.shape[:-1], 1)).astype("<f2")
        blocks[..., at : at + 2] = scale.view(np.uint8)
    return kind, shape, blocks.tobytes()


def llama_tensors(rng, matrix, size=64, inner=96):
    """A Llama's tensors of SIZES, with a vocabulary of 300; `matrix(shape)` makes matrices."""
    shared = size // 2
    tensors = {"token_embd.weight": matrix((300, size)), "output_norm.weight": plain(np.ones(size))}
    for i in range(2):
        shapes = {"attn_q": (size, size), "attn_k": (shared, size), "attn_v": (shared, size),
                  "attn_output": (size, size), "ffn_gate": (inner, size), "ffn_up": (inner, size),
                  "ffn_down": (size, inner)}  # fmt: skip
        tensors |= {f"blk.{i}.{n}.weight": matrix(shape) for n, shape in shapes.items()}
        norms = {n: plain(rng.uniform(0.5, 1, size)) for n in ("attn_norm", "ffn_norm")}
        tensors |= {f"blk.{i}.{n}.weight": x for n, x in norms.items()}
    return tensors


def vocabulary(tokenizer):
    """The metadata of a tokenizer of byte pairs; `tokenizer` is of the tokenizers package."""
    import json

    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    values = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": merges,
              "token_type": [3 if t.startswith("<") and len(t) > 2 else 1 for t in tokens],
              "bos_token_id": tokens.index("<s>"), "eos_token_id": tokens.index("</s>"),
              "padding_token_id": tokens.index("<pad>"), "add_bos_token": False}  # fmt: skip
    return {f"tokenizer.ggml.{n}": x for n, x in values.items()}
