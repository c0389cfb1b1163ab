"""Identity of this process among the ranks of a job, read from the environment variables that launchers set."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from ...basics.process_clock import process_status

#: For each launcher, the variables of: rank, rank on this machine, number of ranks, number of ranks on this machine.
_LAUNCHER_VARIABLES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
#: Variables that distinguish jobs whose processes run on several machines.
_JOB_VARIABLES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")


@dataclass(frozen=True)
class Identity:
    """The identity of a process within its job.

    :ivar local: rank on this machine.
    :ivar world: number of ranks.
    :ivar restart: how often the launcher has restarted all ranks.
    :ivar job: identifier shared by all ranks of a job; empty if no launcher is recognised.
    :ivar here: all ranks have the same parent process, so `job` is unique for all time.
    """

    rank: int | None = None
    local: int | None = None
    world: int | None = None
    restart: int = 0
    job: str = ""
    here: bool = False

    @property
    def slot(self) -> str:
        """A name that is unique among the processes of the job."""
        again = f"-restart-{self.restart}" if self.restart else ""
        return str(os.getpid()) if self.rank is None else f"rank-{self.rank}{again}"


def identity(environment: Mapping[str, str], parent: str | None = None) -> Identity:
    """Return the identity of this process according to `environment`.

    :param parent: the rank in the environment of the process that started this one. An equal rank was inherited, and
        belongs to that process.
    """
    for names in _LAUNCHER_VARIABLES:
        rank, local, world, beside = (_number(environment.get(name)) for name in names)
        if rank is None or world is None or (names[0] == "RANK" and environment["RANK"] == parent):
            continue
        if names[0] != "RANK" and world < 2:
            continue
        restart = _number(environment.get("TORCHELASTIC_RESTART_COUNT")) or 0
        here = beside == world
        job = _parent() if here else "/".join(environment.get(name, "") for name in _JOB_VARIABLES)
        return Identity(rank, local, world, restart, job, here)
    return Identity()


def _number(text: str | None) -> int | None:
    """Return the number in the value of a variable; ``None`` if it is none."""
    return int(text) if text is not None and text.isdigit() else None


def _parent() -> str:
    """Return a name of the parent process: machine, PID and start time, so that a reused PID gives another name."""
    pid = os.getppid()
    try:
        since = process_status(pid)[19]
    except (OSError, IndexError):
        since = ""
    return f"{platform.node()}/{pid}/{since}"
