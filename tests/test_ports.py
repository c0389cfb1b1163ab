"""Reserved ports of ``ports.py``."""

from __future__ import annotations

import socket

from ports import reserved_port


def test_a_reserved_port_belongs_to_one_job_and_its_server_can_listen() -> None:
    with reserved_port() as first, reserved_port() as second:
        assert first != second
        with socket.create_server(("127.0.0.1", first)) as server:  # with SO_REUSEADDR, as torch's store
            with socket.create_connection(("127.0.0.1", first), timeout=600):
                server.accept()[0].close()
            with reserved_port() as third:
                assert third not in (first, second)
