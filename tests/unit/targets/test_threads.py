"""Effects of the number of threads on convolutions, as docs/inside/numerics.md says: last bits of
oneDNN's gradients of weights, and without AVX-512 those of the data of 1 x 1 kernels. Each number
of threads has a process of its own."""

import os
import subprocess
import sys

import numpy as np
import pytest

from glasshouse.targets.cpu.onednn import library as onednn

CODE = """
import sys
import numpy as np
import glasshouse as gh
from glasshouse.nn import functional

rng = np.random.default_rng(0)
kept = {}
for images, weights, stride, groups in (
    ((8, 16, 28, 28), (32, 16, 3, 3), 1, 1),
    ((8, 32, 28, 28), (64, 32, 1, 1), 1, 1),
    ((4, 16, 33, 33), (24, 16, 5, 5), 2, 1),
    ((4, 32, 20, 20), (32, 1, 3, 3), 1, 32),
):
    arrays = [rng.normal(size=s).astype("f") for s in (images, weights, weights[:1])]
    x, w, b = (gh.tensor(a, requires_grad=True) for a in arrays)
    y = functional.conv2d(x, w, b, stride, 1, 1, groups)
    (y * rng.normal(size=y.shape).astype("f")).sum().backward()
    for part, value in (("y", y), ("x", x.grad), ("b", b.grad), ("w", w.grad)):
        kept[f"{part} {weights}"] = value.numpy()
np.savez(sys.argv[1], **kept)
"""


def computed(folder, threads: int) -> dict:
    path = folder / f"{threads}.npz"
    own = {"OMP_NUM_THREADS": str(threads), "GH_COMPILE": "always"}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", CODE, str(path)]
    subprocess.run(command, env={**os.environ, **own}, check=True)
    return dict(np.load(path))


def depends_on_threads(name: str) -> bool:
    """Whether oneDNN shares out the sums of a result."""
    part, weights = name.split(" ", 1)
    wide = onednn.library() is not None and onednn.library().chooses_panels
    return part == "w" or (part == "x" and weights.endswith(" 1, 1)") and not wide)


@pytest.mark.slow
def test_only_sums_that_onednn_shares_out_depend_on_the_number_of_threads(tmp_path):
    one, two = computed(tmp_path, 1), computed(tmp_path, 2)
    for name, array in one.items():
        if depends_on_threads(name):
            error = np.abs(two[name] - array).max() / np.abs(array).max()
            assert error < 1e-5, (name, error)
        else:
            np.testing.assert_array_equal(two[name], array, err_msg=name)
