"""Running a recording: find or make its Program, and hand out the results."""

from glasshouse.dispatch.backend import quiet
from glasshouse.graph.record import Recording, compute


def run_recording(recording: Recording) -> None:
    """Compute the outputs; the nodes keep their values and forget their operands."""
    outputs = quiet.run(compute, recording)
    for i, value in zip(recording.outputs, outputs, strict=True):
        recording.nodes[i].value = value
    for node in recording.nodes:
        node.inputs = ()
