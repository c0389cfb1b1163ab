"""The rule of imports (ARCHITECTURE.md), and what works without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import backprobe

ROOT = Path(backprobe.__file__).parent
#: The parts that import torch.
PRODUCERS = {"observe", "capture", "derivatives", "edit", "engine", "saved"}
#: From the top of the picture down. A part imports from its own row or from one that its row lists.
ALLOWED = {
    "errors": set(),
    "select": {"errors"},
    "records": set(),
    "graph": {"errors", "select", "records"},
    "packed": {"graph", "records"},
    "store": {"errors", "records", "packed", "traced"},
    "traced": {"records", "findings", "store", "report"},
    "findings": {"records", "graph", "traced"},
    "view": {"records", "findings", "traced"},
    "report": {"errors", "records", "packed", "store", "traced", "findings", "view"},
    "observe": {"errors", "select", "records", "graph", "packed", "store", "traced"},
    "capture": {"errors", "select", "records", "observe"},
    "derivatives": {"errors", "capture", "observe"},
    "edit": {"errors", "select", "records", "observe"},
    "engine": {"errors", "select", "records", "graph", "observe"},
    "saved": {"errors", "select", "records", "graph", "observe"},
    "commands": {"errors", "records", "findings", "store", "traced", "view", "report", "observe", "engine"},
    "__init__": {"errors", "records", "store", "traced", *PRODUCERS},
    "__main__": {"commands"},
}
#: Files with the name of a function that a producer offers: calling the package calls it (see their first lines).
CALLABLE = {("graph/__init__.py", "observe")}


def imports(path: Path):
    """(own part, part imported) for every import in a file of ours, and the torch imports."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(parts[: len(parts) - node.level])
            target = (base + (node.module or "").split("."))[0] if (base or node.module) else ""
            for name in [target] if target else [a.name for a in node.names]:
                yield parts[0], name
        elif isinstance(node, ast.ImportFrom):
            yield parts[0], "!" + (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield parts[0], "!" + alias.name.split(".")[0]


def test_imports_follow_the_picture() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "examples"):
            continue
        for part, target in imports(path):
            if target.startswith("!"):
                if target == "!torch" and part not in PRODUCERS:
                    wrong.append((str(path), "imports torch"))
            elif (path.relative_to(ROOT).as_posix(), target) in CALLABLE:
                continue
            elif target not in ("", part) and target not in ALLOWED[part]:
                wrong.append((str(path), f"imports {target}"))
    assert wrong == []


def test_private_torch_is_in_one_place() -> None:
    """``torch._C`` and what else begins with an underscore; the one exception is the pair that a hot path turns."""
    found = []
    for path in ROOT.rglob("*.py"):
        if path.name == "private.py" or path.name.startswith("private_"):
            continue
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if "torch._C" in line and "_set_grad_enabled" not in line:
                found.append(f"{path.name}:{n}: {line.strip()}")
    assert found == []


def test_reading_a_run_does_not_import_torch(tmp_path: Path) -> None:
    make = (
        "import torch, backprobe\n"
        "m = torch.nn.Linear(2, 1)\n"
        "with backprobe.trace(m) as t:\n"
        "    m(torch.ones(3, 2)).log().sum().backward()\n"
        f"t.save({str(tmp_path / 'run')!r})\n"
    )
    subprocess.run([sys.executable, "-c", make], check=True, timeout=120)
    read = (
        "import sys, backprobe\n"
        f"t = backprobe.open({str(tmp_path / 'run')!r})\n"
        "[r.site for s in t.steps for b in s.backwards for r in b.nodes], t.findings, t['weight'].grad_norm\n"
        "from backprobe.commands import main\n"
        f"assert main(['show', {str(tmp_path / 'run')!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "1 backward call" in done.stdout


def test_public_names_are_the_ones_listed() -> None:
    assert sorted(backprobe.__all__) == backprobe.__all__
    for name in backprobe.__all__:
        assert getattr(backprobe, name) is not None
    assert set(backprobe.__all__) <= set(dir(backprobe))
