"""Runs the script as ``__main__``, exactly as ``python`` does.

The script is a file, a module, code or standard input.

No torch. ``tests/test_as_python.py`` compares this with the interpreter.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import io
import os
import pkgutil
import runpy
import stat
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Literal

from ..basics.errors import BackprobeError
from .shadows import Shadows

#: How a script is given: as a file, with ``-m``, with ``-c``, or as ``-``.
How = Literal["file", "module", "code", "stdin"]


class CannotStart(BackprobeError):
    """Raised if Python itself would not start this script.

    :ivar text: what Python would write to standard error.
    :ivar code: the exit code.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text, self.code = text, code


@dataclass(frozen=True)
class Script:
    """A script as given on the command line, and its arguments."""

    how: How
    name: str
    args: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """``sys.argv`` at the start of the script."""
        first = {"file": self.name, "module": "-m", "code": "-c", "stdin": "-"}[self.how]
        return [first, *self.args]


class Program:
    """A script that is about to run.

    Note [The main module outlives the script]: the module stays ``__main__`` after the script has ended, as it does
    under Python itself. Code that runs later (atexit handlers, remaining threads, ``__del__`` of its globals) finds the
    module and can pickle from it.

    :raises CannotStart: there is no such file, or it cannot be read.
    """

    def __init__(self, script: Script) -> None:
        """Find and read the script, without running anything."""
        self.script = script
        self._file, self._text = "", b""
        #: Whether the script is a folder or an archive that contains ``__main__``.
        self._is_package = False
        if script.how == "file":
            self._file = _absolute(script.name)
            self._is_package = pkgutil.get_importer(self._file) is not None
            if not self._is_package:
                self._text = _read(self._file)

    @property
    def folder(self) -> str:
        """The folder whose code counts as the user's even if it is installed. Call it after ``enter``."""
        if self.script.how == "module":
            return _folder_of_module(self.script.name) or os.getcwd()
        if self.script.how == "file":
            return os.path.abspath(self._file if os.path.isdir(self._file) else os.path.dirname(self._file))
        return os.getcwd()

    def enter(self) -> None:
        """Prepare the interpreter for the user's script: set ``sys.argv``, ``sys.path`` and a new module
        ``__main__``.
        """
        safe = getattr(sys.flags, "safe_path", bool(sys.flags.isolated))
        if not safe and sys.path[:1] == [os.path.dirname(os.path.realpath(sys.argv[0]))]:
            del sys.path[0]  # the entry that Python added for our command; ``__main__.py`` has removed its own
        if self._is_package:
            sys.path.insert(0, self._file)
        elif not safe:
            sys.path.insert(0, self._first_in_path())
        sys.argv[:] = self.script.arguments
        self.shadows = Shadows()
        main = ModuleType("__main__")
        main.__dict__.update(__loader__=BuiltinImporter)
        if sys.version_info < (3, 14):
            main.__dict__.update(__annotations__={})
        main.__dict__.update(__builtins__=builtins)
        sys.modules["__main__"] = main

    def _first_in_path(self) -> str:
        """Return the entry that Python puts first into ``sys.path`` for such a script."""
        if self.script.how == "module":
            return os.getcwd()
        return os.path.dirname(os.path.realpath(self._file)) if self.script.how == "file" else ""

    def run(self) -> None:
        """Run the program to its end, after ``enter``. Its exceptions are raised."""
        if self.script.how == "module":
            runpy._run_module_as_main(self.script.name)  # type: ignore[attr-defined]
        elif self._is_package:
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        elif self.script.how == "code":
            exec(_compiled_text(self.script.name), sys.modules["__main__"].__dict__)
        else:
            self._run_file()

    def _run_file(self) -> None:
        """Execute the script's file, or standard input, in ``__main__``; then flush its output as Python does."""
        main = sys.modules["__main__"].__dict__
        if self.script.how == "stdin":
            self._file = "<stdin>"
            main.update(__file__=self._file, __cached__=None)
            self._text = sys.stdin.buffer.read()
            code = compiled_file(self._text, self._file)
        elif self._file.endswith(".pyc"):
            main.update(__file__=self._file, __cached__=None)
            main["__loader__"] = loader = SourcelessFileLoader("__main__", self._file)
            compiled = loader.get_code("__main__")
            assert compiled is not None
            code = compiled
        else:
            main.update(__file__=self._file, __cached__=None)
            main["__loader__"] = SourceFileLoader("__main__", self._file)
            code = compiled_file(self._text, self._file)
        try:
            exec(code, main)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # closed, or replaced by the script
                    stream.flush()

    @property
    def has_begun(self) -> bool:
        """Whether Python has found the code to run."""
        if self.script.how == "module":
            return sys.argv[:1] != ["-m"]
        return not self._is_package or "__file__" in sys.modules["__main__"].__dict__

    def leave(self) -> None:
        """Remove ``__file__`` and ``__cached__`` from ``__main__`` after the script has ended, as Python does."""
        if self.script.how in ("file", "stdin") and not self._is_package:
            main = sys.modules.get("__main__")
            for name in ("__file__", "__cached__"):
                getattr(main, "__dict__", {}).pop(name, None)


