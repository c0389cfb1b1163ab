"""A port for a job of several processes that no other job of the tests gets, and that the system gives away neither."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

#: Below the range from which the system gives ports to those that ask for any (32768 on).
FIRST_PORT, LAST_PORT = 10000, 32767


@contextmanager
def reserved_port() -> Iterator[int]:
    """Hold a port of 127.0.0.1: no other job can reserve it meanwhile, but one server (with SO_REUSEADDR) can listen.

    A port that was merely found free can be another's by the time the server starts.
    """
    for port in range(FIRST_PORT + os.getpid() % 20000, LAST_PORT + 1):
        with socket.socket() as held:
            try:
                held.bind(("127.0.0.1", port))
            except OSError:
                continue
            # Only now: before, bind would also take a port that another job holds in this way.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield port
            return
    raise RuntimeError(f"no port from {FIRST_PORT + os.getpid() % 20000} to {LAST_PORT} is free")
