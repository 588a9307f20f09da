"""llama.cpp's part of generation.py, in an interpreter that has xllamacpp: for each line (length of
a prompt, tokens to write) a line with its seconds of the prompt and of a token.

    python benchmarks/twins/llama_server.py MODEL.gguf THREADS
"""

import json
import sys

import xllamacpp


def main(path: str, threads: int) -> None:
    options = xllamacpp.CommonParams()
    options.model.path = path
    options.n_ctx, options.n_parallel, options.warmup = 2048, 1, False
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(options)
    for line in sys.stdin:
        length, count = json.loads(line)
        request = {"prompt": [7] * length, "n_predict": count, "max_tokens": count,
                   "temperature": 0.0, "cache_prompt": False, "ignore_eos": True}  # fmt: skip
        answer = server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        times = answer["timings"]
        seconds = [times["prompt_ms"] / 1e3, times["predicted_per_token_ms"] / 1e3]
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
