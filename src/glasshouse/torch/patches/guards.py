"""The context of a compilation, in which TorchDynamo and AOTAutograd note what they find."""

from glasshouse.torch.patches.names import private

TracingContext = private("torch._guards:TracingContext", "2.6", "know results of graphs")
tracing = private("torch._guards:tracing", "2.6", "have AOTAutograd tell of results")


def metadata_now():
    """AOTAutograd's metadata of the graph that is being compiled; None outside of a compilation."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata
