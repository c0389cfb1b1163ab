"""Hostile requests to the page's server: it answers each in one line, and prints nothing."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import STORED_RUNS_FOLDER

from backprobe.report import serve
from backprobe.report.serve import Server
from backprobe.store import FORMAT

RUN = STORED_RUNS_FOLDER / f"format-{FORMAT}" / "nan"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serve._Handler, "timeout", 2)
    shutil.copytree(RUN, tmp_path / "run")
    with Server(tmp_path / "run") as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def sent(server: Server, data: bytes) -> tuple[int | None, bytes]:
    """Status and body of the answer to `data`, ``None`` where the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=600) as to:
        try:
            to.sendall(data)
            answer = b"".join(iter(lambda: to.recv(1 << 16), b""))
        except ConnectionError:  # closed before all of it was sent
            return None, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else None, body


def get(path: str, *more: str, host: str | None = "127.0.0.1:1", method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *more, "", ""]
    return "\r\n".join(lines).encode()


def test_malformed_requests_get_one_line_and_print_nothing(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    token = f"?token={server.token}"
    wrong = [
        *(
            b"\r\n",
            b"\x00\x01\xff\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / X\r\n\r\n",
            b"\x16\x03\x01",
        ),
        *(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", get("/", "X: " + "a" * 70_000), get("/", *["X: y"] * 200)),
        *(get(f"/{token}", method=method) for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "EVIL")),
        *(get(f"http://[{token}"), get(f"//[{token}"), get("/?" + "&".join(["a=b"] * 50))),
        *(get(f"/steps{token}&from={first}&to={last}") for first, last in (("²", "³"), ("0", "9" * 5000), ("0", "-1"))),
        *(
            get(path + token)
            for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/run.sqlite", "/page.html")
        ),
        *(
            get(f"/data{token}", host=host)
            for host in ("evil.example", "evil.example:80", "127.0.0.1.evil:1", "", None)
        ),
        get(f"/data{token}", "Host: evil.example"),
        get("/data?token=%ff%ed%a0%80"),
        b"GET /data" + token.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1:1\r\nX: never ends",
    ]
    for data in wrong:
        status, body = sent(server, data)
        assert status is None or 400 <= status < 600, (data[:80], status, body[:80])
        assert body.count(b"\n") <= 1 and len(body) < 200 and b"<html" not in body.lower(), (data[:80], body)
        assert b"root:" not in body and server.token.encode() not in body
    status, body = sent(server, get(f"/data{token}", host="localhost"))
    assert status == 200 and body
    assert sent(server, get(f"/{token}", method="HEAD"))[0] == 501
    assert capfd.readouterr() == ("", "")


def test_a_client_that_disconnects_prints_nothing(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        to = socket.create_connection(("127.0.0.1", server.server_port), timeout=600)
        to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not a close
        to.sendall(get(f"/?token={server.token}"))
        to.close()
    assert sent(server, get(f"/data?token={server.token}"))[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_run_that_becomes_damaged_gets_one_line(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray((server.source.folder / "run.sqlite").read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    (server.source.folder / "run.sqlite").write_bytes(data)
    status, body = sent(server, get(f"/data?token={server.token}"))
    assert status == 503 and b"damaged" in body and body.count(b"\n") == 1
    assert capfd.readouterr() == ("", "")
