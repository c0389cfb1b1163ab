"""Which of several processes this one is, as launchers say it in the environment."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: By launcher: the variables of a process's rank, of its rank on the machine, and of how many there are, and on the
#: machine.
_LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
#: What tells one job from another where its processes are on several machines.
_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")


@dataclass(frozen=True)
class Identity:
    """A process among others.

    :ivar restart: how often the launcher has started all of them again.
    :ivar job: the same for those that belong together; empty where nobody says.
    :ivar here: they all have the same parent, and so the name of their job is that of no other, ever.
    """

    rank: int | None = None
    local: int | None = None
    world: int | None = None
    restart: int = 0
    job: str = ""
    here: bool = False

    @property
    def slot(self) -> str:
        """A name that no other process of the job has."""
        again = f"-restart-{self.restart}" if self.restart else ""
        return str(os.getpid()) if self.rank is None else f"rank-{self.rank}{again}"


def identity(environment: Mapping[str, str], parent: str | None = None) -> Identity:
    """Who this process is.

    :param parent: the rank in the environment of the process that started this one: the same here was handed on, and is
        that process's.
    """
    for names in _LAUNCHERS:
        rank, local, world, beside = (_number(environment.get(name)) for name in names)
        if rank is None or world is None or (names[0] == "RANK" and environment["RANK"] == parent):
            continue
        if names[0] != "RANK" and world < 2:
            continue
        restart = _number(environment.get("TORCHELASTIC_RESTART_COUNT")) or 0
        here = beside == world
        job = _parent() if here else "/".join(environment.get(name, "") for name in _JOB)
        return Identity(rank, local, world, restart, job, here)
    return Identity()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _parent() -> str:
    """The process that started this one, told from any that had its number before."""
    pid = os.getppid()
    try:
        since = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        since = ""
    return f"{platform.node()}/{pid}/{since}"
