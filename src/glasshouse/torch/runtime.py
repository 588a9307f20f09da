"""Lowered graphs that run: on PyTorch's own memory, one Program for each set of sizes."""

import threading
import warnings
from collections import OrderedDict

import numpy as np
import torch

from glasshouse.base import having
from glasshouse.base.flags import flags
from glasshouse.compile import program as programs
from glasshouse.compile.executable import IndexErrorInside
from glasshouse.dispatch.backend import quiet
from glasshouse.dispatch.bind import state, timers
from glasshouse.graph import record
from glasshouse.torch.draws import draw_keys
from glasshouse.torch.dtypes import from_array, to_array
from glasshouse.torch.lowering import GraphLowering, LoweredGraph, Output, debug_unknown, layout_of

one_at_a_time = threading.RLock()  # of traces: TorchDynamo's callers may have several threads
MOST_VARIANTS = 64  # sets of sizes that one graph keeps Programs for


class CompiledVariant:
    """A graph for inputs of one set of sizes, dtypes and layouts."""

    def __init__(self, module: torch.fx.GraphModule, inputs, phase: str):
        lowering = GraphLowering(module, inputs, phase)
        lowered: LoweredGraph = lowering.run()
        debug_unknown(lowering.unknown)
        self.module, self.unknown = module, lowering.unknown
        self.outputs, self.draws, self.leaves = lowered.outputs, lowered.draws, lowered.leaves
        self.layouts = [layout_of(x) if isinstance(x, torch.Tensor) else None for x in inputs]
        self.scalars, self.program = [], None
        if lowered.recording is not None:
            self.scalars = lowered.recording.scalars
            self.recorded = len(lowered.recording.nodes)
            self.program = compile_recording(lowered.recording)
        self.shared = self.shared_outputs()

    def shared_outputs(self) -> set[int]:
        """Results whose memory another result has too: the later ones are copied."""
        taken: set[int] = set()
        twice = set()
        for place, out in enumerate(self.outputs):
            if out.kind == "value" and self.program is not None:
                base = self.program.outputs[out.what][0]
                if base in taken:
                    twice.add(place)
                taken.add(base)
        return twice

    def run(self, args) -> list:
        """The results for tensors of these sizes."""
        arrays: list = []
        if self.program is not None:
            keys = draw_keys(self.draws)
            given = [self.array_of(kind, what, args, keys) for kind, what in self.leaves]
            try:
                arrays = self.run_program(given)
            except IndexErrorInside:  # PyTorch's own words say which
                return EagerVariant(self.module).run(args)
        return [self.result(i, out, args, arrays) for i, out in enumerate(self.outputs)]

    def run_program(self, given) -> list[np.ndarray]:
        """The Program's outputs; who watches this thread is told of its steps."""
        if not timers or isinstance(self.program, ReferenceProgram):
            return self.program.run(given, self.scalars)
        return programs.run_timed(
            self.program,
            [-1] * self.recorded,
            lambda ends_ns: self.program.run(given, self.scalars, (), ends_ns),
        )

    def array_of(self, kind: str, what, args, keys) -> np.ndarray:
        """The memory of a leaf, as an array that lies row by row."""
        if kind == "key":
            return keys[what]
        if kind == "constant":
            return what
        layout, tensor = self.layouts[what], args[what].detach()
        if not layout.dense:
            tensor = tensor.contiguous()
        elif layout.order != tuple(range(len(layout.order))):
            tensor = tensor.permute(layout.order)
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        return to_array(tensor)

    def result(self, place: int, out: Output, args, arrays):
        if out.kind == "constant":
            return out.what
        if out.kind == "input":
            return args[out.what]
        if out.kind == "empty":
            return torch.empty(out.sizes, dtype=out.dtype)
        if out.kind == "view":
            return args[out.what].detach().as_strided(out.sizes, out.strides, out.offset)
        tensor = from_array(arrays[out.what])
        if place in self.shared:
            tensor = tensor.clone()
        return tensor.as_strided(out.sizes, out.strides)


class ReferenceProgram:
    """A recording that the cards' references compute, as GH_COMPILE=never asks for."""

    def __init__(self, recording: record.Recording):
        self.recording = recording
        self.outputs = [(i, ()) for i in range(len(recording.outputs))]

    def run(self, arrays, scalars) -> list[np.ndarray]:
        """The outputs for these inputs."""
        for leaf, array in zip(self.recording.leaves, arrays):
            leaf.value = array
        return [np.array(x, order="C") for x in quiet.run(record.compute, self.recording)]


def compile_recording(recording: record.Recording):
    """The Program of a recording, or what stands for it where nothing is to be compiled."""
    if flags.compile == "never":
        return ReferenceProgram(recording)
    return programs.compiled(recording)


def key_of(args) -> tuple:
    """What tells the Programs of one graph apart."""
    return tuple(
        (x.dtype, x.shape, x.stride(), x.is_conj(), x.is_neg())
        if isinstance(x, torch.Tensor)
        else x
        for x in args
    )


class EagerVariant:
    """A graph that PyTorch itself computes, operator by operator: where ours could not be made."""

    def __init__(self, module: torch.fx.GraphModule):
        self.module, self.unknown = module, {"the whole graph": 1}

    def run(self, args) -> list:
        """The results, as of a compiled graph."""
        results = self.module(*args)
        return list(results) if isinstance(results, (tuple, list)) else [results]


class TorchGraphProgram:
    """What torch.compile calls in place of a graph: compiled when first called with given sizes."""

    def __init__(self, module: torch.fx.GraphModule, phase: str, options: dict):
        self.module, self.phase, self.options = module, phase, options
        self.variants: OrderedDict[tuple, CompiledVariant] = OrderedDict()
        self._boxed_call = True  # AOTAutograd hands over its arguments as one list

    def __call__(self, args):
        args = list(args)
        return self.variant_of(args).run(args)

    def variant_of(self, args) -> CompiledVariant:
        """The Program for these arguments, compiled if there is none yet."""
        key = key_of(args)
        variant = self.variants.get(key)
        if variant is None:
            with one_at_a_time, having(state, modes=()):
                variant = self.variants[key] = self.compile_variant(args)
                if len(self.variants) > MOST_VARIANTS:
                    self.variants.popitem(last=False)
        return variant

    def compile_variant(self, args):
        """The Program for these arguments; PyTorch's own graph where there is none, with a warning.

        Raises: BackendError under the option strict, with the reason
        """
        try:
            return CompiledVariant(self.module, args, self.phase)
        except Exception as error:
            if self.options.get("strict") or flags.strict:
                raise
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"glasshouse: a graph of torch.compile is left to PyTorch, and runs as eager does "
                f"({reason}). options={{'strict': True}} makes this an error.",
                stacklevel=2,
            )
            return EagerVariant(self.module)
