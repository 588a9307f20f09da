"""Modules whose Python is not interpreted: most of the standard library."""

SKIPPED = set(
    "_pytest abc ast asyncio bdb bisect collections concurrent copy ctypes datetime decimal dis "
    "fractions gc heapq hypothesis importlib inspect io json logging multiprocessing numpy os "
    "pathlib pdb pickle pytest queue random re selectors shutil socket statistics string struct "
    "subprocess sysconfig tempfile textwrap threading time tokenize traceback types typing "
    "unittest warnings weakref".split()
)
LOOKED_INTO = {"collections.abc"}  # methods that it adds to a user's class
INTERPRETED = {  # prefixes of functions to interpret, by skipped module
    "os": ("_Environ.__getitem__", "_create"),  # which read its variables
    "collections": ("UserDict.", "UserList.", "ChainMap."),  # containers that Python's code makes
}


def is_skipped(module: str, name: str) -> bool:
    """Whether a function of a module is left to Python, by their names."""
    skipped = module.partition(".")[0] in SKIPPED and module not in LOOKED_INTO
    return skipped and not name.startswith(INTERPRETED.get(module, ()))
