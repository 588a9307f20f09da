"""When another set of sizes is worth a compilation: the first ones at once, later ones only where
they come again and again. So a loop whose tensors grow in each step compiles a few times, and a
program that comes back to its sizes has a Program for each of them soon."""

from collections import Counter
from collections.abc import Hashable

from glasshouse.base.flags import flags

MOST_MET = 1 << 12  # sets of sizes whose meetings are counted


class NewSizes:
    """Counts compilations for one program, and how often sizes without one were met. The first
    `at_once` compile at once, a later one when it was met 4, 9, 16, … times: in n rounds through
    all sizes about √n are compiled. Depends on the calls alone, so equal programs run equally."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.compiled: int = 0
        self.met: Counter[Hashable] = Counter()
        self.latest: Hashable = None  # sizes that were met without a Program

    def is_due(self, sizes: Hashable) -> bool:
        """Note a meeting with sizes that have no Program yet; whether to compile them now, which
        counts as a compilation. Under GH_COMPILE=always that is so each time."""
        self.met[sizes] += 1
        self.latest = sizes
        is_asked = flags.compile == "always" or flags.deterministic
        if not is_asked and self.met[sizes] < meetings(self.compiled - self.at_once):
            if len(self.met) > MOST_MET:
                self.met.clear()
            return False
        self.met.pop(sizes, None)  # another thread may have done so
        self.compiled += 1
        return True


def meetings(excess: int) -> int:
    """How often sizes must be met before they are compiled, by the number of compilations beyond
    those at once."""
    return 1 if excess < 0 else (excess + 2) ** 2
