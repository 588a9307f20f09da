"""Modules and functions as ONNX files: `gh.onnx.export(model, inputs, path)`."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glasshouse.base import Spec
from glasshouse.base.errors import DTypeError, OptionError, optional, suggest, type_name
from glasshouse.base.tree import TreeDef, flatten, unflatten
from glasshouse.dispatch.value import Value, as_value
from glasshouse.nn.module import Module
from glasshouse.onnx.writing import cells
from glasshouse.onnx.writing.protobuf import WrittenModel
from glasshouse.onnx.writing.table import WHERE
from glasshouse.onnx.writing.tracing import JointTrace, evaluating, joint_trace
from glasshouse.onnx.writing.writer import CODE_OF, GraphWriter, WrittenValue
from glasshouse.ops.checks import check_path

__all__ = ["export"]

LEAST_OPSET = 21
FAMILIES = (cells,)  # its function recognises loops


def export(
    model: Callable[..., Any],
    inputs: Any,
    path: Any,
    *,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int = LEAST_OPSET,
    external_data: bool | None = None,
) -> Path:
    """Write a module, or a function of tensors, as an ONNX file; returns the file's path.

    `inputs` are examples: a tensor, a tuple of arguments, or a dict of them by name. Tensors and
    arrays among them are the file's inputs, under the names of the parameters; other arguments are
    fixed. A module is exported as in eval mode, and its mode stays. Parameters and buffers have
    their names in the file.

    `dynamic_axes` names axes whose sizes may vary: {"x": {0: "batch"}}; equal names are equal
    sizes. The function is traced at several sizes to learn how its calls depend on them. With
    `external_data`, or above 1.9 GB, the weights lie in a second file, `path` and ".data".

    Raises: OptionError for a primitive that ONNX cannot express, with its name, module and line, or
        for calls that depend on a size; TransformError for a function that reads the contents of
        tensors, or draws random numbers; DTypeError for inputs of other kinds; CheckpointError for
        a path that cannot be written; BackendError without the package onnx.
    Source: https://onnx.ai/onnx/repo-docs/IR.html
    Example:
        >>> model, x = gh.nn.Linear(2, 3), gh.zeros((4, 2))
        >>> axes = {"input": {0: "n"}}
        >>> gh.onnx.export(model, x, "linear.onnx", dynamic_axes=axes).name  # doctest: +SKIP
        'linear.onnx'
    """
    onnx = optional(WHERE, "the package onnx", "onnx", "onnx")
    optional(WHERE, "the package onnx", "onnx.helper", "onnx")
    file = check_path(WHERE, path)
    check_call(onnx, model, opset)
    module = module_of(model)
    arguments = Arguments(model, inputs, input_names)
    symbols = symbols_of(dynamic_axes or {}, arguments)
    named = dict(tensors_of(module))
    with evaluating(module):
        trace = joint_trace(arguments.call, arguments.specs, symbols, named)
    results = names_of_results(trace.structure, len(trace.graph.outputs), output_names)
    writer = GraphWriter(opset)
    writer.names.taken.update([*arguments.names, *results, *named])
    declared = [writer.value(*pair) for pair in zip(arguments.names, trace.inputs, strict=True)]
    values = dict(enumerate(declared)) | captured_values(writer, trace, named)
    outputs = writer.write(trace.graph, values)
    pairs = list(zip(results, outputs, strict=True))
    for name, x in pairs:
        if x.dtype.is_complex:
            fix = "Return gh.real and gh.imag of it."
            raise DTypeError(WHERE, f"a real output {name!r}", x.dtype.name, fix)
    WrittenModel(writer, declared, pairs, trace.symbols).save(onnx, file, external_data)
    return file


def captured_values(
    writer: GraphWriter, trace: JointTrace, named: Mapping[str, Any]
) -> dict[int, WrittenValue]:
    """The tensors that a function closes over: those of its module have their names."""
    own_names = {id(x): name for name, x in reversed(list(named.items()))}
    values = {}
    for number, x in trace.captured.items():
        like = trace.graph.inputs.get(number)
        if like is None:
            continue
        if number in trace.tables:
            name = trace.tables[number].write(writer)
        else:
            name = own_names.get(id(x)) or writer.names.new("constant")
            writer.constants[name] = x.numpy()
        values[number] = writer.value(name, like)
    return values


def check_call(onnx: Any, model: Any, opset: int) -> None:
    """Refuse models that are not callable, and opsets that are too old or too new.

    Raises: DTypeError, OptionError
    """
    if not callable(model):
        fix = "Pass one."
        raise DTypeError(WHERE, "a module or a function of tensors", type_name(model), fix)
    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not LEAST_OPSET <= opset <= newest:
        expected = f"an opset from {LEAST_OPSET} to {newest}"
        raise OptionError(WHERE, expected, opset, "Leave it out.")


def module_of(model: Any) -> Module | None:
    """The module whose tensors have names: the model, or the one that it is a method of."""
    if isinstance(model, Module):
        return model
    owner = getattr(model, "__self__", None)
    return owner if isinstance(owner, Module) else None


def tensors_of(module: Module | None) -> Iterator[tuple[str, Any]]:
    """Parameters and buffers by their names."""
    if module is not None:
        yield from module.named_parameters()
        yield from module.named_buffers()


class Arguments:
    """The arguments of a call: `names` and `specs` of the tensors among them."""

    def __init__(self, model: Any, inputs: Any, names: Sequence[str] | None) -> None:
        self.model = model
        args, named = inputs_apart(inputs)
        places = [*names_by_position(model, len(args)), *named]
        trees = [flatten(x) for x in (*args, *named.values())]
        self.positions: int = len(args)
        self.keys: list[str] = list(named)
        self.structures: list[TreeDef] = [structure for _, structure in trees]
        self.leaves: list[Any] = [array_of(leaf) for leaves, _ in trees for leaf in leaves]
        self.at: list[int] = [
            i for i, x in enumerate(self.leaves) if isinstance(x, Value | np.ndarray | np.generic)
        ]
        own = [n for name, (leaves, _) in zip(places, trees) for n in names_in(name, leaves)]
        self.specs: list[Spec] = [as_value(self.leaves[i]).spec for i in self.at]
        self.names: list[str] = [own[i] for i in self.at]
        if names is not None:
            if len(names) != len(self.at) or len(set(names)) != len(names):
                expected = f"{len(self.at)} input_names that differ"
                raise OptionError(WHERE, expected, list(names), f"They are {self.names}.")
            self.names = list(names)
        if not self.at:
            fix = "Pass examples of its inputs."
            raise OptionError(WHERE, "tensors among the inputs", type_name(inputs), fix)
        for name, spec in zip(self.names, self.specs):
            if spec.dtype.name not in CODE_OF or spec.dtype.is_complex:
                fix = "Pass gh.real and gh.imag of it."
                raise DTypeError(WHERE, f"a real input {name!r}", spec.dtype.name, fix)

    def call(self, tensors: Sequence[Any]) -> Any:
        """The model on tensors in the place of the examples."""
        leaves = list(self.leaves)
        for i, x in zip(self.at, tensors, strict=True):
            leaves[i] = x
        trees, start = [], 0
        for structure in self.structures:
            trees.append(unflatten(structure, leaves[start : start + structure.num_leaves]))
            start += structure.num_leaves
        named = dict(zip(self.keys, trees[self.positions :], strict=True))
        return self.model(*trees[: self.positions], **named)


def is_tensor(x: Any) -> bool:
    return isinstance(x, Value | np.ndarray)


def array_of(x: Any) -> Any:
    """A scalar of NumPy's as an array."""
    return np.asarray(x) if isinstance(x, np.generic) else x


