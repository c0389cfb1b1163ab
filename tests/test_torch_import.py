"""Watching starts when the script imports torch, and the script cannot notice it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import backprobe

BOOTSTRAP = Path(backprobe.__file__).parent / "observe" / "processes" / "bootstrap"
#: A package called torch that fails to import while a file is there, and takes its time.
STAND_IN = {
    "torch/__init__.py": (
        "import os\n"
        "from torch import early\n"
        "if os.path.exists('broken'):\n    raise OSError('libtorch is missing')\n"
        "import torch.nn\n"
        "done = True\n"
    ),
    "torch/early.py": "",
    "torch/nn.py": "",
    "library.py": "def train():\n    import torch.nn\n    return torch.nn\n",
}
#: Name -> how a script may import torch; ``import_torch`` in it is what does.
WAYS = {
    "plain": "import torch",
    "a module inside": "import torch.nn",
    "a name": "from torch import nn",
    "by name": "import importlib; importlib.import_module('torch.nn')",
    "in a library": "import library; library.train()",
    "in a thread": "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join()",
    "after a look whether it is there": "import importlib.util as u; s = u.find_spec('torch'); import torch",
    "through a finder of the script's own": (
        "from importlib.machinery import PathFinder\n"
        "class Mine:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        return PathFinder.find_spec(name, path) if name == 'torch' else None\n"
        "sys.meta_path.insert(0, Mine)\n"
        "import torch\n"
        "sys.meta_path.remove(Mine)\n"
    ),
    "again after it has failed": (
        "open('broken', 'w').close()\n"
        "for _ in range(2):\n"
        "    try:\n        import torch.nn\n"
        "    except OSError:\n        print(traceback.format_exc(), 'torch' in sys.modules)\n"
        "os.unlink('broken')\n"
        "import torch\n"
    ),
}
#: Prints all that a script can see of how torch was imported.
LOOKS = """
import os, sys, traceback
{before}
meta, hooks = list(sys.meta_path), list(sys.path_hooks)
{way}
import torch
print(calls)
assert hook not in sys.meta_path and [one for one in meta if one is not hook] == sys.meta_path
print([getattr(one, "__name__", type(one).__name__) for one in sys.meta_path], len(sys.path_hooks))
print(torch.done, type(torch.__spec__), type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)
print(torch.__spec__, vars(torch.__spec__).keys(), [name for name in sys.modules if name.startswith("torch")])
"""


def looked(tmp_path: Path, way: str, watched: bool) -> str:
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = "calls, hook = ['torch is there: True'], None\n"
    if watched:
        before = (
            f"sys.path.insert(0, {str(BOOTSTRAP)!r})\n"
            "from backprobe_torch_import import TorchImport\n"
            "del sys.path[0], sys.modules['backprobe_torch_import']\n"
            "calls = []\n"
            "hook = TorchImport(lambda: calls.append(f'torch is there: {sys.modules[\"torch\"].done}'))\n"
            "hook.start()\n"
        )
    script = tmp_path / "script.py"
    script.write_text("exec(open('looks').read())")
    (tmp_path / "looks").write_text(LOOKS.format(before=before, way=WAYS[way]))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    return done.stderr + re.sub(r"line \d+|0x[0-9a-f]+", "N", done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_the_import_of_torch_is_as_it_is_alone(way: str, tmp_path: Path) -> None:
    alone, watched = (looked(tmp_path, way, watched) for watched in (False, True))
    assert "torch is there: True" in alone
    assert watched == alone
    assert "backprobe" not in watched and ("libtorch is missing" in watched) == (way == "again after it has failed")


def run(folder: Path, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "backprobe", "run", "--no-keep", "--findings", "found.json", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, **more)  # type: ignore[call-overload]


def found(folder: Path) -> dict:
    return json.loads((folder / "found.json").read_text())


def test_a_script_without_torch(tmp_path: Path) -> None:
    """The run does not wait for torch, reports that it was not imported, and writes a file of findings."""
    (tmp_path / "plain.py").write_text("import os, sys\nos.chdir('/')\nprint('torch' in sys.modules)\nsys.exit(4)\n")
    done = run(tmp_path, "plain.py")
    assert (done.returncode, done.stdout) == (4, "False\n")
    assert (
        "The script did not import torch: there was nothing to watch." not in done.stderr
    )  # it failed, and the report says that instead
    assert "the script exited with 4" in done.stderr.replace("\n", " ")
    (tmp_path / "plain.py").write_text("print('over')\n")
    done = run(tmp_path, "--fail-on", "warning", "plain.py")
    assert done.returncode == 0 and "The script did not import torch: there was nothing to watch.\n" in done.stderr
    assert found(tmp_path)["findings"] == [] and found(tmp_path)["unseen"] == []
    assert run(tmp_path, "--quiet", "plain.py").stderr == ""


@pytest.mark.parametrize("command", ["run", "debug", "bench"])
def test_nothing_of_ours_imports_torch_first(command: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print([n for n in ('torch', 'numpy') if n in sys.modules])")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "backprobe", command, "plain.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "[]\n"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "backprobe.commands" in imported and not {"torch", "numpy"} & imported


def test_a_script_that_is_terminated_before_it_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    assert run(tmp_path, "plain.py").returncode == -signal.SIGTERM
    (process,) = found(tmp_path)["ranks"]
    assert found(tmp_path)["findings"] == [] and process["signal"] == signal.SIGTERM


def test_a_rank_that_fails_before_it_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nif os.environ['RANK'] == '1':\n    import not_installed_here\n")
    folder = tmp_path / "run"
    for rank in ("0", "1"):
        env = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        command = [sys.executable, "-m", "backprobe", "run", "--out", str(folder), "train.py"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == int(rank), done.stderr
    assert "ModuleNotFoundError: No module named 'not_installed_here'" in done.stderr
    ranks = json.loads((folder / "findings.json").read_text())["ranks"]
    assert [(one["rank"], one["ended"]) for one in ranks] == [(0, "finished"), (1, "failed")]
    assert "not_installed_here" in ranks[1]["error"]


#: What is wrong in each: the logarithm of a negative number.
BAD = "    x = torch.zeros(3, requires_grad=True)\n    (x - 1).log().sum().backward()\n"
#: Name -> script that imports torch in its own way; each has one finding.
SCRIPTS = {
    "variables of the environment count": (
        "import os, sys\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'TorchImport' in [type(one).__name__ for one in sys.meta_path]\n"
        "os.environ['OMP_NUM_THREADS'] = '1' if (os.cpu_count() or 1) > 1 else '2'\n"
        "def train():\n    import torch\n    assert torch.get_num_threads() == int(os.environ['OMP_NUM_THREADS'])\n"
        f"    assert type(torch.__spec__).__mro__[1] is object\n{BAD}"
        "train()\n"
        "assert 'TorchImport' not in [type(one).__name__ for one in sys.meta_path]\n"
    ),
    "another thread imports torch, and the main one trains": (
        "import sys, threading, time\n"
        "thread = threading.Thread(target=__import__, args=('torch',))\n"
        "thread.start()\n"
        "while thread.is_alive(): time.sleep(0.01)\n"
        f"def train():\n    import torch\n{BAD}"
        "train()\n"
    ),
    "another thread imports torch and trains": (
        "import threading\n"
        f"def train():\n    import torch\n{BAD}"
        "thread = threading.Thread(target=train)\n"
        "thread.start()\nthread.join()\n"
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_torch_is_watched_from_its_import_on(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPTS[name])
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = run(tmp_path, "train.py", env=env)
    assert done.returncode == 0, done.stderr
    assert [one["kind"] for one in found(tmp_path)["findings"]] == ["nonfinite-forward"], done.stderr


CHILDREN = f"""
import multiprocessing, os, sys
def work():
    import torch
{BAD}
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(how).Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
    pid = os.fork()
    if not pid:
        work()
        sys.exit(0)
    os.waitpid(pid, 0)
    assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_children_that_import_torch_when_their_parent_has_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CHILDREN)
    done = run(tmp_path, "train.py")
    assert done.returncode == 0, done.stderr
    assert [one["backwards"] for one in found(tmp_path)["ranks"]] == [0, 1, 1, 1, 1] and not found(tmp_path)["unseen"]


@pytest.mark.slow
def test_a_change_that_only_torch_can_refuse_ends_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("try:\n    import torch\nexcept Exception:\n    pass\nprint('went on')\n")
    done = run(tmp_path, "--override", "device=nowhere", "train.py")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("backprobe: nowhere: ")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "found.json").exists()


def test_the_environment_of_children_is_their_own(tmp_path: Path) -> None:
    """Also of one that takes nothing from its environment, and would not take out what is meant for it."""
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\n"
        "code = 'import os, sys; print(dict(os.environ), sys.path, sorted({*sys.modules} - {\"_posixsubprocess\"}))'\n"
        "for flags in ([], ['-E'], ['-S'], ['-I'], ['-P'], ['-E', '-S'], ['-s'], ['-O']):\n"
        "    subprocess.run([sys.executable, *flags, '-c', code], check=sys.version_info >= (3, 11))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["", str(tmp_path)])}
    alone = subprocess.run(
        [sys.executable, "launch.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=env
    )
    watched = run(tmp_path, "launch.py", env=env)
    assert watched.returncode == alone.returncode == 0
    assert watched.stdout.splitlines() == alone.stdout.splitlines()
