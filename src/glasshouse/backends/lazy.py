"""The default backend: recorded calls run as compiled Programs."""

from glasshouse.compile.programs.recording import RecordingBackend
from glasshouse.targets.cpu import CPU


class LazyBackend(RecordingBackend):
    """Records every primitive; `replace` makes one a step that calls the user's function."""

    name = "lazy"
    keeps_programs = True
    target = CPU  # the target where no other one is in use
