"""What holds for every test."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background by a shell: the programs that tests interrupt would inherit that, and never hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
