"""Whether greedy text of a GGUF model is llama.cpp's: 20 prompts, 256 tokens each.

    python tools/judges/greedy_text.py MODEL.gguf --llama PYTHON [--tokens 256] [--prompts 20]
        [--float] [--blocks Q4_K]

PYTHON is an interpreter with the package xllamacpp (it may be this one). For each prompt: how many
tokens are equal, and at the first that differs both tokens with both sides' log-probabilities; of
the first token also how far the log-probabilities of their ten likeliest differ. llama.cpp rounds
the inputs of products to 8 bits, so that near ties may fall the other way: a difference in scores
above `TIE` is an error, and ends with 1.

`--float` shows that this rounding is the cause: llama.cpp gets a copy of the file whose weights are
the same numbers in float32, and keeps keys and values in float32, without its fused attention. Then
it rounds no inputs, and a difference above `FLOAT_TIE` is an error.

`--blocks` compares with a file of Q4_K or Q6_K that is made of the Llama's (gguf_blocks.py)."""

import argparse
import json
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


def theirs(path: str, prompts: list[list[int]], count: int, is_float: bool) -> list[Any]:
    """llama.cpp's tokens of each text, and at each the log-probabilities of the likeliest; runs in
    its interpreter."""
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
                   "max_tokens": count, "logprobs": 10, "cache_prompt": False}  # fmt: skip
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        tokens = answer["choices"][0]["logprobs"]["content"]
        likeliest = [[(x["id"], x["logprob"]) for x in token["top_logprobs"]] for token in tokens]
        texts.append([[token["id"] for token in tokens], likeliest])
    return texts


def scores_after(model: Any, tokens: list[int]) -> Any:
    """Our log-probabilities of the token that follows."""
    import glasshouse as gh

    with gh.no_grad():
        return gh.nn.functional.log_softmax(model(gh.asarray([tokens]))[0, -1], 0).numpy()


def described(model: Any, scores: Any, others: dict[int, float], pair: tuple[int, int]) -> str:
    """Our token and theirs, each with our log-probability and theirs, if they told it."""
    texts = model.tokenizer.decode([[token] for token in pair])
    ours, them = ((float(scores[token]), others.get(token, float("nan"))) for token in pair)
    numbers = (f"{ours[0]:.3f}, {ours[1]:.3f}", f"{them[0]:.3f}, {them[1]:.3f}")
    return " and ".join(f"{text!r} ({x})" for text, x in zip(texts, numbers, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--llama", default=sys.executable)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--float", action="store_true")
    parser.add_argument("--blocks", choices=("Q4_K", "Q6_K"))
    parser.add_argument("--asked", help=argparse.SUPPRESS)  # the part for the other interpreter
    options = parser.parse_args()
    if options.asked:
        asked = json.loads(Path(options.asked).read_text())
        texts = theirs(str(options.model), asked, options.tokens, options.float)
        Path(options.asked).write_text(json.dumps(texts))
        return 0
    import tempfile

    from gguf_blocks import rewrite

    import glasshouse as gh

    with tempfile.TemporaryDirectory() as folder:
        asked, path = Path(folder) / "asked.json", options.model
        if options.blocks:
            path = Path(folder) / "blocks.gguf"
            rewrite(options.model, path, options.blocks)
        model = gh.load(path)
        encode = model.tokenizer.encode
        prompts = [encode(text).tokens[0].tolist() for text in PROMPTS[: options.prompts]]
        asked.write_text(json.dumps(prompts))
        if options.float:
            rewrite(path, Path(folder) / "float.gguf", "F32")
            path = Path(folder) / "float.gguf"
        command = [options.llama, __file__, str(path), "--tokens", str(options.tokens)]
        command += ["--float"] * options.float
        subprocess.run([*command, "--asked", str(asked)], check=True, stdout=subprocess.DEVNULL)
        texts = json.loads(asked.read_text())
    equal, worst, far = 0, 0.0, 0.0
    for prompt, (text, likeliest) in zip(prompts, texts, strict=True):
        scores = scores_after(model, prompt)
        far = max(far, *(abs(scores[token] - score) for token, score in likeliest[0]))
        end = model.tokenizer.eos_id
        ours = model.generate(prompt, options.tokens, stop=[] if end is None else [end])
        pairs = list(zip(ours, text, strict=False))
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        equal += ours == text  # also in length: both end with the mark of the end
        line = f"{len(pairs)} tokens are equal"
        if at is not None:
            scores = scores_after(model, prompt + ours[:at])
            worst = max(worst, float(scores.max() - scores[text[at]]))
            tokens = described(model, scores, dict(likeliest[at]), pairs[at])
            line = f"{at} of {len(pairs)} tokens are equal; then {tokens}"
        print(f"{model.tokenizer.decode([prompt])[0]!r:.50}: {line}", flush=True)
    print(f"{equal} of {len(prompts)} texts are equal; at most {worst:.3f} below our best")
    print(f"log-probabilities of the first token differ by at most {far:.2g}")
    return int(worst > (FLOAT_TIE if options.float else TIE))


if __name__ == "__main__":
    sys.exit(main())
