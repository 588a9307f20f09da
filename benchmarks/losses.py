"""CTC and the transducer's loss beside PyTorch's and torchaudio's (where it can be loaded): loss
and gradient, called as they are and captured, one thread, in turn.

The transducer's other side is torchaudio's loss, or where that is missing a dynamic program over
diagonals in PyTorch's operators."""

import numpy as np
import torch
from harness import measure, parse_arguments, save, show, summarize

import glasshouse as gh
from glasshouse.nn import functional as F

try:
    from torchaudio.functional import rnnt_loss as torchaudio_rnnt_loss
except (ImportError, OSError):
    torchaudio_rnnt_loss = None

CTC = {"ctc 100x16x32": (100, 16, 32, 20), "ctc 500x8x64": (500, 8, 64, 80)}  # T, N, C, S
RNNT = {"rnnt 8x100x20x32": (8, 100, 20, 32), "rnnt 4x250x50x128": (4, 250, 50, 128)}  # N, T, U, C
SMALL = {"ctc 12x2x5": (12, 2, 5, 3)}, {"rnnt 2x6x3x5": (2, 6, 3, 5)}


def ctc_sides(steps: int, batch: int, classes: int, size: int):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(steps, batch, classes)).astype(np.float32)
    inputs = rng.integers(1, classes, (batch, size)), np.full(batch, steps), np.full(batch, size)
    ours, theirs = [gh.asarray(a) for a in inputs], [torch.tensor(a) for a in inputs]
    return (
        logits,
        lambda x: F.ctc_loss(F.log_softmax(x, dim=2), *ours),
        lambda x: torch.nn.functional.ctc_loss(x.log_softmax(2), *theirs),
    )


def rnnt_sides(batch: int, steps: int, size: int, classes: int):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(batch, steps, size + 1, classes)).astype(np.float32)
    inputs = rng.integers(1, classes, (batch, size)), np.full(batch, steps), np.full(batch, size)
    ours, theirs = [gh.asarray(a) for a in inputs], [torch.tensor(a).int() for a in inputs]
    other = torchaudio_rnnt_loss or by_diagonals
    return (
        logits,
        lambda x: F.rnnt_loss(x, *ours, blank=0),
        lambda x: other(x, *theirs, blank=0),
    )


def by_diagonals(x, targets, frames, sizes, blank):
    """The mean loss of full lengths, each diagonal of the lattice at once."""
    n, t, places, _ = x.shape
    scores = x.log_softmax(3)
    silent = scores[..., blank]
    index = torch.nn.functional.pad(targets.long(), (0, 1))[:, None, :, None].expand(
        n, t, places, 1
    )
    spoken = scores.gather(3, index)[..., 0]

    def skewed(rows):
        rows = torch.nn.functional.pad(rows.transpose(1, 2), (0, places), value=-1e30)
        return rows.reshape(n, -1)[:, : places * (t + places - 1)].reshape(n, places, -1)

    silent, spoken = skewed(silent), skewed(spoken)
    state = torch.full((n, places), -1e30)
    state[:, 0] = 0
    for i in range(t + places - 2):
        moved = torch.nn.functional.pad((state + spoken[:, :, i])[:, :-1], (1, 0), value=-1e30)
        state = torch.logaddexp(state + silent[:, :, i], moved)
    return -(state + silent[:, :, -1])[:, -1].mean()


def cases_of(logits, ours, theirs) -> dict:
    """Functions that compute loss and gradient: ours as it is called, captured, PyTorch's."""
    x = gh.asarray(logits).requires_grad_()
    y = torch.tensor(logits, requires_grad=True)

    def step(x):
        x.grad = None
        loss = ours(x)
        loss.backward()
        return loss, x.grad

    captured = gh.optimize(step)

    def run(fn):
        loss, grad = fn(x)
        return loss.item(), grad.numpy()

    def other():
        y.grad = None
        loss = theirs(y)
        loss.backward()
        return loss.item(), y.grad.numpy()

    cases = {"ours": lambda: run(step), "captured": lambda: run(captured), "theirs": other}
    for _ in range(4):
        results = [case() for case in cases.values()]
    for loss, grad in results:
        np.testing.assert_allclose(loss, results[-1][0], rtol=1e-4)
        np.testing.assert_allclose(grad, results[-1][1], atol=1e-3)
    return cases


def main() -> None:
    options = parse_arguments(__doc__)
    torch.set_num_threads(1)
    ctc, rnnt = SMALL if options.smoke else (CTC, RNNT)
    results, rows = {}, []
    sides = {name: ctc_sides(*sizes) for name, sizes in ctc.items()}
    sides |= {name: rnnt_sides(*sizes) for name, sizes in rnnt.items()}
    for name, side in sides.items():
        result = summarize(measure(cases_of(*side), 1 if options.smoke else 15))
        median = {case: value["median_s"] for case, value in result.items()}
        results[name] = result | {
            "other": "torch"
            if name in ctc
            else "torchaudio"
            if torchaudio_rnnt_loss
            else "diagonals",
            "ratio": median["theirs"] / median["ours"],
            "ratio_captured": median["theirs"] / median["captured"],
        }
        rows.append(
            [
                name,
                results[name]["other"],
                *(f"{median[case] * 1e3:.2f} ms" for case in ("theirs", "ours", "captured")),
                f"{results[name]['ratio']:.2f}",
                f"{results[name]['ratio_captured']:.2f}",
            ]
        )
    columns = ["loss", "other", "theirs", "ours", "captured", "ratio", "captured"]
    show("Losses of sequences", columns, rows, "loss and gradient; a ratio above 1: ours is faster")
    print(save("losses", results, options))


if __name__ == "__main__":
    main()
