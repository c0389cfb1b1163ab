"""The rule of imports (ARCHITECTURE.md), and what works without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import backprobe

ROOT = Path(backprobe.__file__).parent
#: The rooms that import torch; all others work where it is not installed.
PRODUCERS = {
    "torchside",
    "source",
    "kept",
    "observe",
    "activations",
    "derivatives",
    "editing",
    "engine",
    "saved_tensors",
}
#: Room -> the rooms that it may import from. A room is a folder; a file that lies beside folders is one of its own.
ALLOWED = {
    "errors": set(),
    "select": {"errors"},
    "records": set(),
    "torch_texts": set(),
    "graphs": {"errors", "select", "records"},
    "packed": {"graphs", "records"},
    "findings": {"records", "graphs", "traced"},
    "traced": {"records", "findings", "store", "report"},
    "store": {"errors", "records", "packed", "traced"},
    "view": {"records", "findings", "traced"},
    "report": {"errors", "records", "packed", "store", "traced", "findings", "view"},
    "torchside": {"records", "graphs"},
    "source": {"records"},
    "kept": {"records", "graphs", "torchside", "source"},
    "activations": {"errors", "select", "records", "torchside", "source", "observe.forward"},
    "derivatives": {"errors", "activations", "torchside"},
    "editing": {"errors", "select", "records", "torchside", "source"},
    "engine": {"errors", "select", "records", "graphs", "torchside", "source", "observe"},
    "saved_tensors": {"errors", "select", "records", "graphs", "torchside", "source", "kept"},
    "observe": {"errors", "select", "records", "graphs", "packed", "store", "traced", "torchside", "source", "kept"},
    "commands": {
        "errors",
        "records",
        "findings",
        "store",
        "traced",
        "view",
        "report",
        "observe",
        "engine",
        "torchside",
    },
    "__init__": {"errors", "records", "store", "traced", *PRODUCERS},
    "__main__": {"commands"},
}
#: Rooms of words and no more, which every other may read.
WORDS = {"torch_texts"}
#: The rooms of ``observe``, from the lowest up: each imports from those before it only.
FLOORS = (
    "observe.forward",
    "observe.schedule",
    "observe.backward",
    "observe.trackers",
    "observe.session",
    "observe.sinks",
    "observe.processes",
    "observe.launch",
    "observe.live",
    "observe.benching",
    "observe.snapshots",
)


#: Arrows that do not follow the picture yet: they go when those who look for one thing plug into the session.
UNDER_WAY = {
    "observe.asked imports",
    "observe.forward.regions imports observe.trackers",
    "observe.schedule.detail imports observe.backward",
    "observe.backward.outcome imports observe.trackers",
    "observe.backward.special imports observe.trackers",
    "observe.backward.calls imports observe.trackers",
    "observe.trackers.ranks imports observe.processes",
    "observe.session imports observe.asked",
}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_of(path) for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples")}


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "observe" else 1])


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, and ``!name`` for a package of others."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*parts[: len(parts) - node.level], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                yield full if full in MODULES else ".".join(base)
        elif isinstance(node, ast.ImportFrom):
            yield "!" + (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield "!" + alias.name.split(".")[0]


def may(room: str, target: str) -> bool:
    """Whether a file in `room` may import from the room `target`."""
    if room == target:
        return True
    top, wanted = room.split(".")[0], target.split(".")[0]
    if top == wanted == "observe":
        return room in FLOORS and target in FLOORS and FLOORS.index(target) < FLOORS.index(room)
    return wanted in WORDS or wanted in ALLOWED[top] or target in ALLOWED[top]


def test_imports_follow_the_picture() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "examples"):
            continue
        room = room_of(module_of(path))
        for target in imports(path):
            if target.startswith("!"):
                if target == "!torch" and room.split(".")[0] not in PRODUCERS:
                    wrong.append(f"{module_of(path)} imports torch")
            elif target and not may(room, room_of(target)):
                wrong.append(f"{module_of(path)} imports {target}")
    assert [one for one in wrong if not any(one.startswith(known) for known in UNDER_WAY)] == []


def test_every_room_has_a_line_that_says_its_one_job() -> None:
    rooms = {path.parent for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples")}
    told = {room: ast.get_docstring(ast.parse((room / "__init__.py").read_text())) for room in rooms}
    assert [str(room) for room, words in told.items() if not words] == []


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
