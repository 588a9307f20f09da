"""Whether greedy text of a GGUF model is llama.cpp's: 20 prompts, 256 tokens each.

    python tools/judges/greedy_text.py MODEL.gguf --llama PYTHON [--tokens 256] [--prompts 20]
        [--float]

PYTHON is an interpreter with the package xllamacpp (it may be this one). For each prompt: how many
tokens are equal, and at the first that differs how far our score of their token lies below our
best. llama.cpp rounds the inputs of products to 8 bits, so that near ties may fall the other way:
a difference in scores above `TIE` is an error, and ends with 1.

`--float` shows that this rounding is the cause: llama.cpp gets a copy of the file whose weights are
the same numbers in float32, and keeps keys and values in float32, without its fused attention. Then
it rounds no inputs, and a difference above `FLOAT_TIE` is an error."""

import argparse
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

PROMPTS = [
    "The capital of France is", "Once upon a time, in a small village by the sea,",
    "To make a good cup of tea, you", "Water boils at", "The three primary colours are",
    "In 1969, two astronauts", "A recipe for pancakes:\n1.", "def fibonacci(n):\n",
    "The difference between a frog and a toad is", "My favourite book is",
    "Dear Sir or Madam,\n\nI am writing to", "Question: What is 12 plus 30?\nAnswer:",
    "The human heart", "She opened the door and saw", "List of planets in the solar system:\n-",
    "Photosynthesis is the process by which", "The stock market", "How do I learn to swim?",
    "import numpy as np\n\n# A matrix of ones\n", "Long ago, before the mountains rose,",
]  # fmt: skip
TIE = 1.0  # of scores, which reach 30 or so
FLOAT_TIE = 1e-3  # where only the order of sums differs
ALIGNMENT = 32  # of tensors in a GGUF file


def widen(path: Path, target: Path) -> None:
    """Write a GGUF file with the same metadata, and the same weights in float32."""
    import glasshouse as gh

    file, data = gh.interop.open_gguf(path), path.read_bytes()
    names = [name.encode() for name in file]
    begin = data.index(struct.pack("<Q", len(names[0])) + names[0])  # of the places
    places, at = b"", 0
    for name, x in zip(names, file.values(), strict=True):
        sizes = struct.pack(f"<I{x.ndim}Q", x.ndim, *reversed(x.shape))
        places += struct.pack("<Q", len(name)) + name + sizes + struct.pack("<IQ", 0, at)
        at += -(-4 * x.size // ALIGNMENT) * ALIGNMENT
    head = data[:begin] + places
    with target.open("wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for x in file.values():
            numbers = x.astype("float32").numpy().tobytes()
            out.write(numbers + bytes(-len(numbers) % ALIGNMENT))


def theirs(path: str, prompts: list[list[int]], count: int, is_float: bool) -> list[list[int]]:
    """llama.cpp's tokens; runs in its interpreter."""
    import xllamacpp

    options = xllamacpp.CommonParams()
    options.model.path = path
    options.n_ctx, options.n_parallel, options.warmup = 2048, 1, False
    options.cpuparams.n_threads = 1
    if is_float:
        options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        kinds = xllamacpp.llama_flash_attn_type
        options.flash_attn_type = kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(options)
    texts = []
    for tokens in prompts:
        request = {"prompt": tokens, "n_predict": count, "temperature": 0.0, "top_k": 1,
                   "max_tokens": count, "logprobs": 1, "cache_prompt": False}  # fmt: skip
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        texts.append([token["id"] for token in answer["choices"][0]["logprobs"]["content"]])
    return texts


def gap(model: Any, tokens: list[int], other: int) -> float:
    """How far the score of another token lies below the best after these tokens."""
    import glasshouse as gh

    with gh.no_grad():
        scores = model(gh.asarray([tokens])).numpy()[0, -1]
    return float(scores.max() - scores[other])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama", default=sys.executable)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--float", action="store_true")
    parser.add_argument("--asked", help=argparse.SUPPRESS)  # the part for the other interpreter
    options = parser.parse_args()
    if options.asked:
        asked = json.loads(Path(options.asked).read_text())
        texts = theirs(str(options.model), asked, options.tokens, options.float)
        Path(options.asked).write_text(json.dumps(texts))
        return 0
    import tempfile

    import glasshouse as gh

    model = gh.load(options.model)
    encode = model.tokenizer.encode
    prompts = [encode(text).tokens[0].tolist() for text in PROMPTS[: options.prompts]]
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.json"
        asked.write_text(json.dumps(prompts))
        path = options.model
        if options.float:
            path = Path(folder) / "float.gguf"
            widen(options.model, path)
        command = [options.llama, __file__, str(path), "--tokens", str(options.tokens)]
        command += ["--float"] * options.float
        subprocess.run([*command, "--asked", str(asked)], check=True, stdout=subprocess.DEVNULL)
        texts = json.loads(asked.read_text())
    equal, worst = 0, 0.0
    for prompt, text in zip(prompts, texts, strict=True):
        ours = model.generate(prompt, options.tokens)
        pairs = list(zip(ours, text, strict=False))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        equal += at is None
        line = f"{len(pairs)} tokens are equal"
        if at is not None:
            below = gap(model, prompt + ours[:at], text[at])
            worst = max(worst, below)
            line = f"{at} of {len(pairs)} tokens are equal; then {below:.3f} below our best"
        print(f"{model.tokenizer.decode([prompt])[0]!r:.50}: {line}", flush=True)
    print(f"{equal} of {len(prompts)} texts are equal; at most {worst:.3f} below our best")
    return int(worst > (FLOAT_TIE if options.float else TIE))


if __name__ == "__main__":
    sys.exit(main())
