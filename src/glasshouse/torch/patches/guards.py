"""The context of a compilation, with the notes of TorchDynamo and AOTAutograd."""

from typing import Any

from glasshouse.torch.patches.names import private

TracingContext: Any = private("torch._guards:TracingContext", "2.6", "know results of graphs")
tracing: Any = private("torch._guards:tracing", "2.6", "have AOTAutograd note facts of results")


def metadata_now() -> Any:
    """AOTAutograd's metadata of the graph under compilation; None outside of one."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata
