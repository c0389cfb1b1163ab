"""The notebook magic, in kernels that run cells: its output, and no effect on anything else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: Run in a process of its own: the client of a kernel has threads and loops.
CLIENT = """
import json, sys
import nbclient, nbformat
cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
book = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(book, timeout=600, kernel_name="python3", allow_errors=True).execute()
json.dump([cell.outputs for cell in book.cells], open(sys.argv[1], "w"))
"""
START = "%load_ext backprobe\nimport backprobe\nimport torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(2, 1)"
WRONG = """
def forward(x):
    y = x.exp()
    y.add_(1)
    return y

noise = torch.rand(3)
forward(torch.ones(3, requires_grad=True)).sum().backward()
"""
TRAINED = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.rand(4, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
loss.item()
"""
STATE = """
{name: str(value) for name, value in globals().items() if name[0] != "_" and name not in ("In", "get_ipython")}
"""
#: What is to be the same whether it is watched or not.
SAME = [
    WRONG,
    TRAINED,
    "import asyncio\nawait asyncio.sleep(0)\nmodel.weight.grad",
    "1 / 0",
    "x ==== 1",
    "raise SystemExit(3)",
]


def executed(folder: Path, cells: list[str]) -> list[list[dict[str, Any]]]:
    """The outputs of each of `cells` in a new kernel."""
    (folder / "client.py").write_text(CLIENT)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(folder / "ipython")}
    command = [sys.executable, "client.py", "out.json"]
    done = subprocess.run(
        command, input=json.dumps(cells), cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]


