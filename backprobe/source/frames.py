"""Determines which line of the user's code is running: the innermost frame outside of libraries."""

from __future__ import annotations

import os
import site as site_packages
import sys
import sysconfig
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

from ..basics.torch_texts import GENERATED
from ..records import Site
from ..torch_internals import code_objects
from ..torch_internals.compilations import FRAME
from ..torch_internals.compiled_regions import generated_from
from .library import Stack
from .module_code import code_of_modules
from .sites import site_at
from .tracebacks import STAND_IN

#: A place in the code as the recorder stores it: cheap to take, turned into a ``Site`` on demand.
CodeLocation = tuple[CodeType, int]


def _library_folders() -> tuple[str, ...]:
    """Return the folders of installed code: the standard library, torch, backprobe and folders of packages.

    Folders of packages are all on ``sys.path``, including those of ``pip install --user`` and of other environments.
    """
    paths = sysconfig.get_paths()
    found = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update(site_packages.getsitepackages() if hasattr(site_packages, "getsitepackages") else ())
    found.update(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
    found.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found.add(os.path.dirname(code_objects.TORCH))
    return tuple(os.path.realpath(p) + os.sep for p in found)


def variables(frame: FrameType) -> dict[str, Any]:
    """Return the local variables of `frame`, by name.

    Note [Reading variables]: Up to Python 3.12 reading ``f_locals`` of a function's frame leaves a copy of its
    variables on the frame, which keeps tensors and graphs alive after the function has released them. The copy is
    emptied, unless other code holds it (the function called ``locals()``), or a profiler or debugger written in Python
    is active: Python writes the copy back when that returns, and makes one for each of its calls anyway.
    """
    local = frame.f_locals
    found = dict(local)
    if type(local) is dict and frame.f_code.co_flags & CO_OPTIMIZED and sys.getrefcount(local) <= 3 and not _watched():
        local.clear()
    return found


def _attribute(module: object, name: str) -> Any:
    """Return an attribute of a module, without running code of the module."""
    return getattr(module, "__dict__", {}).get(name)


def _watched() -> bool:
    """Return whether a profiler or debugger that is written in Python is active."""
    return _is_python(sys.getprofile()) or _is_python(sys.gettrace())


def _is_python(hook: object) -> bool:
    """Return whether a callable is written in Python."""
    return hasattr(hook, "__code__") or hasattr(type(hook).__call__, "__code__")


class Frames:
    """Distinguishes the user's frames from a library's. One per session: it caches by code object."""

    def __init__(self, own: tuple[str, ...] = ()) -> None:
        self._libraries = _library_folders()
        #: (Id of generated code, instruction) -> that code, and the user's place that it was generated from.
        self._generated: dict[tuple[int, int], tuple[CodeType, CodeLocation | None]] = {}
        #: The user's folders that may be among installed packages: the script's, or that of the module of ``-m``.
        self.own = own
        self._own = tuple(os.path.realpath(p) + os.sep for p in own)
        #: File outside of libraries -> whether a library wrote it.
        self._written: dict[str, bool] = {}
        #: Id of a code object -> whether it is the user's. A code object's own hash is slow: it covers all of its code.
        self.known: dict[int, bool] = {}
        #: Those code objects, kept alive so that the ids stay valid.
        self._codes: list[CodeType] = []
        self._lines: dict[CodeLocation, Site] = {}

    def is_user(self, code: CodeType) -> bool:
        """Return whether a code object is the user's; the answer is kept."""
        known = self.known.get(id(code))
        if known is None:
            if len(self._codes) > 100_000:  # code is made anew all the time, as by exec
                self.known.clear()
                self._codes.clear()
            known = self.known[id(code)] = code.co_name != STAND_IN and self.is_users_file(code.co_filename)
            self._codes.append(code)  # last, because another thread reads this too
        return known

    def users_codes(self) -> list[CodeType]:
        """Return the user's code objects that were encountered so far."""
        return [code for code in self._codes if self.known[id(code)]]

    def users_files(self) -> list[str]:
        """Return the user's files whose code was encountered so far."""
        return sorted({code.co_filename for code in self._codes if self.known[id(code)]})

    def is_users_file(self, name: str) -> bool:
        """Return whether code of the file `name` is the user's."""
        if name.startswith("<"):
            return name.startswith(("<stdin", "<ipython", "<doctest", "<cell", "<input", "<timed", "<magic-timeit"))
        path = os.path.realpath(name)
        # The longest folder that contains it decides: a virtual environment may be in the user's folder, and the
        # user's folder among installed packages.
        library = max((len(f) for f in self._libraries if path.startswith(f)), default=0)
        own = max((len(f) for f in self._own if path.startswith(f)), default=0)
        return (own > library or not library) and not self._is_written_by_library(path)

    def _is_written_by_library(self, path: str) -> bool:
        """Return whether a library wrote the file `path` and loaded it.

        Such a module has a name inside the library's package, and is in none of the package's folders: message passing
        of PyTorch Geometric is one in the system's temporary folder, where the user's script may be too.
        """
        known = self._written.get(path)
        if known is None:
            # A copy: another thread may import. Modules may have attributes that load something when they are read.
            names = [name for name, one in list(sys.modules.items()) if _attribute(one, "__file__") == path]
            known = self._written[path] = any(self._is_foreign_part(name, path) for name in names)
        return known

    def _is_foreign_part(self, name: str, path: str) -> bool:
        """Return whether the module `name` of the file `path` has no place in the library after which it is named."""
        package = sys.modules.get(name.partition(".")[0])
        file = _attribute(package, "__file__")
        if "." not in name or not isinstance(file, str) or not os.path.realpath(file).startswith(self._libraries):
            return False
        parent = sys.modules.get(name.rpartition(".")[0])
        folders = _attribute(parent, "__path__") or ()
        return not any(path.startswith(os.path.realpath(folder) + os.sep) for folder in folders)

    def first(self, frame: FrameType | None) -> Any:
        """Return the innermost frame of the user's code at or above `frame`; ``None`` if there is none."""
        known = self.known
        while frame is not None:
            code = frame.f_code
            mine = known.get(id(code))
            if mine is None:
                mine = self.is_user(code)
            if mine:
                return frame
            frame = frame.f_back
        return None

    def spot(self, frame: FrameType | None) -> CodeLocation | None:
        """Return the place (code, instruction) of the innermost user frame at or above `frame`; ``None`` if there is
        none.
        """
        frame = self.first(frame)
        return None if frame is None else (frame.f_code, frame.f_lasti)

    def generated(self, frame: FrameType) -> CodeLocation | None:
        """Return the user's place from which FX generated the code that `frame` runs; ``None`` if unknown.

        Used for a compiled region that is run op by op.
        """
        known = self._generated.get((id(frame.f_code), frame.f_lasti))
        if known is None:
            if len(self._generated) > 100_000:
                self._generated.clear()
            site = self.site_in(generated_from(variables(frame).get("self"), frame.f_lineno))
            known = frame.f_code, self.spot_for(site) if site is not None else None
            self._generated[id(frame.f_code), frame.f_lasti] = known
        return known[1]

    def spot_of_op(self, frame: FrameType) -> CodeLocation | None:
        """Return the user's place for an op that `frame` calls; if the frame runs generated code, the place that it
        came from.
        """
        made = self.generated(frame) if frame.f_code.co_filename.startswith(GENERATED) else None
        return made or self.spot(frame)

    def spot_of_call(self, frame: FrameType | None) -> CodeLocation | None:
        """Return the place as ``spot`` does, for ops of compiled code.

        Their frames are on the ``def`` line of the compiled function; the result is the place that called it.
        """
        while frame is not None:
            spot = self.spot(frame)
            if spot is None or not self._on_def(spot):
                return spot
            while frame is not None and frame.f_code is not spot[0]:
                frame = frame.f_back
            frame = frame.f_back if frame is not None else None
        return None

    def _on_def(self, spot: CodeLocation) -> bool:
        """Return whether `spot` is on the first line of its function, and the line holds only the ``def``."""
        site = self.site(spot)
        if site is None or site.line != spot[0].co_firstlineno:
            return False
        return site.text.startswith("@") or (site.text.startswith(("def ", "async def ")) and site.text.endswith(":"))

    def site(self, spot: CodeLocation | None) -> Site | None:
        """Return the line of a place, with its text, which is read once; ``None`` for ``None``."""
        if spot is None:
            return None
        found = self._lines.get(spot)
        if found is None:
            code, lasti = spot
            line = code.co_firstlineno
            for start, end, at in code.co_lines():
                if start <= lasti < end and at is not None:
                    line = at
                    break
            found = self._lines[spot] = site_at(code.co_filename, line, code.co_name)
        return found

    def spot_at(self, file: str, line: int) -> CodeLocation | None:
        """Return a place on a line of the user's code that was encountered, or that a module of `file` defines."""
        return _spot_in(self.users_codes(), file, line) or _spot_in(code_of_modules((file,)), file, line)

    def inside(self, stack: Stack | None) -> tuple[Site, ...]:
        """Return the library lines of `stack`, the innermost last."""
        if stack is None:
            return ()
        if stack.sites is None:
            stack.sites = tuple(site for spot in stack.called if (site := self.site(spot)) is not None)
        return stack.sites

    def sites(self) -> list[Site]:
        """Return the lines that were recorded so far, including those of libraries."""
        return list(self._lines.values())

    def codes(self) -> list[CodeType]:
        """Return the code of the recorded lines, and the user's code that was encountered, each once."""
        codes = (*(code for code, _ in list(self._lines)), *self.users_codes())
        return list({id(code): code for code in codes}.values())

    def site_in(self, trace: str) -> Site | None:
        """Return the innermost line of the user's code in the text of a traceback; ``None`` if there is none."""
        mine = [m for m in FRAME.finditer(trace) if self.is_users_file(m[1])]
        return site_at(mine[-1][1], int(mine[-1][2]), mine[-1][3].strip()) if mine else None

    @staticmethod
    def spot_for(site: Site) -> CodeLocation | None:
        """Return a place that stands for the line `site`, made from new code, since the line's own code was never
        encountered.
        """
        code = compile("\n" * (site.line - 1) + "pass", site.file, "exec").replace(co_name=site.function)
        return next(((code, begin) for begin, _, at in code.co_lines() if at == site.line), None)

    def in_traceback(self, traceback: Any) -> Iterator[tuple[Site, FrameType]]:
        """Yield the user's lines in a traceback, the innermost last, each with its frame."""
        while traceback is not None:
            frame: FrameType = traceback.tb_frame
            if self.is_user(frame.f_code):
                yield site_at(frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name), frame
            traceback = traceback.tb_next

    def site_of_traceback(self, traceback: object) -> Site | None:
        """Return the user's innermost line in a traceback; ``None`` if there is none."""
        lines = [site for site, _ in self.in_traceback(traceback)]
        return lines[-1] if lines else None


def _spot_in(codes: list[CodeType], file: str, line: int) -> CodeLocation | None:
    """Return a place on a line of one of `codes`, or of code nested in them; ``None`` if none has the line."""
    for code in codes:  # grows as we go
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        if code.co_filename == file:
            for begin, _, at in code.co_lines():
                if at == line:
                    return code, begin
    return None
