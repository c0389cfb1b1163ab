"""A script under the command ends as it does under Python: output, errors, exit code, what runs after its last line."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

#: Name -> script. Each runs alone and under the command.
SCRIPTS = {
    "a checkpoint of a class of the script, saved at exit": """
        import atexit, pickle, sys
        class Config:
            size = 3
        kept = Config()
        atexit.register(lambda: print(pickle.loads(pickle.dumps(kept)).size, sys.modules["__main__"].Config is Config))
        """,
    "globals that say goodbye": """
        import atexit
        class Loud:
            def __del__(self):
                print("gone")
        loud = Loud()
        atexit.register(print, "at exit")
        print("last line")
        """,
    "a thread that outlives the last line": """
        import pickle, threading, time
        class Job: ...
        def work():
            threading.main_thread().join()
            print(type(pickle.loads(pickle.dumps(Job()))).__name__)
        threading.Thread(target=work).start()
        print("over")
        """,
    "what a forked child prints": """
        import os
        print("both")
        pid = os.fork()
        if pid:
            print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            print("child")
        """,
    "a forked child that fails": """
        import os, sys
        pid = os.fork()
        if pid:
            print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            {}["nothing"]
        """,
    "a forked child that leaves with a code": """
        import os, sys
        pid = os.fork()
        if pid:
            print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else:
            sys.exit(7)
        """,
    "a hook for uncaught errors": """
        import sys
        def hook(kind, error, trace):
            frames = []
            while trace:
                frames.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            print("hook", kind.__name__, error, frames)
        sys.excepthook = hook
        def inner():
            raise ValueError("mine")
        inner()
        """,
    "a hook for uncaught errors that leaves": """
        import sys
        sys.excepthook = lambda *_: sys.exit(5)
        1 / 0
        """,
    "an error with a cause and a note": """
        def inner():
            try:
                1 / 0
            except ZeroDivisionError as error:
                new = ValueError("outer")
                new.add_note("said by the script") if hasattr(new, "add_note") else None
                raise new from error
        inner()
        """,
    "an interrupt": """
        import os, signal
        print("before", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        """,
    "an interrupt that is raised": "raise KeyboardInterrupt('stop')",
    "a message for an exit": "import sys; sys.exit('no such data')",
    "an exit with nothing": "import sys; sys.exit()",
    "a syntax error": "print('never')\nfor x in",
    "what a script knows of itself": """
        import __main__, sys
        print(__name__, __file__, sys.argv, __package__, __spec__, __doc__, __main__.__dict__ is globals())
        """,
}


def ended(arguments: list[str], folder: Path) -> tuple[str, str, int]:
    """Standard output, standard error and how it ended."""

    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.stdout, done.stderr, done.returncode


def both(arguments: list[str], folder: Path) -> tuple[tuple[str, str, int], tuple[str, str, int]]:
    alone = ended(arguments, folder)
    return alone, ended(["-m", "backprobe", "run", "--no-keep", "--quiet", *arguments], folder)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_as_it_does_alone(name: str, tmp_path: Path) -> None:
    import textwrap

    (tmp_path / "train.py").write_text("import torch\n" + textwrap.dedent(SCRIPTS[name]))
    alone, watched = both(["train.py", "--epochs", "1"], tmp_path)
    assert watched == alone


@pytest.mark.parametrize("arguments", [["-m", "pack.train", "x"], ["-m", "pack", "x"], ["pack"], ["app.zip", "x"]])
def test_modules_folders_and_archives(arguments: list[str], tmp_path: Path) -> None:
    text = (
        "import atexit, pickle, sys\nfrom pathlib import Path\nclass C: ...\n"
        "names = [Path(a).name for a in sys.argv]\n"
        "print(__name__, Path(__file__).name, __package__, names, getattr(__spec__, 'name', 0))\n"
        "atexit.register(lambda: print(type(pickle.loads(pickle.dumps(C()))).__name__))\n"
    )
    (tmp_path / "pack").mkdir()
    for name in ("__main__", "train"):
        (tmp_path / "pack" / f"{name}.py").write_text(text)
    (tmp_path / "pack" / "__init__.py").write_text("")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", text)
    alone, watched = both(arguments, tmp_path)
    assert watched == alone and "C" in alone[0]


def test_scripts_that_python_cannot_start_give_its_error_and_no_run(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "empty").mkdir()
    for arguments in (["-m", "nothing.here"], ["-m", "pack"], ["empty"], ["gone.py", "x"], ["-m"]):
        alone = ended(arguments, tmp_path)
        watched = ended(["-m", "backprobe", "run", *arguments], tmp_path)
        if arguments != ["-m"]:
            assert watched == alone and watched[2] in (1, 2), arguments
        else:
            assert watched[1].startswith("backprobe: the following arguments are required: script") and watched[2] == 2
        assert not (tmp_path / "backprobe-runs").exists() or not list((tmp_path / "backprobe-runs").iterdir())


def test_a_note_is_added_to_an_uncaught_error_unless_it_is_to_be_quiet(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = x.exp()\ny += 1\ny.sum().backward()\n"
    )
    alone = ended(["train.py"], tmp_path)
    quiet = ended(["-m", "backprobe", "run", "--no-keep", "--quiet", "train.py"], tmp_path)
    loud = ended(["-m", "backprobe", "run", "--no-keep", "train.py"], tmp_path)
    assert quiet == alone
    assert "backprobe: inplace" in loud[1] and loud[2] == 1
