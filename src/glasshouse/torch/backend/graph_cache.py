"""Graphs that AOTAutograd made, kept on disk: a later process need not trace them again.

PyTorch has such a cache (`torch._functorch`'s, below `TORCHINDUCTOR_CACHE_DIR`): it knows which
graphs can be cached and what a key needs, and in doubt caches nothing. This file stores our
graphs in it, and extends their keys."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.compiler import config as compiler_config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from glasshouse.compile.programs.store import sources_digest
from glasshouse.torch.ahead.planned import current
from glasshouse.torch.aten.table import TABLE
from glasshouse.torch.backend.eager_errors import tell_written, writes_inputs
from glasshouse.torch.backend.runtime import (
    TorchGraphProgram,
    keep_nothing_donated,
    static_inputs,
    visible_results,
)
from glasshouse.torch.lowering.graph_source import GraphSource
from glasshouse.torch.lowering.lowering_cache import SOURCES
from glasshouse.torch.lowering.options import TorchOptions
from glasshouse.torch.patches.aot import take_list
from glasshouse.torch.patches.fakes import FakeTensorMode
from glasshouse.torch.patches.graph_cache import (
    KEY_OF_PYTORCH,
    REGISTER_BACKENDS,
    GraphPickler,
    OutputCode,
    PicklerOptions,
    SerializableCompiler,
    Unkeepable,
    keeping,
    keeping_nothing,
)
from glasshouse.torch.patches.tensors import is_zero_tensor
from glasshouse.torch.patches.trees import tree_map
from glasshouse.torch.scopes.module_scope import PHASE, module_path, phase_of
from glasshouse.torch.tensors.layout import Meaning, meaning_of
from glasshouse.torch.tensors.sizes import meta_tensor
from glasshouse.version import __version__

KEPT_OF_NODES = {"kept_val", "module_path", "stack_trace", PHASE}


@dataclasses.dataclass
class KeptTensor:
    """A serializable description of a tensor in a graph."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    meaning: Meaning

    def tensor(self) -> torch.Tensor:
        """A tensor without storage of this kind."""
        return meta_tensor(self.sizes, self.strides, self.offset, self.meaning)


def describe_value(value: torch.Tensor) -> Any:
    """A serializable form of a value of a graph.

    Raises: Unkeepable for one with sizes that vary, or that does not lie by strides
    """
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and not is_zero_tensor(value):
            sizes, strides, offset = (
                tuple(value.shape),
                tuple(value.stride()),
                value.storage_offset(),
            )
            if all(type(n) is int for n in (*sizes, *strides, offset)):
                return KeptTensor(sizes, strides, offset, meaning_of(value))
    elif value is None or isinstance(value, (bool, int, float, complex)):
        return value
    raise Unkeepable(f"a graph with a {type(value).__name__} like {value}")


def restore_value(value: Any) -> Any:
    """The value of a graph that was kept."""
    return value.tensor() if isinstance(value, KeptTensor) else value


def pack(graph: torch.fx.GraphModule) -> bytes:
    """A graph as bytes.

    Raises: Unkeepable for one that cannot be kept
    """
    for node in graph.graph.nodes:
        if node.target is torch.ops.higher_order.with_effects:  # its wrapper is not kept
            raise Unkeepable("a graph with operators that have effects")
        member = getattr(graph, node.target, None) if node.op == "get_attr" else None
        if isinstance(member, torch.fx.GraphModule):  # what its nodes promise is not kept
            raise Unkeepable("a graph with operators on functions")
        node.meta["module_path"], node.meta[PHASE] = module_path(node), phase_of(node)
        if "val" in node.meta:
            node.meta["kept_val"] = tree_map(describe_value, node.meta["val"])
    try:
        return GraphPickler.dumps(graph, PicklerOptions(None, KEPT_OF_NODES.__contains__))
    except Exception as error:
        raise Unkeepable(str(error)) from error


def unpack(graph: bytes) -> torch.fx.GraphModule:
    """The graph of these bytes."""
    module = GraphPickler.loads(graph, FakeTensorMode(shape_env=ShapeEnv()))
    module.recompile()
    for node in module.graph.nodes:
        if "kept_val" in node.meta:
            node.meta["val"] = tree_map(restore_value, node.meta.pop("kept_val"))
    return module


