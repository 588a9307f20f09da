"""Perplexity of a pretrained model on a novel, with its weights in float32 and quantised: what a
token's probability loses.

    python benchmarks/packed_accuracy.py --model MODEL.gguf --text persuasion.txt

The text is read in windows of 512 tokens, of which the last half counts; `glasshouse data lm`
fetches the novel. With --smoke, a small random model and a text of its own. A file whose weights
have 4 bits already lies on int4's own steps: what is added there is int8's loss alone."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, save, show

import glasshouse as gh
from glasshouse import nn
from glasshouse.text.models import LlamaConfig, LlamaForCausalLM

LENGTH = 512
CASES = {"float32": {}, "int8": {"scheme": "int8"}, "int8 dynamic": {"scheme": "int8_dynamic"},
         "int4 of 32": {"scheme": "int4", "group": 32},
         "int4 of 64": {"scheme": "int4", "group": 64}}  # fmt: skip


def small_model() -> Any:
    gh.random.seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, num_hidden_layers=2, **sizes)).eval()


def perplexity(model: Any, tokens: np.ndarray, windows: int) -> float:
    """exp of the mean loss of a token, over so many windows."""

    @gh.optimize
    def loss_of(ids):
        scores = model(ids)[:, LENGTH // 2 - 1 : -1]
        targets = ids[:, LENGTH // 2 :]
        return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.flatten())

    step, losses = LENGTH // 2, []
    for i in range(windows):
        ids = gh.asarray(tokens[None, i * step : i * step + LENGTH])
        with gh.no_grad():
            losses.append(loss_of(ids).item())
    return float(np.exp(np.mean(losses)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF file or a folder")
    parser.add_argument("--text", type=Path, help="a text file")
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--smoke", action="store_true", help="a short run that only shows it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON record")
    options = parser.parse_args()
    results, rows = {}, []
    for name, how in CASES.items():
        if options.smoke:
            model, tokens = small_model(), np.random.default_rng(0).integers(0, 256, 1200)
        else:
            model = gh.load(options.model, packed=False)
            text = options.text.read_text(encoding="utf-8", errors="replace")
            tokens = model.tokenizer.encode([text]).tokens[0]
        if how:
            gh.quantize(model, **how)
        nbytes = sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
        result = perplexity(model, tokens, 2 if options.smoke else options.windows)
        results[name] = {"perplexity": result, "bytes": nbytes}
        loss = np.log(result / results["float32"]["perplexity"])
        rows.append([name, f"{nbytes / 1e6:.0f}", f"{result:.3f}", f"{loss:+.4f}"])
    columns = ["weights", "MB", "perplexity", "nats more"]
    show("A novel by a model of few bits", columns, rows)
    print(save("packed_accuracy", results, options))


if __name__ == "__main__":
    main()
