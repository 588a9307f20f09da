"""Groups of parameters, each with its own rate."""

from typing import Any

from glasshouse.base.errors import OptionError
from glasshouse.nn.module import Module
from glasshouse.ops.checks import check_range, check_type


def layerwise_groups(
    model: Any, lr: float, decay: float, layer_of: Any = None, **options: Any
) -> list[dict[Any, Any]]:
    """Parameter groups of a model, whose rate falls from the last layer to the first: that of layer
    l of L is lr * decay^(L - 1 - l). A layer is a module with its own parameters, in the order of
    `model.named_parameters()`, or all parameters of one `layer_of(name)`, an integer from 0.

    Raises: OptionError for lr or decay out of range, or a layer that is not an integer from 0.
    Source: Howard & Ruder 2018, arXiv:1801.06146, sec. 3.2 (discriminative fine-tuning).
    Example:
        >>> model = gh.nn.Sequential(gh.nn.Linear(2, 3), gh.nn.ReLU(), gh.nn.Linear(3, 1))
        >>> groups = layerwise_groups(model, lr=1.0, decay=0.5, weight_decay=0.0)
        >>> [(group["lr"], [name for name, _ in group["params"]]) for group in groups]
        [(0.5, ['0.weight', '0.bias']), (1.0, ['2.weight', '2.bias'])]
    """
    where = "layerwise_groups"
    lr = check_range(where, "lr", lr, 0, float("inf"))
    decay = check_range(where, "decay", decay, 0, float("inf"))
    check_type(where, model, Module, "a Module as model", "Pass the model, not its parameters.")
    layers: dict[Any, Any] = {}
    for name, p in model.named_parameters():
        key = name.rpartition(".")[0] if layer_of is None else layer_of(name)
        if layer_of is not None and (not isinstance(key, int) or key < 0):
            fix = "Change it."
            raise OptionError(where, f"layer_of({name!r}) as an integer >= 0", repr(key), fix)
        layers.setdefault(key, []).append((name, p))
    numbered = dict(enumerate(layers.values())) if layer_of is None else layers
    count = max(numbered, default=0) + 1
    return [
        {"params": params, "lr": lr * decay ** (count - 1 - number), **options}
        for number, params in sorted(numbered.items())
    ]
