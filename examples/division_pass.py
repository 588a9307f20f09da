"""A pass over the graph of one's own: one division for each row instead of one for each element.

What is divided by a value that is repeated along an axis, as a softmax by its sum, is multiplied by
the reciprocal instead, which is computed before it is repeated.

    python examples/division_pass.py
    glasshouse show --program 1 --stage reciprocals_first examples/division_pass.py
"""

import numpy as np

import glasshouse as gh
from glasshouse.graph.graph import Graph, transform


def reciprocals_first(graph: Graph) -> Graph:
    """x / expand(v) becomes x * expand(1 / v)."""

    def rule(new, node, inputs):
        if node.op == "div" and node.dtype.is_floating and inputs[1].op == "expand":
            (v,) = inputs[1].inputs
            one = new.emit("full", (), {"shape": v.shape, "value": 1, "dtype": v.dtype})
            spread = new.emit("expand", (new.emit("div", (one, v)),), {"shape": node.shape})
            return new.emit("mul", (inputs[0], spread))
        return new.emit(node.op, inputs, node.attrs, node.spec, node.host)

    return transform(graph, rule)


def standardised(x):
    """x without its mean, by its largest deviation, of each row."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / gh.max(gh.abs(centred), axis=1, keepdims=True)


def main() -> None:
    x = gh.asarray(np.random.default_rng(0).standard_normal((1000, 300), np.float32))
    plain = standardised(x).numpy()
    with gh.targets.use_pass(reciprocals_first):
        own = standardised(x).numpy()
    print(f"largest difference: {np.abs(own - plain).max():.1e}")


if __name__ == "__main__":
    main()