class CachedGraph(OutputCode):
    """The graph of a pass as AOTAutograd calls it, and as its cache keeps it."""

    def __init__(
        self, graph: torch.fx.GraphModule, phase: str, options: TorchOptions, keeps: bool
    ) -> None:
        super().__init__()
        self.phase = phase
        self.options = options
        self.visible: int = visible_results(phase)
        self.stable: tuple[int, ...] | tuple[()] = static_inputs() if keeps else ()
        self.writes: bool = phase == "forward" and writes_inputs()
        self.program: TorchGraphProgram = self.program_of(GraphSource(graph))
        self.bytes: bytes = b""
        self.digest: str = ""
        take_list(self)

    def program_of(self, source: GraphSource) -> TorchGraphProgram:
        """The program that runs a graph for this pass and these options."""
        return TorchGraphProgram(source, self.phase, self.options, self.visible, self.stable)

    def __call__(self, inputs: Any) -> list[torch.Tensor | None]:
        return self.program(inputs)

    def prepare_for_serialization(self) -> None:
        """Hold the graph as bytes; PyTorch calls it on a copy of this object.

        Raises: Unkeepable for a graph that cannot be kept
        """
        source = self.program.source
        source.keep(pack(source.module), unpack)
        self.bytes, self.digest = source.data, source.digest
        del self.program

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Build the callable of a graph loaded from disk.

        Raises: Unkeepable for a damaged graph
        """
        if not hasattr(self, "program"):
            source = GraphSource()
            source.keep(self.bytes, unpack)
            if source.digest != self.digest:
                raise Unkeepable("a graph that was damaged on disk")
            self.program = self.program_of(source)
        if self.writes:
            tell_written()

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing: it is for compilers that use Triton."""


def cached_compiler(phase: str, options: TorchOptions, keeps: bool = False) -> Any:
    """A compiler for AOTAutograd to call with the graph of a pass; its results can be cached."""

    def compile_graph(graph, _inputs):
        if phase == "backward":
            keep_nothing_donated()
        return CachedGraph(graph, phase, options, keeps)

    return SerializableCompiler(CachedGraph, compile_graph)


def key_of(module: torch.fx.GraphModule, options: TorchOptions) -> str:
    """Our part of a graph's cache key: a digest of this package's version and sources, of the
    options, of the table's operators, and of the lines and modules that the graph names."""
    parts = [__version__, sources_digest(SOURCES), repr(options), *sorted(TABLE)]
    parts.append(module.meta.get("captured", ""))  # of a graph that gh.optimize captured
    for node in module.graph.nodes:
        parts += [node.meta.get("stack_trace") or "", module_path(node), phase_of(node)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def do_nothing() -> None:
    """Replaces the import of inductor's code generators, which takes most of a second. PyTorch
    imports them to put the user's additions to them into a cache key."""


def release_key() -> bytes:
    """The cache key of a released PyTorch: its version, and the commit that it was built from.
    PyTorch itself reads and hashes all of its own files instead."""
    return f"{torch.__version__} {torch.version.git_version}".encode()


def key_of_pytorch() -> Callable[..., Any]:
    """The function that makes PyTorch's part of a key: its own where the source may be edited."""
    is_release = "git" not in torch.__version__ and torch.version.git_version
    return release_key if is_release else KEY_OF_PYTORCH.original


@contextlib.contextmanager
def graphs_cached(module: torch.fx.GraphModule, options: TorchOptions) -> Iterator[None]:
    """Inside, AOTAutograd looks a graph up in its cache, and stores it there. Two kinds are not
    cached: graphs cut for a memory budget, whose cut may raise an error, and graphs that are only
    planned, whose constants have no contents."""
    if options.memory_budget is not None or current.simulation is not None:
        with keeping_nothing():
            yield
        return
    tag = f"{compiler_config.cache_key_tag} glasshouse {key_of(module, options)}"
    with (
        REGISTER_BACKENDS.holding(do_nothing),
        KEY_OF_PYTORCH.holding(key_of_pytorch()),
        keeping(),
        compiler_config.patch(cache_key_tag=tag),
    ):
        yield