def compiled_file(text: bytes, file: str) -> CodeType:
    """Return the code of a file with that text, or raise the error that Python has for such a script.

    The errors of ``compile`` differ if the text does not match its encoding, or contains null bytes.
    """
    try:
        return compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        failed = error
    _parse_as_script(text, file)  # outside of the handler, so that its error has no context
    raise failed


def _parse_as_script(text: bytes, file: str) -> None:
    """Have the interpreter parse the text as a script on its command line.

    :raises SyntaxError: with the interpreter's message and position.
    """
    try:
        import ctypes

        run, main = ctypes.pythonapi.PyRun_FileExFlags, sys.modules["__main__"].__dict__
        fdopen = ctypes.CDLL(None).fdopen
    except (ImportError, AttributeError, OSError):
        return
    fdopen.argtypes, fdopen.restype = [ctypes.c_int, ctypes.c_char_p], ctypes.c_void_p
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.py_object, ctypes.py_object]
    run.argtypes = [*run.argtypes, ctypes.c_int, ctypes.c_void_p]
    run.restype = ctypes.py_object
    with tempfile.TemporaryFile() as copy:
        copy.write(text)
        copy.seek(0)
        stream = fdopen(os.dup(copy.fileno()), b"rb")
        if stream:
            whole, close = 257, 1  # Py_file_input
            run(stream, os.fsencode(file), whole, main, main, close, None)


def _compiled_text(text: str) -> CodeType:
    """Return the code of a script given with ``-c``, compiled as this version of Python does."""
    if sys.version_info >= (3, 14):
        import textwrap

        text = textwrap.dedent(text)
    code = compile(text, "<string>", "exec", dont_inherit=True)
    if sys.version_info >= (3, 13):
        import linecache

        linecache._register_code(code, text, "<string>")  # type: ignore[attr-defined]
    return code


def _absolute(name: str) -> str:
    """Return `name` as Python makes it absolute, without normalising it."""
    return name if os.path.isabs(name) else os.getcwd() + os.sep + name


def _read(file: str) -> bytes:
    """Return the content of a script's file.

    :raises CannotStart: it is a directory, or cannot be read.
    """
    try:
        if stat.S_ISDIR(os.stat(file).st_mode):
            raise CannotStart(f"{python()}: {file!r} is a directory, cannot continue", 1)
        with io.open_code(file) as opened:
            return opened.read()
    except OSError as error:
        text = f"{python()}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}"
        raise CannotStart(text, 2) from None


def python() -> str:
    """Return the interpreter as it was called."""
    return sys.orig_argv[0] if sys.orig_argv else sys.executable


def _folder_of_module(name: str) -> str | None:
    """Return the folder of a module's file, without importing its packages."""
    top, *rest = name.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        return None
    if not spec.submodule_search_locations:
        return os.path.dirname(os.path.abspath(str(spec.origin)))
    folder = Path(next(iter(spec.submodule_search_locations)), *rest)
    return str(folder if folder.is_dir() else folder.parent)