def inputs_apart(inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    """(arguments by position, arguments by name)."""
    if isinstance(inputs, Mapping):
        return [], dict(inputs)
    if isinstance(inputs, Value | np.ndarray | np.generic):
        return [inputs], {}
    if isinstance(inputs, tuple | list):
        return list(inputs), {}
    fix = "Pass examples: a tensor, a tuple of arguments, or a dict of them by name."
    raise DTypeError(WHERE, "inputs of a call", type_name(inputs), fix)


def names_by_position(model: Any, count: int) -> list[str]:
    """Names of the first parameters."""
    target = model.forward if isinstance(model, Module) else model
    names: list[str] = []
    try:
        for p in inspect.signature(target).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
    except (TypeError, ValueError):
        pass
    return [*names[:count], *(f"input_{i}" for i in range(len(names), count))]


def names_in(name: str, leaves: Sequence[Any]) -> list[str]:
    """Names of the leaves of an argument."""
    return [name] if len(leaves) == 1 else [f"{name}_{i}" for i in range(len(leaves))]


def symbols_of(
    dynamic_axes: Mapping[str, Any], arguments: Arguments
) -> dict[str, list[tuple[int, int]]]:
    """The places (input, axis) of each size that varies, by its name.

    Raises: OptionError for inputs and axes that are not there, and sizes that differ
    """
    places: dict[str, list[tuple[int, int]]] = {}
    if not isinstance(dynamic_axes, Mapping):
        fix = "Write {'x': {0: 'batch'}}."
        raise OptionError(WHERE, "dynamic_axes by input", type_name(dynamic_axes), fix)
    for name, axes in dynamic_axes.items():
        if name not in arguments.names:
            fix = suggest(str(name), arguments.names)
            raise OptionError(WHERE, "inputs in dynamic_axes", repr(name), fix)
        number = arguments.names.index(name)
        spec = arguments.specs[number]
        pairs = axes.items() if isinstance(axes, Mapping) else [(i, f"{name}_{i}") for i in axes]
        for axis, symbol in pairs:
            if not isinstance(axis, int) or not -spec.ndim <= axis < spec.ndim:
                expected = f"axes of {name!r} {spec} in dynamic_axes"
                raise OptionError(WHERE, expected, repr(axis), "Count them from 0.")
            if not isinstance(symbol, str) or not symbol:
                fix = "Write {0: 'batch'}."
                raise OptionError(WHERE, "a name for a size that varies", repr(symbol), fix)
            places.setdefault(symbol, []).append((number, axis % spec.ndim))
    for symbol, at in places.items():
        sizes = {arguments.specs[number].shape[axis] for number, axis in at}
        if len(sizes) > 1:
            fix = "Give axes of other sizes other names."
            raise OptionError(WHERE, f"one size {symbol!r}", sorted(sizes), fix)
    return places


def names_of_results(structure: Any, count: int, names: Sequence[str] | None) -> list[str]:
    """Names of the outputs: a dict's keys, else "output", with numbers where there are several.

    Raises: OptionError for another number of them
    """
    if not count:
        raise OptionError(WHERE, "a function that returns a tensor", "none", "Return one.")
    if names is not None:
        if len(names) != count or len(set(names)) != count:
            raise OptionError(WHERE, f"{count} output_names that differ", list(names), "Name each.")
        return list(names)
    if count == 1 and not structure.keys:
        return ["output"]
    if len(structure.keys) == count:
        return [str(key) for key in structure.keys]
    return [f"output_{i}" for i in range(count)]
