"""The default backend: what was recorded runs as compiled Programs."""

from glasshouse.compile.recording import RecordingBackend


class LazyBackend(RecordingBackend):
    """Records every primitive; `replace` makes one a step that calls the user's function."""

    name = "lazy"
