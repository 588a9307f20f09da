"""The differentiable beam-search decoder: nodes and edges of its lattice, with and without pruning
and by the size of the beam; time of the search, of the scores and of their gradients; memory.

An edge is an add, a node a log-add. Each row is measured in a process of its own. Memory is counted
in a second pass, by tracemalloc: held between scores and gradients, and at most."""

import itertools
import json
import subprocess
import sys
import time
import tracemalloc

import numpy as np
from harness import parse_arguments, save, show

import glasshouse as gh
from glasshouse import speech

LETTERS = ["", " ", *"abcdefghijklmnopqrstuvwxyz"]
# frames, nodes of a beam, tokens of a frame
SIZES = [(200, 100, 10), (200, 500, 10), (200, 1000, 28), (1000, 500, 28)]
SMALL = [(20, 20, 5)]


def measure_row(frames: int, beam: int, tokens: int, prune: bool) -> dict:
    rng = np.random.default_rng(0)
    texts = ["the cat sat on the mat", "a dog ran to the tree", "the tree is on a hill"]
    model = speech.train_ngrams([list(text) for text in texts], order=3)
    options = {"beam_size": beam, "token_limit": tokens, "prune": prune}
    criterion = speech.BeamCriterion(LETTERS, model, **options)
    x = gh.asarray(rng.normal(size=(frames, len(LETTERS))).astype("f4") * 2).requires_grad_()
    weights = criterion.lm_weight, criterion.word_score
    start = time.perf_counter()
    lattice = criterion.search(x)
    searched = time.perf_counter()
    loss = gh.logsumexp(lattice.scores(x, criterion.transitions, *weights), 0)
    scored = time.perf_counter()
    loss.backward()
    done = time.perf_counter()
    x.grad = None
    tracemalloc.start()
    loss = gh.logsumexp(lattice.scores(x, criterion.transitions, *weights), 0)
    held, _ = tracemalloc.get_traced_memory()
    loss.backward()
    _, peak = tracemalloc.get_traced_memory()
    nodes, edges = lattice.counts()
    return {
        "nodes": nodes,
        "edges": edges,
        "search_s": searched - start,
        "scores_s": scored - searched,
        "gradients_s": done - scored,
        "held_bytes": held,
        "peak_bytes": peak,
    }


def main() -> None:
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(measure_row(*json.loads(sys.argv[2]))))
        return
    options = parse_arguments(__doc__)
    rows = {}
    for sizes, prune in itertools.product(SMALL if options.smoke else SIZES, (False, True)):
        command = [sys.executable, __file__, "--row", json.dumps([*sizes, prune])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        name = "{} frames, beam {}, {} tokens".format(*sizes) + (", pruned" if prune else "")
        rows[name] = json.loads(done.stdout)
    columns = ["search", "nodes", "edges", "search", "scores", "gradients", "held", "peak"]
    table = [
        [name, f"{row['nodes']:,}", f"{row['edges']:,}"]
        + [f"{row[key] * 1e3:.0f} ms" for key in ("search_s", "scores_s", "gradients_s")]
        + [f"{row[key] / 2**20:.1f} MiB" for key in ("held_bytes", "peak_bytes")]
        for name, row in rows.items()
    ]
    show("Differentiable beam search", columns, table, "one recording")
    print(save("beam_criterion", rows, options))


if __name__ == "__main__":
    main()
