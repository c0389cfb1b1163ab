"""Processes that the script starts with ``multiprocessing``: each is watched, and its findings go to the parent.

Note [Reaching a child]: a child is reached by what ``multiprocessing`` offers for that: a function that it runs after a
fork, and one when the child ends; ``set_executable`` for children that are spawned. These do nothing of their own
before the target is called, so there, in the child alone, the empty method that is called then is replaced. Workers of
data loaders, and children that have not imported torch, are left alone. A child never writes to the run folder; it
leaves one file in a folder of the parent's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.context
import multiprocessing.util
import os
import shutil
import stat
import sys
import tempfile
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..events import Tracker

if TYPE_CHECKING:
    from ...records import RankSeen, Unseen
    from ..session import Session, Settings

_WRAPPER = """#!{python}
import os, sys
given = sys.argv[1:]
if "-c" in given and "spawn_main" in given[given.index("-c") + 1]:
    at = given.index("-c")
    code = "import sys; sys.path.insert(0, {root!r}); from {here} import spawned; sys.path.pop(0); "
    given[at + 1] = code + "spawned({folder!r}, %r)" % given[at + 1]
os.execv({python!r}, [{python!r}, *given])
"""


class Children(Tracker):
    """The parent's side: what children are told, and what they left."""

    def __init__(self, session: Session) -> None:
        self._session: Session | None = session
        self._folder: Path | None = None
        self._executable: Any = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Watch the children that begin from now on."""
        if os.name != "posix" or multiprocessing.parent_process() is not None or self._folder is not None:
            return
        session = self._session
        assert session is not None
        self._folder = Path(tempfile.mkdtemp(prefix="backprobe-"))
        settings = dataclasses.asdict(session.settings)
        settings["ask"] = sorted(session.settings.ask)
        (self._folder / "settings.json").write_text(json.dumps({"settings": settings, "own": session.frames.own}))
        multiprocessing.util.register_after_fork(self, Children._forked)
        same = spawn.get_executable() in (sys.executable, os.fsencode(sys.executable))
        if same and " " not in sys.executable and len(sys.executable) < 120:  # what a first line can hold
            wrapper = self._folder / "python"
            root = str(Path(__file__).resolve().parents[3])
            wrapper.write_text(
                _WRAPPER.format(python=sys.executable, root=root, here=__name__, folder=str(self._folder))
            )
            wrapper.chmod(stat.S_IRWXU)
            if os.access(wrapper, os.X_OK):  # not where nothing may be executed in the folder for temporary files
                self._executable = spawn.get_executable()
                multiprocessing.set_executable(str(wrapper))

    def _forked(self) -> None:
        """In a child, after ``fork``."""
        session, folder = self._session, self._folder
        if session is None or folder is None or not folder.exists():
            return
        session.leave()
        self._session = None
        begin_child(folder)

    def records(self) -> tuple[RankSeen, ...]:
        """What the children that ended, or wait, have left."""
        from ...records import RankSeen
        from ...store.codec import from_plain

        found = []
        for path in sorted(self._folder.glob("child-*.json")) if self._folder is not None else ():
            with contextlib.suppress(OSError, ValueError):
                seen = from_plain(RankSeen, json.loads(path.read_text()))
                found.append(seen if seen.over else dataclasses.replace(seen, alive=_is_there(seen.pid)))
        return tuple(found)

    def unseen(self) -> list[Unseen]:
        from ...records import Unseen

        folder = self._folder
        count = len(list(folder.glob("unwatched-*"))) if folder is not None else 0
        return [Unseen("processes", count, "that the script started could not be watched")] if count else []

    def stop(self) -> None:
        """No more children are watched; what they left is gone."""
        if os.getpid() != self._pid:
            return
        if self._executable is not None:
            multiprocessing.set_executable(self._executable)
            self._executable = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._session, self._folder = None, None


def _is_there(pid: int) -> bool:
    multiprocessing.active_children()  # takes note of those that are gone
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def spawned(folder: str, program: str) -> None:
    """Run what a spawned child of a watched script runs, watched from where its target is about to be called."""
    empty: Any = multiprocessing.context.SpawnProcess
    empty._after_fork = staticmethod(lambda: begin_child(Path(folder)))
    sys.argv[:] = ["-c", *sys.argv[1:]]
    exec(program, {"__name__": "__main__"})


def begin_child(folder: Path) -> None:
    """Watch this process from here to its end."""
    target = getattr(multiprocessing.current_process(), "_target", None)
    if "torch" not in sys.modules or str(getattr(target, "__module__", "")).startswith("torch.utils.data"):
        return
    try:
        _Child(folder)
    except Exception:  # the child runs as it would alone, whatever is wrong with ours
        with contextlib.suppress(OSError):
            (folder / f"unwatched-{os.getpid()}").touch()


class _Child:
    """A child's session, and the file that it leaves."""

    def __init__(self, folder: Path) -> None:
        from ..session import Session, Settings
        from ..sinks.collect import Collector
        from ..trackers.waiting import Waiting

        told = json.loads((folder / "settings.json").read_text())
        given: dict[str, Any] = {**told["settings"], "ask": frozenset(told["settings"]["ask"])}
        given["tensors"] = tuple(given["tensors"])
        settings: Settings = Settings(**given)
        self._file = folder / f"child-{os.getpid()}.json"
        self._error: BaseException | None = None
        self.collector = Collector()
        self.session = Session(self.collector, settings, tuple(told["own"]))
        self.session.start()
        self.waiting = Waiting(self.session.frames, self._save, not settings.quiet)
        self.waiting.start()
        multiprocessing.util.Finalize(None, self.over, exitpriority=1000)
        self._save()  # for one that is killed

    def over(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            error = error.__context__  # torch.multiprocessing writes down what was raised, and exits
        self.session.scene.raised = self._error = error
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        with contextlib.suppress(Exception):
            self.waiting.stop()
            self.session.stop()
            self._save(True, failed, f"{type(error).__name__}: {error}"[:500] if failed else "")

    def _save(self, over: bool = False, failed: bool = False, error: str = "") -> None:
        from ...records import RankSeen, Replicas
        from ...store.codec import to_plain

        trace = self.collector.trace(self.session) if over else None
        findings = trace.findings if trace is not None else ()
        waiting, collector, failure = self.waiting, self.collector, self._error
        seen = RankSeen(
            *(waiting.rank, os.getpid(), waiting.records(failed), waiting.trail(), over, error, tuple(findings)),
            steps=collector.steps,
            backwards=self.session.calls,
            raised=None if failure is None else self.session.frames.site_of_traceback(failure.__traceback__),
            step=self.session.scene.steps.index,
            replicas=trace.facts.of(Replicas) if trace is not None else (),
        )
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(to_plain(seen)))
        part.replace(self._file)
