"""State of a model and its optimizer by names that do not depend on ranks: the contents of
checkpoints of several ranks, and the way back."""

from typing import Any, NamedTuple

import numpy as np

from glasshouse.base import CheckpointError, from_numpy_dtype
from glasshouse.dispatch.value import Value
from glasshouse.distributed.checkpoints.boxes import Box, Slices, boxes_of
from glasshouse.distributed.groups.placement import Sharding, sharding_of
from glasshouse.interop.checkpoint import decode, encode
from glasshouse.nn import Module
from glasshouse.optim import SGD


class Tensors(NamedTuple):
    """Tensors by name, with how ranks share each out, and all else as JSON data by name."""

    values: dict[str, Any]
    shardings: dict[str, Sharding]
    rest: dict[str, Any]

    def boxes(self) -> dict[Box, tuple[str, Slices]]:
        """Boxes of this rank's parts: the tensor of each, and its place in the tensor."""
        boxes = {}
        for key, x in self.values.items():
            dtype = from_numpy_dtype(x.dtype).name if isinstance(x, np.ndarray) else x.dtype.name
            for box, local in boxes_of(key, dtype, self.shardings[key]):
                boxes[box] = key, local
        return boxes


def names_of(model: Module) -> dict[int, str]:
    """The name of each parameter, by its id: of a pipeline, the one in the undivided model."""
    undivided = vars(model).get("undivided", model)
    return {id(p): name for name, p in undivided.named_parameters()}


def model_state(model: Module) -> Tensors:
    """The state of a model."""
    members = dict(model.named_parameters(remove_duplicate=False))
    members |= dict(model.named_buffers(remove_duplicate=False))
    state = Tensors({}, {}, {})
    for name, x in model.state_dict().items():
        key = f"model.{name}"
        if isinstance(x, Value):
            state.values[key] = x
            state.shardings[key] = sharding_of(members[name]) if name in members else whole(x)
        else:
            state.rest[key] = plain(x, key)
    return state


def plain(x: Any, key: str) -> Any:
    """x as JSON data.

    Raises: CheckpointError where there are tensors in it
    """
    tensors: dict[Any, Any] = {}
    data = encode(x, key, tensors)
    if tensors:
        fix = "Make numbers of them."
        raise CheckpointError("save_checkpoint", f"{key} without tensors", list(tensors), fix)
    return data


def whole(x: Any) -> Sharding:
    return Sharding(tuple(x.shape), {})


def optimizer_state(optimizer: SGD, model: Any) -> Tensors:
    """State of an optimizer, by the names of its parameters.

    Raises: CheckpointError for a parameter that is not the model's, or a state that is of another
        shape than its parameter, which ranks share out
    """
    names, parameters = parameter_names(optimizer, model), optimizer.parameters()
    saved, state = optimizer.state_dict(), Tensors({}, {}, {})
    placed = getattr(optimizer, "state_sharding", sharding_of)
    for number, entry in saved["state"].items():
        for part, x in entry.items():
            key = f"optimizer.{names[number]}.{part}"
            if isinstance(x, Value) and x.ndim:
                sharding = placed(parameters[number])
                if tuple(x.shape) != sharding.local_shape():
                    check_whole(key, sharding)
                    sharding = whole(x)
                state.values[key], state.shardings[key] = x, sharding
            else:
                state.rest[key] = plain(x.item() if isinstance(x, Value) else x, key)
    for i, group in enumerate(saved["param_groups"]):
        options = {k: x for k, x in group.items() if k not in ("params", "param_names")}
        state.rest[f"group.{i}"] = plain(options, f"group.{i}")
    wrapper = {k: x for k, x in saved.items() if k not in ("state", "param_groups")}
    state.rest["wrapper"] = plain(wrapper, "wrapper")
    return state


def check_whole(key: str, sharding: Sharding) -> None:
    if not sharding.is_whole:
        expected = f"{key} to have the shape of its parameter, which ranks share out"
        fix = "Use an optimizer whose state has it."
        raise CheckpointError("save_checkpoint", expected, "another", fix)


def parameter_names(optimizer: SGD, model: Module) -> list[str]:
    """The name of each of an optimizer's parameters."""
    names = {} if model is None else names_of(model)
    strangers = [p.spec for p in optimizer.parameters() if id(p) not in names]
    if strangers:
        expected = "an optimizer of the model's parameters, with the model"
        raise CheckpointError("checkpoint", expected, strangers[0], "Pass both.")
    return [names[id(p)] for p in optimizer.parameters()]


def state_dict_of(
    optimizer: Any, model: Any, values: dict[Any, Any], rest: dict[Any, Any]
) -> dict[Any, Any]:
    """Return the argument of `optimizer.load_state_dict`, from the state by names."""
    names, current = parameter_names(optimizer, model), optimizer.state_dict()
    number = {name: i for i, name in enumerate(names)}
    state: dict[int, dict[Any, Any]] = {}
    saved = {**values, **{k: decode(x, {}) for k, x in rest.items()}}
    for key, x in saved.items():
        kind, _, path = key.partition(".")
        name, _, part = path.rpartition(".")
        if kind == "optimizer" and name in number:
            state.setdefault(number[name], {})[part] = x
    groups = []
    for i, group in enumerate(current["param_groups"]):
        if f"group.{i}" not in saved:
            got = f"none for group {i}"
            fix = "Build the optimizer with the groups it was saved with."
            raise CheckpointError("load_checkpoint", "options of each group", got, fix)
        groups.append({**saved[f"group.{i}"], "params": group["params"]})
    return {**saved.get("wrapper", {}), "state": state, "param_groups": groups}
