"""The rule of imports (ARCHITECTURE.md), and the modules that work without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import backprobe
from backprobe.ops import rows

ROOT = Path(backprobe.__file__).parent
#: The rooms that import torch; all others work where it is not installed.
PRODUCERS = {
    "torch_internals",
    "source",
    "saved_memory",
    "observe",
    "user_tools",
    "engine",
    "float64",
}
#: Rooms that every other may read; they import nothing of the package.
BASICS = {"basics", "ops", "thresholds"}
#: Room -> the rooms that it may import from. A room is a folder; a file that lies beside folders is one of its own.
ALLOWED = {
    "basics": set(),
    "ops": set(),
    "thresholds": set(),
    "records": set(),
    "graphs": {"records"},
    "comparing": {"records"},
    "plugins": {"records"},
    "tracking": {"records"},
    "traces": {"records", "graphs"},
    "findings": {"records", "graphs", "traces", "plugins"},
    "store": {"records", "graphs", "traces", "findings"},
    "view": {"records", "findings", "traces"},
    "report": {"records", "graphs", "comparing", "traces", "findings", "store", "view"},
    "trace_api": {"records", "traces", "findings", "store", "view", "report"},
    "torch_internals": {"records", "graphs"},
    "source": {"records", "torch_internals"},
    "float64": {"records", "comparing", "torch_internals"},
    "saved_memory": {"records", "graphs", "torch_internals", "source"},
    "engine": {"records", "graphs", "torch_internals", "source", "observe"},
    "user_tools": {"records", "torch_internals", "source"},
    "user_tools.activations": {"observe.forward"},
    "user_tools.derivatives": {"user_tools.activations"},
    "user_tools.saved_hooks": {"graphs", "saved_memory", "observe"},
    "observe": {"records", "graphs", "store", "traces", "torch_internals", "source", "saved_memory"},
    "observe.alarm_dispatcher": {"findings"},
    "observe.live": {"findings", "trace_api"},
    "observe.op_record": {"comparing", "float64"},
    "observe.trackers": {"comparing"},
    "observe.sinks": {"plugins", "tracking", "trace_api"},
    "commands": {
        *("records", "findings", "store", "traces", "view", "report", "trace_api"),
        *("observe", "engine", "float64", "torch_internals", "comparing", "tracking"),
    },
    "integrations": {
        *("commands", "findings", "graphs", "records", "source", "store", "traces", "trace_api", "tracking", "view"),
        "observe",
    },
    "__init__": {"integrations", "records", "trace_api", *PRODUCERS},
    "__main__": {"commands"},
}
#: The rooms of ``observe``, from the lowest up: each imports from those before it only, but for names of types: what
#: an event hands over is made above those who hear of it.
FLOORS = (
    "observe.wall_clock",
    "observe.own_time",
    "observe.faults",
    "observe.tracker",
    "observe.events",
    "observe.recording_state",
    "observe.forward",
    "observe.schedule",
    "observe.backward",
    "observe.statistics",
    "observe.tracker_context",
    "observe.ledger",
    "observe.op_record",
    "observe.trackers",
    "observe.instrumentation",
    "observe.record_delivery",
    "observe.step_controller",
    "observe.run_facts",
    "observe.session",
    "observe.sinks",
    "observe.alarm_functions",
    "observe.alarm_dispatcher",
    "observe.processes",
    "observe.changes",
    "observe.overrides",
    "observe.shadows",
    "observe.program",
    "observe.launch",
    "observe.live",
    "observe.overhead",
    "observe.snapshots",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_of(path) for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples")}


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] in ("observe", "user_tools") else 1])


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of ours that a file imports, ``!name`` for a package of others; and whether it is for types only."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    tree = ast.parse(path.read_text())
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    for_types = {id(n) for block in blocks for n in ast.walk(block)}
    for node in ast.walk(tree):
        typed = id(node) in for_types
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*parts[: len(parts) - node.level], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                yield full if full in MODULES else ".".join(base), typed
        elif isinstance(node, ast.ImportFrom):
            yield "!" + (node.module or "").split(".")[0], typed
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield "!" + alias.name.split(".")[0], typed


def may(room: str, target: str) -> bool:
    """Whether a file in `room` may import from the room `target`."""
    if room == target:
        return True
    top, wanted = room.split(".")[0], target.split(".")[0]
    if top == wanted == "observe":
        return room in FLOORS and target in FLOORS and FLOORS.index(target) < FLOORS.index(room)
    allowed = ALLOWED[top] | ALLOWED.get(room, set())
    return wanted in BASICS or wanted in allowed or target in allowed


def test_imports_follow_the_picture() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        if path.is_relative_to(ROOT / "examples"):
            continue
        room = room_of(module_of(path))
        for target, typed in imports(path):
            if target.startswith("!"):
                if target == "!torch" and room.split(".")[0] not in PRODUCERS:
                    wrong.append(f"{module_of(path)} imports torch")
            elif target and not may(room, room_of(target)) and not (typed and path.is_relative_to(ROOT / "observe")):
                wrong.append(f"{module_of(path)} imports {target}")
    assert wrong == []


def test_every_package_has_a_line_that_states_its_one_job() -> None:
    rooms = {path.parent for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples")}
    told = {room: ast.get_docstring(ast.parse((room / "__init__.py").read_text())) for room in rooms}
    assert [str(room) for room, words in told.items() if not words] == []


#: Folders that may have lists of operators: names as a script spells them, and checks that call what they name.
MAY_LIST_OPERATORS = (ROOT / "ops", ROOT / "source", ROOT / "torch_internals" / "facts", ROOT / "examples")
#: So many names of operators in one place are a list of those with a property, which belongs into the table.
MANY_OPERATORS = 4


def lists_of_operators(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """The words of sets, tuples and lists of texts, and of texts of words, that are operators for the most part."""
    known = {row.name for row in rows()}
    unpacked = {
        id(node)
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple)
        for node in ast.walk(one.value)
    }  # constants for single operators
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, (ast.Set, ast.Tuple, ast.List)):
            words = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
        count = len(known.intersection(words))
        if count >= MANY_OPERATORS and count >= 0.75 * len(words) and id(node) not in unpacked:
            yield node.lineno, words


def test_only_the_table_lists_operators() -> None:
    """A set of operators with a property is a query: ``names_of(lambda row: row.is_total)``."""
    found = [
        (module_of(path), *one)
        for path in ROOT.rglob("*.py")
        if not path.name.startswith("test_") and not any(map(path.is_relative_to, MAY_LIST_OPERATORS))
        for one in lists_of_operators(ast.parse(path.read_text()))
    ]
    assert found == []


def test_lists_of_operators_are_found() -> None:
    for text in ('{"add", "sub", "mul", "div"}', 'names("add sub mul div")', 'x in ("add", "sub", "mul", "div", "y")'):
        assert list(lists_of_operators(ast.parse(text)))
    for text in ('ADD, SUB, MUL, DIV = map(f, ("add", "sub", "mul", "div"))', '{"add", "sub"}', '"add what to mul"'):
        assert not list(lists_of_operators(ast.parse(text)))


def test_reading_a_run_does_not_import_torch(tmp_path: Path) -> None:
    make = (
        "import torch, backprobe\n"
        "m = torch.nn.Linear(2, 1)\n"
        "with backprobe.trace(m) as t:\n"
        "    m(torch.ones(3, 2)).log().sum().backward()\n"
        f"t.save({str(tmp_path / 'run')!r})\n"
    )
    subprocess.run([sys.executable, "-c", make], check=True, timeout=600)
    read = (
        "import sys, backprobe\n"
        f"t = backprobe.load_run({str(tmp_path / 'run')!r})\n"
        "[r.site for s in t.steps for b in s.backwards for r in b.nodes], t.findings, t['weight'].grad_norm\n"
        "from backprobe.commands import main\n"
        f"assert main(['show', {str(tmp_path / 'run')!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert " in 1 step (" in done.stdout


def test_public_names_are_the_ones_listed() -> None:
    assert sorted(backprobe.__all__) == backprobe.__all__
    for name in backprobe.__all__:
        assert getattr(backprobe, name) is not None
    assert set(backprobe.__all__) <= set(dir(backprobe))


def test_no_folders_import_each_other_in_a_circle() -> None:
    """By all imports, those in functions and those for types too."""
    arrows: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        if not path.is_relative_to(ROOT / "examples"):
            room = module_of(path).split(".")[0]
            found = {target.split(".")[0] for target, _ in imports(path) if target and target[0] != "!"}
            arrows.setdefault(room, set()).update(found - {room})
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_no_folder_has_a_circle_of_files() -> None:
    """By what is imported when a file is loaded; in ``engine`` by imports for types and in functions too."""
    circles = []
    for folder in sorted({path.parent for path in ROOT.rglob("*.py") if not path.is_relative_to(ROOT / "examples")}):
        files = {path.stem: ast.parse(path.read_text()) for path in folder.glob("*.py")}
        arrows: dict[str, set[str]] = {name: set() for name in files}
        for name, tree in files.items():
            for node in ast.walk(tree) if folder == ROOT / "engine" else tree.body:
                if isinstance(node, ast.ImportFrom) and node.level == 1:
                    found = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
                    arrows[name].update(one for one in found if one in files)
        try:
            TopologicalSorter(arrows).prepare()
        except CycleError as error:
            circles.append((folder.name, error.args[1]))
    assert circles == []
