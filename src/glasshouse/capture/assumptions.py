"""What a graph takes for given though a later call may have it otherwise.

The graph checks it, and Python does a call in which it fails. Where it fails again and again, the
entry is dropped, and the graph is broken there from then on."""

MOST_FAILURES = 3


class Assumptions:
    """Those of one entry: where they were made, and how often one has failed."""

    def __init__(self):
        self.places: list[tuple] = []  # (decoded code, instruction)
        self.failures = 0
        self.remove = None  # takes the entry off its dispatcher's list

    def note(self, code, instruction: int) -> None:
        self.places.append((code, instruction))

    def failed(self, is_failed_check, error: Exception) -> None:
        """The graph raised an error, perhaps because one of them was wrong."""
        self.failures += is_failed_check(error)
        if self.failures < MOST_FAILURES or self.remove is None:
            return
        for code, instruction in self.places:
            code.doubted.add(instruction)
        remove, self.remove = self.remove, None
        remove(None)
