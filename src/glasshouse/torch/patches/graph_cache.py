"""The cache of graphs that AOTAutograd keeps on disk."""

from typing import Any

from glasshouse.torch.patches.names import are_found, private, settings, slot

KEEPING = "keep graphs on disk"
FUNCTORCH, INDUCTOR = "torch._functorch", "torch._inductor"

Unkeepable: Any = private(
    f"{FUNCTORCH}._aot_autograd.autograd_cache:BypassAOTAutogradCache", "2.6", KEEPING
)
SerializableCompiler: Any = private(
    f"{FUNCTORCH}._aot_autograd.schemas:SerializableAOTDispatchCompiler", "2.9", KEEPING
)
OutputCode: Any = private(f"{INDUCTOR}.output_code:OutputCode", "2.6", KEEPING)
GraphPickler: Any = private("torch.fx._graph_pickler:GraphPickler", "2.7", KEEPING)
PicklerOptions: Any = private("torch.fx._graph_pickler:Options", "2.7", KEEPING)
keeping: Any = settings(
    f"{FUNCTORCH}.config",
    "2.10",
    KEEPING,
    {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True},
    is_needed=True,
)
keeping_nothing: Any = settings(
    f"{FUNCTORCH}.config", "2.6", KEEPING, {"enable_autograd_cache": False}
)
# Functions that make keys, each of which takes most of a second.
REGISTER_BACKENDS = slot(f"{INDUCTOR}.codecache:init_backend_registration", "2.8", "make keys fast")
KEY_OF_PYTORCH = slot(f"{INDUCTOR}.codecache:torch_key", "2.6", "make keys fast")

IS_THERE = are_found(
    Unkeepable, SerializableCompiler, OutputCode, GraphPickler, PicklerOptions, keeping
)
