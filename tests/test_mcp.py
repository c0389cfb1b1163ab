"""The MCP server, from the view of a client of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import backprobe
from backprobe.basics.errors import BackprobeError
from backprobe.commands import mcp_server, mcp_tools

BROKEN = """
import sys
import torch

print("begins", *sys.argv[1:])
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
loss = (model(torch.ones(1, 2)) * float("inf")).sum()
loss.backward()
"""


def asked(folder: Path, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Start the server in `folder`; return the names of its tools, and its answer to each call."""

    async def ask() -> list[str]:
        command = ["-m", "backprobe", "mcp"]
        server = StdioServerParameters(command=sys.executable, args=command, cwd=folder, env=dict(os.environ))
        async with Client(server) as client:
            answers = [" ".join(tool.name for tool in (await client.list_tools()).tools)]
            assert client.server_info.version == backprobe.__version__
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                answers.append("".join(part.text for part in result.content))
            return answers

    return asyncio.run(ask())


def test_a_client_runs_a_script_and_reads_the_explanation(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BROKEN)
    names, ran, found, shown, listed, page, stopped = asked(
        tmp_path,
        ("run_script", {"script": "train.py", "arguments": ["--lr", "1"]}),
        ("findings", {}),
        ("show", {}),
        ("runs", {}),
        ("explain", {"kind": "nonfinite-forward"}),
        ("debug_script", {"script": "train.py", "breakpoints": ["module 0"], "commands": ["where"]}),
    )
    assert names.split() == [tool.__name__ for tool in mcp_tools.TOOLS]
    answer = json.loads(ran)
    assert answer["exit_code"] == 0 and answer["stdout"] == "begins --lr 1\n"
    (first,) = answer["found"]["findings"]
    assert (first["kind"], first["sites"][0]["line"]) == ("nonfinite-forward", 7)
    assert json.loads(found)["findings"] == [first]
    assert "nonfinite-forward" in shown and "nonfinite-forward" in listed
    assert page.startswith("# nonfinite-forward")
    assert "AddmmBackward0" in stopped and "train.py:7" in stopped


def test_a_script_that_times_out_is_killed_and_its_findings_are_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BROKEN + "import time\nopen('there', 'w').close()\ntime.sleep(3600)\n")
    answer = json.loads(mcp_tools.run_script("train.py", folder=str(tmp_path), seconds=1.0))
    assert answer["exit_code"] == "ended after 1 seconds"
    if (tmp_path / "there").exists():  # it came as far
        assert [one["kind"] for one in answer["found"]["findings"]] == ["nonfinite-forward"]


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="process groups, and /proc to look at them")
def test_a_script_that_takes_too_long_takes_its_processes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a script that does not end by itself, and a process that holds its output open."""
    monkeypatch.setattr(mcp_tools, "ENDING", 0.5)
    (tmp_path / "train.py").write_text("""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
open("part", "w").write(f"{os.getpid()} {child.pid}")
os.rename("part", "pids")
time.sleep(3600)
""")
    seconds = 4.0
    while not (tmp_path / "pids").exists():  # a slow machine
        answer = json.loads(mcp_tools.run_script("train.py", folder=str(tmp_path), seconds=seconds))
        seconds *= 2
    assert answer["exit_code"].startswith("ended after")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    for _ in range(600):
        if all(map(ended, pids)):
            return
        time.sleep(0.1)
    raise AssertionError(f"{pids} go on")


def test_output_is_bounded_while_it_is_read(tmp_path: Path) -> None:
    """Not when all of it is there."""
    read, write = os.pipe()
    output = mcp_tools._Output(os.fdopen(read, "rb"))
    with os.fdopen(write, "wb") as pipe:
        pipe.write(b"first")
        for _ in range(100):
            pipe.write(b"x" * 10_000)
        pipe.write(b"last")
    text = output.text()
    assert text.startswith("first") and text.endswith("last") and "bytes left out" in text
    assert len(output._begin) + len(output._end) <= 2 * mcp_tools.ANSWER


def test_the_output_of_a_script_does_not_reach_the_clients_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('\\x1b]52;c;aGk=\\x07', '\\u202e')\n")
    answer = json.loads(mcp_tools.run_script("train.py", folder=str(tmp_path)))
    assert answer["stdout"] == "\\x1b]52;c;aGk=\\x07 \\u202e\n"


def test_tools_say_whether_they_only_read() -> None:
    tools = asyncio.run(mcp_server.server().list_tools())
    reads = {tool.name for tool in tools if tool.annotations.read_only_hint}
    assert reads == {"findings", "show", "runs", "explain"}
    assert {tool.name for tool in tools if tool.annotations.destructive_hint} == {"run_script", "debug_script"}


def test_wrong_use_is_answered_in_words(tmp_path: Path) -> None:
    assert "gone.py': [Errno 2] No such file or directory" in mcp_tools.run_script("gone.py", folder=str(tmp_path))
    assert "No such file" in mcp_tools.runs(str(tmp_path / "gone"))
    assert "did you mean none-grad" in mcp_tools.explain("none-gard")


def test_answers_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"print('x' * 1_000_000)\n{BROKEN}\nprint('y' * 1_000_000)\n")
    answer = mcp_tools.run_script("train.py", folder=str(tmp_path))
    assert len(answer) <= mcp_tools.ANSWER + 100 and json.loads(answer)["stdout"].startswith("... (")
    assert len(mcp_tools._bounded("a" * 10**6)) <= mcp_tools.ANSWER + 100


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(BackprobeError, match=r"pip install 'backprobe\[mcp\]'"):
        mcp_server.server()
