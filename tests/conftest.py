"""Of all tests."""

import gc
import signal

# A shell that starts a command in the background has it ignore the keyboard's interrupt, and so
# would what the tests start; they send it themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session):
    """What is there before the first test (modules, 19,000 tests) is left out of all collections of
    garbage: of that heap each takes 0.3 s, and capture and many tests ask for one."""
    gc.collect()
    gc.freeze()
