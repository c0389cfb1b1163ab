"""Passes the run's configuration to the processes that a script starts. No torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ...records import RankSeen, Unseen
from ...store import job, parts
from .. import wall_clock
from .bootstrap.backprobe_following import ChildEnvironment, unwatched
from .child_config import ChildConfig

#: How long to wait for other ranks after the process that ``backprobe run`` started has ended: seconds since one of
#: them was last seen computing, and seconds in all. ``MIN_BUSY_SHARE``: the share of a processor that counts as
#: computing.
IDLE_TIMEOUT_S, TOTAL_TIMEOUT_S, MIN_BUSY_SHARE = 10.0, 120.0, 0.05


class ChildLaunch:
    """The environment that child processes start with, between ``start`` and ``stop``.

    :param folder: of the run; ``None`` if the run is not saved: children then write to a temporary folder.
    :param config_in: makes the children's configuration for that folder.
    :param equals: this process is a rank like its children: their parts are not collected by this process.
    """

    def __init__(self, folder: Path | None, config_in: Callable[[Path], ChildConfig], equals: bool = False) -> None:
        """Choose the folder, which is temporary if the run is not saved, and make the children's configuration."""
        self._is_temporary, self._equals = folder is None, equals
        self.folder = (folder or Path(tempfile.mkdtemp(prefix="backprobe-"))).absolute()
        self.config = config_in(self.folder)
        self._following: ChildEnvironment | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Pass the configuration to processes that start from now on."""
        self._following = ChildEnvironment(self.config.text(), lambda pid: unwatched(str(self.folder), pid))
        self._following.start()

    def stop(self) -> None:
        """Stop passing the configuration. Deletes the parts of the children if the run is not saved."""
        if os.getpid() != self._pid:
            return
        if self._following is not None:
            self._following.stop()
            self._following = None
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def of_parts(self) -> Path | None:
        """The folder that holds the parts of the children.

        It is ``None`` if this process is not the one that collects them.
        """
        return None if self._equals else self.folder

    def wait(self, ranked: bool, longest: float = TOTAL_TIMEOUT_S) -> None:
        """Wait up to `longest` seconds for ranks that no process joins, such as those that Lightning starts.

        :param ranked: this process is a rank itself.
        """
        begin = computed = time.monotonic()
        said = wall_clock.now()
        while self.of_parts is not None and (now := time.monotonic()) < min(computed + IDLE_TIMEOUT_S, begin + longest):
            _reap()
            seen = parts.read_parts(self.of_parts).values()
            # If this process is a rank, also wait for processes that have not reported a rank: they may be starting.
            going = [one for one in seen if (ranked or one.rank is not None) and job.goes_on(one)]
            if not going:
                break
            computing = [one for one in going if one.said > said and (one.busy or 0.0) > MIN_BUSY_SHARE]
            if computing:
                computed, said = now, max(one.said for one in computing)
            time.sleep(0.1)

    def seen(self) -> tuple[RankSeen, ...]:
        """Return the state of each process of the run, ended or running."""
        if self.of_parts is None:
            return ()
        _reap()
        return job.others(self.of_parts)

    def unseen(self) -> list[Unseen]:
        """Return how many processes could not be observed."""
        return parts.unwatched(self.of_parts) if self.of_parts is not None else []


def _reap() -> None:
    """Reap child processes that have exited."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    with contextlib.suppress(Exception):
        getattr(multiprocessing, "active_children", tuple)()
