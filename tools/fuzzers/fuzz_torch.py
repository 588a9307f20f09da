"""Random programs of PyTorch through torch.compile with our backend, beside eager:
`--programs 1000 --seed 0`.

Half of the programs are chains of statements, with writes, views, modes and gradients; the others
are sixty statements that read nothing but arguments, which cost one graph together. What differs
under PyTorch's own machinery too is left out. Programs run in processes of their own, so that a
crash or a hang costs what ran there; what differs is made small and printed with its seed."""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "judges"))
import apart

PROPERTY = str(Path(__file__).parents[2] / "tests" / "property")
folders = [PROPERTY, *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(folders)
apart.begin_with("torch._dynamo", "torch_differential")
SECONDS = 300  # for one program, made small


def run_seeds(send, seeds: range, compiled: float) -> None:
    """In a process of its own: (seed, None) as each program begins, and (seed, what differs)."""
    import torch
    from torch_differential import check_seed

    from glasshouse.base.flags import flags

    torch.set_num_threads(1)
    logging.disable(logging.ERROR)
    for seed in seeds:
        send((seed, None))
        with flags.override(compile="always" if seed % 100 < 100 * compiled else "never"):
            for what in check_seed(seed, small=True):
                send((seed, what))


def differences(seeds: range, compiled: float):
    """(seed, what differs) of each difference; goes on after crashes."""
    while seeds:
        seed = seeds[0]
        for message in apart.messages(run_seeds, (seeds, compiled), SECONDS):
            if isinstance(message, apart.Ended):
                yield seed, str(message)
                break
            seed, what = message
            if what is not None:
                yield seed, what
        else:
            return
        seeds = range(seed + 1, seeds.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--compiled", type=float, default=0.3, help="part that kernels compute")
    args = parser.parse_args()
    began, count = time.perf_counter(), 0
    for seed, what in differences(range(args.seed, args.seed + args.programs), args.compiled):
        count += 1
        print(f"\n== seed {seed}: {what}", flush=True)
    seconds = time.perf_counter() - began
    print(f"\n{args.programs} programs from seed {args.seed}: {count} differences, {seconds:.0f} s")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
