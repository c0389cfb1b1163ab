"""Saved tensors in files: one safetensors file for each storage, deleted when it is no longer needed.

Note [Folders with a lock]: A folder belongs to one layer of one process, which holds a lock on a file in it as long as
it lives: the kernel drops the lock when the process dies, however it dies. A folder that is not locked is left over
from a crash.

Note [Folders and forks]: A forked child inherits the finalizers, and must not remove its parent's files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ...basics.errors import BackprobeError
from ...basics.text import size
from .cells import Held
from .copies import CopyingLayer

try:
    import fcntl
except ImportError:  # Windows: no cleanup of leftover folders
    fcntl = None  # type: ignore[assignment]

PREFIX = "backprobe-saved-"


class Folder:
    """A new folder under `parent`, removed when nothing refers to it, and at the end of the process; see
    Note [Folders with a lock].
    """

    def __init__(self, parent: Path) -> None:
        """Remove leftover folders under `parent`, and make a new one.
        :raises BackprobeError: the folder cannot be made.
        """
        try:
            parent.mkdir(parents=True, exist_ok=True)
            sweep(parent)
            self.path, lock = _locked(parent)
        except OSError as error:
            raise BackprobeError(f"cannot keep saved tensors under {parent}: {error}") from error
        self._count = 0
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def new(self) -> Path:
        """Return the path of a new file in the folder."""
        self._count += 1
        return self.path / f"{self._count}.safetensors"


def _locked(parent: Path) -> tuple[Path, IO[str]]:
    """Return a new folder, and its lock. If another process sweeps before the folder is locked, make another one."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = open(path / "lock", "w")  # noqa: SIM115
        if fcntl is None:
            return path, lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (path / "lock").exists():
            return path, lock
        lock.close()


def _remove(path: Path, lock: IO[str], owner: int) -> None:
    """Remove the folder at `path` if this is the process `owner` that made it."""
    if os.getpid() == owner:  # see Note [Folders and forks]
        shutil.rmtree(path, ignore_errors=True)
        lock.close()


def sweep(parent: Path) -> list[Path]:
    """Remove folders under `parent` whose process is gone, and return them."""
    gone: list[Path] = []
    if fcntl is None:
        return gone
    for path in parent.glob(PREFIX + "*"):
        try:
            with open(path / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                gone.append(path)
        except OSError:  # in use, of another user, or just being made or removed
            continue
    return gone


class Filed:
    """A flat tensor in a file. The file is deleted with this object."""

    __slots__ = ("__weakref__", "_device", "_folder", "_owner", "_path")
    safe = True

    def __init__(self, folder: Folder, path: Path, device: torch.device) -> None:
        """Take the folder, which stays as long as this object, the file's path, and the tensor's device."""
        self._folder, self._path, self._device, self._owner = folder, path, device, os.getpid()

    def get(self) -> torch.Tensor:
        """Read the tensor from its file, onto its device.
        :raises BackprobeError: the file cannot be read.
        """
        try:
            return load_file(self._path, device=str(self._device))["saved"]
        except (OSError, SafetensorError) as error:
            raise BackprobeError(
                f"a tensor saved for backward was in {self._path} and cannot be read: {error}. Was the folder removed "
                "by something else?"
            ) from error

    def __del__(self) -> None:
        """Remove the file if this is the process that made it."""
        if os.getpid() == self._owner:  # see Note [Folders and forks]
            with contextlib.suppress(OSError):  # the folder was removed first, as at the end of the process
                os.unlink(self._path)


class OnDisk(CopyingLayer):
    """The layer of ``offload.on_disk``."""

    words = "written to disk"

    def __init__(self, folder: str | os.PathLike[str] | None, **kwargs: Any) -> None:
        """Take the parent folder (``None``: the system's for temporary files); see ``Layer`` for the other options."""
        super().__init__(**kwargs)
        self._parent = Path(folder) if folder is not None else Path(tempfile.gettempdir())
        self._folder: Folder | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the files while the block runs."""
        return self._folder.path if self._folder is not None else None

    def start(self) -> None:
        """Make the folder."""
        self._folder = Folder(self._parent)

    def stop(self) -> None:
        """Let go of the folder, which stays until its last file is gone."""
        self._folder = None  # saved tensors still refer to it

    def store(self, flat: torch.Tensor) -> Held:
        """Write a flat tensor to a new file.
        :raises BackprobeError: the file cannot be written.
        """
        assert self._folder is not None
        nbytes = flat.numel() * flat.element_size()
        path = self._folder.new()
        held = Filed(self._folder, path, flat.device)  # made first, so that an incomplete file is removed too
        try:
            save_file({"saved": flat.clone() if flat.storage_offset() else flat}, path)
        except (OSError, SafetensorError) as error:
            raise BackprobeError(
                f"cannot write a saved tensor of {size(nbytes)} to {path}: {error}. Free space there, or give another "
                "folder: offload.on_disk(folder=...)"
            ) from error
        self.held += nbytes
        return held
