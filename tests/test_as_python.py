"""``backprobe run ARGUMENTS`` does what ``python ARGUMENTS`` does, for scripts that do not import torch.

Each case is a form of a script (a file, ``-m``, ``-c``, ...), what it does, options of the interpreter and variables of
its environment, all chosen at random. Both commands get their own copy of a folder, at the same path, and the test
compares standard output, standard error, exit code, and the files that remain.
"""

from __future__ import annotations

import itertools
import os
import py_compile
import random
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import backprobe
from backprobe.commands import parser

ROOT = Path(backprobe.__file__).parents[1]
#: What a script sees of the world. What differs by nature is left out: ``sys.orig_argv``, the finder that waits for
#: torch, the handler of SIGTERM, and modules that are loaded already.
WORLD = '''
"""A docstring."""
import sys
import __main__
x: int = 1
print(__name__, sys.argv, sys.path, globals().get("__file__"), globals().get("__cached__"), __package__)
print(getattr(__spec__, "name", __spec__), getattr(__spec__, "origin", ""), getattr(__spec__, "cached", ""))
print(type(__loader__), repr(__loader__)[:40], __doc__, list(globals()), __builtins__, __main__.__dict__ is globals())
print(globals().get("__annotations__"), sys.flags, sys.warnoptions, sys._xoptions)
import gc, os, signal, threading, warnings
print(warnings.filters, [one for one in sys.meta_path if type(one).__name__ != "TorchImport"], len(sys.path_hooks))
for stream in sys.stdin, sys.stdout, sys.stderr:
    print(stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.newlines)
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile())
print([signal.getsignal(one) for one in signal.valid_signals() if one != signal.SIGTERM], os.getcwd())
print(threading.active_count(), threading.current_thread().name, gc.isenabled(), gc.get_threshold())
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.dont_write_bytecode, "torch" in sys.modules)
print(sorted(one for one in os.environ.items() if one[0] != "_"), os.environ.get("PYTHONPATH"))
'''
#: Name -> what a script does.
BODIES = {
    "looks": WORLD,
    "exits with nothing": "import sys; sys.exit()",
    "exits with a number": "import sys; sys.exit(7)",
    "exits with a large number": "import sys; sys.exit(2 ** 32 + 5)",
    "exits with a huge number": "import sys; sys.exit(10 ** 30)",
    "exits with a negative number": "import sys; sys.exit(-3)",
    "exits with truth": "import sys; sys.exit(True)",
    "exits with a text": "import sys; print('out', end=''); sys.exit('no data: \\u00e9')",
    "exits with an object": "import sys; sys.exit([1, None])",
    "exits with what has no text": "class Bad:\n    def __str__(self): raise ValueError\nraise SystemExit(Bad())",
    "exits with two arguments": "raise SystemExit(3, 4)",
    "exits by a subclass": "class Done(SystemExit): pass\nraise Done(9)",
    "exits at once": "import os; print('lost'); print('kept', flush=True); os._exit(4)",
    "raises": "print('before')\ndef inner():\n    raise ValueError('mine')\ninner()",
    "raises with a cause": (
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('outer') from error\n"
    ),
    "raises with a context": "try:\n    1 / 0\nfinally:\n    [][1]",
    "raises a class of its own": "class Mine(Exception):\n    def __str__(self): return 'said'\nraise Mine",
    "raises what has no text": "class Mine(Exception):\n    def __str__(self): raise ValueError\nraise Mine",
    "raises a group": "raise ExceptionGroup('several', [ValueError(1), KeyError('k')])",
    "raises for the generator": "raise GeneratorExit",
    "recurses": "def f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as error:\n    print(error)",
    "is interrupted": "raise KeyboardInterrupt('stop')",
    "interrupts itself": (
        "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGINT)\nprint('after')"
    ),
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('after')",
    # What faulthandler writes has every frame, those of the command too.
    "aborts": "import faulthandler, os\nfaulthandler.disable()\nos.abort()",
    "has a hook for errors": (
        "import sys, traceback\ndef hook(*error):\n"
        "    print('hook', [one.name for one in traceback.extract_tb(error[2])], sys.exc_info()[0])\n"
        "sys.excepthook = hook\ndef f(): 1 / 0\nf()\n"
    ),
    "has a hook that fails": "import sys\ndef hook(*error):\n    [][0]\nsys.excepthook = hook\n1 / 0",
    "has a hook that exits": "import sys\nsys.excepthook = lambda *error: sys.exit(6)\n1 / 0",
    "says goodbye": (
        "import atexit, sys\nclass Loud:\n    def __del__(self): print('gone')\nloud = Loud()\n"
        "atexit.register(lambda: print('exit', list(globals()), getattr(sys, 'last_value', None)))\nprint('over')"
    ),
    "says goodbye after an error": (
        "import atexit, sys\n"
        "atexit.register(lambda: print(list(globals()), sys.last_type, sys.last_value, sys.last_traceback.tb_lineno))\n"
        "1 / 0"
    ),
    "fails while it says goodbye": "import atexit\ndef leave(): 1 / 0\natexit.register(leave)",
    "leaves a thread": (
        "import threading, time\ndef work():\n    threading.main_thread().join()\n    print(__name__)\n"
        "threading.Thread(target=work).start()\nprint('over')"
    ),
    "fails in a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()",
    "warns": (
        "import warnings\nfor kind in (DeprecationWarning, PendingDeprecationWarning, UserWarning, ImportWarning, "
        "BytesWarning, ResourceWarning):\n    warnings.warn('said', kind)\n"
    ),
    "warns while it is compiled": "print('\\d', 1 is 1)",
    "compares bytes and text": "print(b'a' == 'a', str(b'a'))",
    "asserts": "assert __debug__ is False, 'with a message'\nprint(__debug__)",
    "removes itself": (
        "import os\nname = globals().get('__file__')\nif name and os.path.isfile(name):\n    os.unlink(name)\n"
        "def f():\n    raise ValueError('after')\nf()"
    ),
    "goes elsewhere": "import os\nos.chdir('/')\nimport neighbour\nprint(neighbour.__file__, os.getcwd())\n1 / 0",
    "imports its neighbour": "import neighbour\nprint(neighbour.__file__, neighbour.__cached__)",
    "has modules named as others": "import statistics, shlex\nprint(statistics.mine, shlex.mine)",
    "cannot import": "from neighbour import nothing",
    "imports what does not compile": "import wrong",
    "reads": "import sys\nprint(repr(sys.stdin.read()))",
    "writes without an end": "import sys\nsys.stdout.write('no end')\nsys.stderr.write('no end')",
    "writes out of order": "import os, sys\nprint('first')\nos.write(1, b'second\\n')\nos.write(2, b'third\\n')\n1 / 0",
    "closes its output": "import sys\nsys.stdout.close()",
    "closes its errors": "import sys\nsys.stderr.close()\nsys.exit('nobody reads')",
    "has no errors": "import sys\nsys.stderr = None\nraise ValueError('nobody reads')",
    "prints what cannot be encoded": "print('\\ud800')",
    "has a large number": "print(len(str(10 ** 5000)))",
    "changes its world": "import sys\nsys.argv[:] = []\ndel sys.path[:]\nsys.modules['__main__'] = None\nprint('over')",
    "forks": "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')",
    "forks and fails": "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: 1 / 0",
    "starts a child": (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.path)']).returncode)"
    ),
    "pickles": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C, C.__module__)",
    "does nothing": "",
}
if sys.version_info >= (3, 12):
    # An error in what becomes of the exit code is left set by the interpreter, and printed at its end or not.
    del BODIES["exits with a huge number"], BODIES["exits with what has no text"]