def text_of(outputs: list[dict[str, Any]], kind: str) -> str:
    """Join what `outputs` have of one kind: ``text/plain``, ``text/html``, ``stdout`` or ``error``."""
    found = []
    for one in outputs:
        if one["output_type"] == "stream":
            found.append(one["text"] if one["name"] == kind else "")
        elif one["output_type"] == "error":
            found.append("\n".join(one["traceback"]) if kind == "error" else "")
        else:
            found.append(one["data"].get(kind, ""))
    return "\n".join(filter(None, found))


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Name -> outputs of a cell of one notebook."""
    cells = {
        "start": START,
        "none": "%backprobe",
        "wrong": f"%%backprobe --check memory --out spoilt{WRONG}",
        "finding": "wrong = %backprobe\nwrong.findings[0]",
        "printed": "print(wrong.findings[0])\nprint(wrong.findings)",
        "nodes": "wrong.steps[0].backwards[0].nodes",
        "node": "wrong.steps[0].backwards[0].nodes[0]",
        "call": "wrong.steps[0].backwards[0]",
        "page": "wrong",
        "trained": f"%%backprobe --layer-stats 1 --out kept --findings findings.json{TRAINED}",
        "statistics": "trained = %backprobe\ntrained.statistics",
        "part": 'trained["weight"]',
        "parameter": "trained.parameters[0]",
        "options": "%%backprobe --fail-on error\n1",
        "argument": "%%backprobe train.py\n1",
        "timed": "%%time\n%%backprobe\nmodel(torch.ones(3, 2)).log().sum().backward()",
        "times": "%%backprobe\n%%time\n(model(torch.ones(3, 2)) * 0).log().sum().backward()",
        "captured": "%%capture held\n%%backprobe\nmodel(torch.ones(3, 2)).sum().backward()",
        "held": "held.outputs[-1].data['text/plain']",
        "again": "%%backprobe --quiet\nmodel(torch.ones(3, 2)).sum().backward()",
        "quiet": "quiet = %backprobe\nlen(quiet.steps)",
        "block": f"with backprobe.trace(model) as block:\n    {WRONG.strip().replace(chr(10), chr(10) + '    ')}",
        "explained": "backprobe.diagnose(model, lambda: (model(torch.ones(3, 2)) * 0).log().sum())",
        "with": "%%backprobe --page\nmodel(torch.ones(3, 2)).sum().backward()",
        "help": "print(get_ipython().find_cell_magic('backprobe').__doc__)",
        "stop": "%unload_ext backprobe\nshell = get_ipython()\nleft = {'showtraceback'} & set(vars(shell))\n"
        "left, shell.CustomTB.__module__, len(shell.events.callbacks['pre_run_cell']), "
        "'backprobe' in shell.magics_manager.magics['cell']",
    }
    folder = tmp_path_factory.mktemp("book")
    found = dict(zip(cells, executed(folder, list(cells.values())), strict=True))
    env = {**os.environ, "COLUMNS": "120"}
    for name in ("kept", "spoilt"):
        command = [sys.executable, "-m", "backprobe", "show", name]
        show = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=env)
        found[name] = [{"output_type": "stream", "name": "stdout", "text": show.stdout + show.stderr}]
    found["json"] = [{"output_type": "stream", "name": "stdout", "text": (folder / "findings.json").read_text()}]
    return found


def test_a_watched_cell_has_its_findings_below_it(book) -> None:
    shown = book["wrong"]
    assert [one["output_type"] for one in shown] == ["error", "display_data"]
    plain, html = text_of(shown, "text/plain"), text_of(shown, "text/html")
    assert "inplace  error, certain" in plain and "Cell In[3], line 4 in forward" in plain and "\x1b" not in plain
    assert "> 4     y.add_(1)" in plain
    assert "inplace</span>" in html and "Cell In[3], line 4 in forward" in html and "saved-memory" in html


def test_the_error_is_shown_without_frames_of_ours(book) -> None:
    shown = text_of(book["wrong"], "error")
    assert "RuntimeError" in shown and "notebook.py" not in shown and "/backprobe/" not in shown
    assert "backprobe:" not in shown  # what was found stands below


def test_a_traced_block_shows_its_error_so_too(book) -> None:
    shown = text_of(book["block"], "error")
    assert "RuntimeError" in shown and "/backprobe/" not in shown
    assert "backprobe: inplace at Cell In[" in shown and "ipykernel_" not in shown


def test_objects_display_themselves_in_a_cell(book) -> None:
    assert "inplace</span>" in text_of(book["finding"], "text/html")
    assert "inplace at Cell In[3], line 4: " in text_of(book["printed"], "stdout")
    assert "Cell In[3], line 8 in &lt;module&gt;" in text_of(book["finding"], "text/html")
    assert "<td" in text_of(book["nodes"], "text/html") and "ExpBackward0" in text_of(book["call"], "text/html")
    assert "Cell In[3], line 8" in text_of(book["node"], "text/html")
    assert "<iframe" in text_of(book["page"], "text/html")
    assert "nonfinite-forward</span>" in text_of(book["explained"], "text/html")
    assert "update_ratio" in text_of(book["statistics"], "text/html")
    assert "gradient norm" in text_of(book["part"], "text/html")
    assert "Parameter" in text_of(book["parameter"], "text/html")
    for name in ("wrong", "finding", "printed", "node", "nodes", "call", "trained"):
        assert "ipykernel_" not in json.dumps(book[name]), name


def test_a_run_that_is_kept_has_the_cells_by_number(book) -> None:
    assert "No problems found" in text_of(book["kept"], "stdout")
    spoilt = text_of(book["spoilt"], "stdout")
    assert "Cell In[3], line 4 in forward" in spoilt and "> 4     y.add_(1)" in spoilt and "ipykernel_" not in spoilt
    assert json.loads(text_of(book["json"], "stdout"))["findings"] == []


def test_wrong_use_is_one_line(book) -> None:
    assert text_of(book["none"], "stderr") == "UsageError: no cell was watched yet: begin one with %%backprobe\n"
    assert "UsageError: --fail-on is an option of backprobe run" in text_of(book["options"], "stderr")
    assert "UsageError: %%backprobe takes options only, not 'train.py'" in text_of(book["argument"], "stderr")
    assert text_of(book["options"], "text/plain") == ""


def test_other_magics_around_and_inside(book) -> None:
    assert "Wall time" in text_of(book["timed"], "stdout") and "in 1 step (" in " ".join(
        text_of(book["timed"], "text/plain").split()
    )
    assert "Wall time" in text_of(book["times"], "stdout")
    assert "nonfinite-forward" in text_of(book["times"], "text/plain")
    assert "in 1 step (" in text_of(book["held"], "text/plain").replace("\\xa0", " ")
    assert text_of(book["again"], "text/html") == "" and text_of(book["quiet"], "text/plain") == "1"
    assert "<iframe" in text_of(book["with"], "text/html")
    assert "--layer-stats" in text_of(book["help"], "stdout")


def test_unloading_leaves_nothing(book) -> None:
    assert text_of(book["stop"], "text/plain") == "(set(), 'IPython.core.interactiveshell', 0, False)"


def test_all_else_is_as_without_it(tmp_path: Path) -> None:
    """Outputs, errors with their tracebacks, names, ``Out``, weights and random numbers."""
    end = [STATE, "torch.get_rng_state().sum(), list(Out), model.weight, model.weight.grad, _"]
    watched = executed(tmp_path, [START, *(f"%%backprobe\n{cell}" for cell in SAME), *end])
    alone = executed(tmp_path, [START, *(f"# %%backprobe\n{cell}" for cell in SAME), *end])
    for ours, theirs in zip(watched, alone, strict=True):
        kept = [one for one in ours if one["output_type"] != "display_data"]
        assert [told(one) for one in kept] == [told(one) for one in theirs]
    assert all(any(one["output_type"] == "display_data" for one in cell) for cell in watched[1:-2])


def told(output: dict[str, Any]) -> str:
    """An output without addresses of objects and names of temporary files."""
    return re.sub(r"0x[0-9a-f]+|\d+\.py", "", json.dumps(output, sort_keys=True))


def test_a_terminal_shows_text(tmp_path: Path) -> None:
    """IPython's own prompt, without a kernel."""
    script = (
        "%load_ext backprobe\nimport torch\n"
        "get_ipython().run_cell('%%backprobe\\n(torch.ones(2, requires_grad=True) * 0).log().sum().backward()')\n"
    )
    (tmp_path / "lines.ipy").write_text(script)
    env = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "lines.ipy"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "nonfinite-forward" in done.stdout and "Cell In[" in done.stdout


def test_nothing_of_ipython_is_imported_without_it() -> None:
    modules = "sys, backprobe, backprobe.commands, backprobe.integrations.notebook"
    script = f"import {modules}\nassert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
