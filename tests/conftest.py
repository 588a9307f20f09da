"""Of all tests."""

import signal

# A shell that starts a command in the background has it ignore the keyboard's interrupt, and so
# would what the tests start; they send it themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