#: Options of the interpreter, one or more at a time.
FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    *(("-O",), ("-OO",), ("-I",), ("-E",), ("-s",), ("-S",), ("-B",), ("-u",), ("-b",), ("-bb",), ("-q",)),
    *(("-W", "error"), ("-W", "default"), ("-Wignore::DeprecationWarning",), ("-W", "error::UserWarning")),
    *(("-X", "dev"), ("-X", "utf8"), ("-X", "faulthandler"), ("-X", "int_max_str_digits=0")),
    *((("-P",), ("-X", "frozen_modules=off")) if sys.version_info >= (3, 11) else ()),
)
#: Variables of the environment, one or more at a time.
VARIABLES: tuple[dict[str, str], ...] = (
    {},
    *({"PYTHONOPTIMIZE": level} for level in ("1", "2")),
    *({name: "1"} for name in ("PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE")),
    *({name: "1"} for name in ("PYTHONUTF8", "PYTHONFAULTHANDLER", "PYTHONNOUSERSITE")),
    *({"PYTHONWARNINGS": filters} for filters in ("error", "default,ignore::UserWarning")),
    *({"PYTHONHASHSEED": "0"}, {"PYTHONINTMAXSTRDIGITS": "640"}, {"PYTHONSTARTUP": "neighbour.py"}),
    *({"PYTHONIOENCODING": "latin-1:replace"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    *({"PYTHONPATH": path} for path in (":other", "other::", "::")),
)


@dataclass
class Case:
    """A command line without its interpreter, and what it meets."""

    form: str
    body: str
    flags: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " ".join([*self.flags, *(f"{name}={value}" for name, value in self.variables.items())])
        return f"{self.form}, {self.body}, {told}"


Form = Callable[[Path, str], list[str]]


def _file(name: str, said: str | None = None) -> Form:
    def form(folder: Path, text: str) -> list[str]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        return [said.format(folder=folder) if said is not None else name]

    return form


def _bytes(text: bytes) -> Form:
    def form(folder: Path, _: str) -> list[str]:
        (folder / "script.py").write_bytes(text)
        return ["script.py"]

    return form


def _package(*arguments: str, name: str) -> Form:
    def form(folder: Path, text: str) -> list[str]:
        (folder / "pack" / "inner").mkdir(parents=True)
        for one in ("pack/__init__.py", "pack/inner/__init__.py"):
            (folder / one).write_text("import sys\nprint('package', sys.argv, sys.path[:1])\n")
        (folder / "pack" / name).write_text(text)
        return list(arguments)

    return form


def _linked(folder: Path, text: str) -> list[str]:
    (folder / "deep").mkdir()
    (folder / "deep" / "script.py").write_text(text)
    (folder / "link.py").symlink_to("deep/script.py")
    return ["link.py"]


def _zipped(folder: Path, text: str) -> list[str]:
    with zipfile.ZipFile(folder / "app.zip", "w") as archive:
        archive.writestr("__main__.py", text)
    return ["app.zip"]


def _folder(folder: Path, text: str) -> list[str]:
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(text)
    return ["./app"]


def _compiled(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    py_compile.compile(str(folder / "script.py"), cfile=str(folder / "script.pyc"), doraise=True)
    (folder / "script.py").unlink()
    return ["script.pyc"]


def _empty(folder: Path, _: str) -> list[str]:
    (folder / "empty").mkdir()
    return ["empty"]


def _unreadable(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    (folder / "script.py").chmod(0)
    return ["script.py"]


#: How a script is named.
FORMS: dict[str, Form] = {
    "a file": _file("script.py"),
    "a file from here": _file("script.py", "./script.py"),
    "a file by a way around": _file("sub/script.py", "./sub/../sub//script.py"),
    "a file by its whole path": _file("script.py", "{folder}/script.py"),
    "a file below": _file("sub/script.py"),
    "a file with no ending": _file("script"),
    "a file with spaces": _file("my script.py"),
    "a link": _linked,
    "a folder": _folder,
    "an archive": _zipped,
    "a compiled file": _compiled,
    "a module": lambda folder, text: ["-m", _file("script.py")(folder, text)[0][:-3]],
    "a module beside its option": lambda folder, text: ["-m" + _file("script.py")(folder, text)[0][:-3]],
    "a package": _package("-m", "pack", name="__main__.py"),
    "a module in a package": _package("-m", "pack.train", name="train.py"),
    "a package in a package": _package("-m", "pack.inner", name="inner/__main__.py"),
    "a text": lambda folder, text: ["-c", text or "0"],
    "a text beside its option": lambda folder, text: ["-c" + (text or "0")],
    "standard input": lambda folder, text: ["-"],
    # These do not get as far as the script.
    "no file": lambda folder, _: ["gone.py"],
    "no module": lambda folder, _: ["-m", "gone"],
    "no module in a package": _package("-m", "pack.gone", name="train.py"),
    "no package": lambda folder, _: ["-m", "gone.train"],
    "no module to run": _package("-m", "pack", name="train.py"),
    "a package that fails": lambda folder, _: ["-m", "wrong"],
    "a folder without a script": _empty,
    "a file that cannot be read": _unreadable,
    "bytes of another encoding": _bytes(b"x = 1\nprint('\xe9')\n"),
    "bytes that are not their encoding": _bytes(b"# coding: utf-8\nprint('\xe9')\n"),
    "an encoding that is not": _bytes(b"# coding: nothing\nprint(1)\n"),
    "an encoding that fits": _bytes(b"# coding: latin-1\nprint(ascii('\xe9'))\n"),
    "two encodings": _bytes(b"\xef\xbb\xbf# coding: latin-1\nprint(1)\n"),
    "a mark in front": _bytes(b"\xef\xbb\xbfprint(__file__)\n1 / 0\n"),
    "bytes of value 0": _bytes(b"x = 1\nprint('\0')\n"),
    "ends of lines of Windows": _bytes(b"x = '''\r\n'''\r\nprint(repr(x))\r\n1 / 0"),
    "a syntax error": _bytes(b"x = 1\nfor x in\n"),
    "a syntax error in a text": lambda folder, _: ["-c", "x = (1,\n\ny = 'a"],
    "a wrong indentation": _bytes(b"if True:\n    x = 1\n  y = 2\n"),
    "tabs and spaces": _bytes(b"if True:\n        x = 1\n\ty = 2\n"),
    "a return outside": _bytes(b"return 1\n"),
    "a future that is not": _bytes(b"from __future__ import nothing\n"),
    "a bracket that stays open": _bytes(b"x = {1:\n\n\n"),
}
#: Forms in which the body counts.
WITH_BODY = list(itertools.takewhile(lambda name: name != "no file", FORMS))
#: Arguments of the script: none of them is an option of backprobe's.
ARGUMENTS = ["--quiet", "-m", "--", "x y", "", "--out=z", "-c", "-"]


def prepared(case: Case, folder: Path) -> tuple[list[str], str]:
    """The arguments of a case, its files in `folder`, and what comes on standard input."""
    for name in ("neighbour", "statistics", "shlex"):
        (folder / f"{name}.py").write_text("mine = 1\n")
        if case.form == "a file below" or case.form == "a file by a way around":
            (folder / "sub").mkdir(exist_ok=True)
            (folder / "sub" / f"{name}.py").write_text("mine = 2\n")
    (folder / "wrong.py").write_text("x = 1\ny = = 2\n")
    (folder / "other").mkdir()
    text = textwrap.dedent(BODIES[case.body])
    return FORMS[case.form](folder, text), text if case.form == "standard input" else "a line\n"


def ended(case: Case, folder: Path, command: list[str], put: Path) -> tuple[str, str, int, list[str]]:
    """Run `command` in its own copy of the folder, moved to `put`; return its output, errors, exit code and files."""
    folder.mkdir()
    folder.rename(put)
    arguments, given = prepared(case, put)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    env.update(case.variables)
    paths = [one for one in sys.path if one.endswith("site-packages")] + [str(ROOT)]
    if "-S" in case.flags:
        env["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [env.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *case.flags, *command, *arguments, *ARGUMENTS],
        cwd=put,
        env=env,
        input=given.encode(),
        capture_output=True,
        timeout=600,
    )
    left = sorted(str(path.relative_to(put)) for path in put.rglob("*"))
    shutil.rmtree(put)
    out, err = (
        re.sub(rb"0x[0-9a-f]+", b"0x0", stream).decode(errors="replace") for stream in (done.stdout, done.stderr)
    )
    return out, err, done.returncode, left


def compare(case: Case, tmp_path: Path, command: Sequence[str] = ("-m", "backprobe")) -> None:
    if case.form == "a file that cannot be read" and os.access(__file__, os.W_OK) and os.getuid() == 0:
        pytest.skip("nothing is unreadable for root")
    put = tmp_path / "put"
    alone = ended(case, tmp_path / "a", [], put)
    watched = ended(case, tmp_path / "b", [*command, "run", "--no-keep", "--quiet"], put)
    assert watched == alone, str(case)


def covering() -> Iterator[Case]:
    """Each form, each body, each option and each variable once."""
    draw = random.Random(20)
    forms, flags, variables = list(FORMS), list(FLAGS), list(VARIABLES)
    bodies = list(BODIES)
    for several in (forms, flags, variables, bodies):
        draw.shuffle(several)
    waiting = iter(bodies)
    for at, form in enumerate(forms):
        body = next(waiting, "looks") if form in WITH_BODY else "looks"
        yield Case(form, body, *_apart(flags[at % len(flags)], variables[at % len(variables)]))
    for at, body in enumerate(waiting):
        yield Case("a file", body, *_apart(flags[-at % len(flags)], variables[at % len(variables)]))


def drawn(count: int) -> Iterator[Case]:
    draw = random.Random(2026)
    for _ in range(count):
        form = draw.choice(WITH_BODY if draw.random() < 0.8 else list(FORMS))
        flags = sum(draw.sample(FLAGS, draw.choice((0, 1, 1, 2, 3))), ())
        variables: dict[str, str] = {}
        for one in draw.sample(VARIABLES, draw.choice((0, 1, 1, 2, 3))):
            variables.update(one)
        yield Case(form, draw.choice(["looks", *BODIES]), *_apart(flags, variables))


def _apart(flags: tuple[str, ...], variables: dict[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Without what keeps backprobe itself from being found: no packages, and no path to them."""
    if "-S" in flags and {"-I", "-E"} & {*flags}:
        flags = tuple(one for one in flags if one != "-S")
    return flags, variables


@pytest.mark.parametrize("case", list(covering())[::3], ids=str)
def test_as_python(case: Case, tmp_path: Path) -> None:
    compare(case, tmp_path)


def test_the_command_by_its_name(tmp_path: Path) -> None:
    """As ``python -m backprobe``; Python puts another folder into the path for it."""
    command = tmp_path / "bin" / "backprobe"
    command.parent.mkdir()
    command.write_text("import sys\nfrom backprobe.__main__ import main\nsys.exit(main())\n")
    for flags in ((), ("-P",) if sys.version_info >= (3, 11) else ("-I",)):
        compare(Case("a file below", "looks", flags), tmp_path, [str(command)])


@pytest.mark.slow
@pytest.mark.parametrize("case", [one for at, one in enumerate(covering()) if at % 3] + list(drawn(80)), ids=str)
def test_as_python_in_all_ways(case: Case, tmp_path: Path) -> None:
    compare(case, tmp_path)


def test_every_command_without_docstrings_and_asserts(tmp_path: Path) -> None:
    """``-OO`` takes docstrings away: no command may need one."""
    script = textwrap.dedent(
        """
        import contextlib, io, sys
        assert False, "asserts are on"
        from backprobe.commands import main

        def run(*words):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    code = main(list(words))
                except SystemExit as error:
                    code = error.code
            if code or not out.getvalue().strip():
                sys.exit(f"{words}: {code}: {out.getvalue()}")

        names = sys.argv[1:]
        for name in names:
            run(name, "--help")
        for words in (
            ["explain"], ["explain", "nonfinite-backward"], ["schema"], ["completion", "bash"], ["runs", "."],
            ["show", "kept"], ["show", "--json", "kept"], ["report", "-o", "page.html", "kept"],
            ["top", "--once", "kept"], ["compare", "kept", "kept"],
        ):
            run(*words)
        print("all", len(names))
        """
    )
    train = "import torch\nx = torch.zeros(2, requires_grad=True)\nfor _ in range(2): x.sqrt().sum().backward()\n"
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "all.py").write_text(script)
    under = [sys.executable, "-OO"]
    made = subprocess.run(
        [*under, "-m", "backprobe", "run", "--record-ops", "--out", "kept", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0 and "nonfinite-backward" in made.stderr, made.stderr
    choices = next(one.choices for one in parser()._actions if isinstance(one.choices, dict))
    done = subprocess.run([*under, "all.py", *choices], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"all {len(choices)}\n", done.stdout + done.stderr
    assert len(choices) >= 15
