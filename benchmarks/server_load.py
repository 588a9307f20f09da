"""A server's answers under load: 50 clients of the package `openai` on the loopback, for a minute.

Each client asks again as soon as it has its answer, half of them streamed; one request in ten is
left after two parts. Texts are greedy under `gh.deterministic("batch")`, so each answer has to be
the text that `generate` writes alone: what is lost (an error, or none) and what differs is counted.
Memory is what the process has resident after a quarter of the time, and at the end.
"""

import asyncio
import socket
import threading
import time
from collections import Counter

import numpy as np
import openai
import uvicorn
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse.text import Engine, Tokenizer, make_server, models

SIZES = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 8,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 512,
}  # fmt: skip
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 96,
}  # fmt: skip
WORDS = "the cat sat on a mat and the dog ran to the sea while it was warm in the sun".split()
PROMPTS, TOKENS, LEFT = 40, 24, 10  # prompts, tokens of an answer; one request in so many is left
TIMEOUT_S = 60


def make_engine(is_small: bool, clients: int) -> Engine:
    gh.random.seed(0)
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, vocab_size=300)
    sizes = SMALL if is_small else SIZES
    config = models.LlamaConfig(vocab_size=len(tokenizer), **sizes)
    model = models.LlamaForCausalLM(config)
    with gh.no_grad():
        for p in model.parameters():  # so that texts differ
            p.copy_(p * 3.0 if p.ndim > 1 else p)
    capacity = sizes["max_position_embeddings"]
    return Engine(model, tokenizer, slots=8, capacity=capacity, queue_size=2 * clients)


def prompts_of(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 25))) for _ in range(count)]


def alone(engine: Engine, prompt: str) -> str:
    """The text that `generate` writes."""
    tokens = engine.tokenizer.encode(prompt).tokens[0].tolist()
    row = engine.model.generate(tokens, TOKENS, stop=[])
    return engine.tokenizer.decode([row])[0].rstrip("\ufffd")


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Load:
    """Clients that ask until `end`, and what came of it."""

    def __init__(self, url: str, texts: dict[str, str], end: float) -> None:
        self.texts, self.end, self.counts = texts, end, Counter()
        self.firsts: list[float] = []
        self.api = openai.AsyncOpenAI(
            api_key="none", base_url=url, timeout=TIMEOUT_S, max_retries=0
        )

    async def client(self, number: int) -> None:
        rng = np.random.default_rng(number)
        count = 0
        while not count or time.perf_counter() < self.end:  # each asks at least once
            count += 1
            prompt = list(self.texts)[rng.integers(len(self.texts))]
            is_left, is_streamed = rng.integers(LEFT) == 0, rng.integers(2) == 0
            try:
                text = await self.answer(prompt, is_streamed or is_left, is_left)
            except Exception as error:
                self.counts["lost"] += 1
                print(f"client {number}: {error!r}")
                continue
            if is_left:
                self.counts["left"] += 1
            else:
                self.counts["answers" if text == self.texts[prompt] else "wrong"] += 1

    async def answer(self, prompt: str, is_streamed: bool, is_left: bool) -> str:
        request = {"model": "load", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        if not is_streamed:
            return (await self.api.completions.create(**request)).choices[0].text
        begin, parts = time.perf_counter(), []
        stream = await self.api.completions.create(**request, stream=True)
        async for chunk in stream:
            if not parts:
                self.firsts.append(time.perf_counter() - begin)
            parts.append(chunk.choices[0].text if chunk.choices else "")
            if is_left and len(parts) == 2:
                await stream.close()
                break
        return "".join(parts)

    async def run(self, clients: int, seconds: float) -> list[int]:
        """The resident bytes after a quarter of the time, and at the end."""

        async def quarter() -> int:
            await asyncio.sleep(seconds / 4)
            return resident_bytes()

        first, *_ = await asyncio.gather(quarter(), *map(self.client, range(clients)))
        await self.api.close()
        return [first, resident_bytes()]


def main() -> None:
    options = parse_arguments(__doc__)
    clients, seconds = (6, 2.0) if options.smoke else (50, 60.0)
    gh.deterministic("batch")
    engine = make_engine(options.smoke, clients)
    texts = {prompt: alone(engine, prompt) for prompt in prompts_of(PROMPTS)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(make_server(engine), "127.0.0.1", port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    url = f"http://127.0.0.1:{port}/v1"
    asyncio.run(Load(url, texts, 0.0).run(clients, 0.0))  # what is compiled first is not counted
    engine.counts.clear()
    load = Load(url, texts, time.perf_counter() + seconds)
    begin = time.perf_counter()
    first_bytes, last_bytes = asyncio.run(load.run(clients, seconds))
    wall_s = time.perf_counter() - begin
    server.should_exit = True
    thread.join()
    counts = dict(engine.counts)
    engine.close()
    results = {
        "clients": clients, "seconds": wall_s, "texts": len(set(texts.values())),
        **{name: load.counts[name] for name in ("answers", "left", "wrong", "lost")},
        "tokens_per_second": counts["written_tokens"] / wall_s,
        "first_part_s": float(np.median(load.firsts)) if load.firsts else None,
        "resident_bytes": [first_bytes, last_bytes],
    }  # fmt: skip
    show("answers under load", ["", ""], [[name, f"{x}"] for name, x in results.items()])
    print(save("server_load", results, options))
    if load.counts["wrong"] or load.counts["lost"]:
        raise SystemExit("Answers were lost or wrong.")


if __name__ == "__main__":
    main()
