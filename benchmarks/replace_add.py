"""Seconds from starting Python until a ResNet-50 trains with an addition of the user's own.

Every addition of the model, its gradients and its updates is then a call of the user's function.
Aim: under 15 s.
"""

import subprocess
import sys
import time

from harness import parse_arguments, save, show, summarize

CODE = """
import sys
import numpy as np
import glasshouse as gh
from glasshouse.bench.worker import Ours
gh.backends.use("lazy").backend.replace("add", lambda x, y: np.add(x, y))
run = Ours("resnet50", None, "float32", smoke=sys.argv[1] == "smoke")
print(run.train().item())
"""


def main() -> None:
    options = parse_arguments(__doc__)
    seconds = []
    for _ in range(1 if options.smoke else 3):
        start = time.perf_counter()
        size = "smoke" if options.smoke else "full"
        subprocess.run([sys.executable, "-c", CODE, size], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    results = summarize({"ResNet-50, first step with a replaced add": seconds})
    rows = [[name, f"{entry['median_s']:.1f}"] for name, entry in results.items()]
    show("replacing a primitive", ["", "seconds"], rows, "from the start of Python; aim: 15")
    print(save("replace_add", results, options))


if __name__ == "__main__":
    main()
