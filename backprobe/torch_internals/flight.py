"""Reads this process's latest collective operations from torch's flight recorder.

Note [Flight recorder]: torch keeps the latest collectives of every process group, with any backend, if the environment
requests it before the first group is created. ``os.environ`` is left unchanged: the variable is set in the C
environment only, in processes that are one of several, and unset once there is a group.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import torch.distributed

from ..records import Collective, Site
from . import code_objects

_VARIABLE = "TORCH_FR_BUFFER_SIZE"
#: Number of operations that torch keeps, for all groups together, and the number of latest ones that are reported
#: in full.
_BUFFER_ENTRIES, _MAX_REPORTED = 512, 64
#: Collectives that end on every rank once the last rank has arrived.
_ENDING_TOGETHER = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "_all_gather",
    "reduce_scatter",
    "_reduce_scatter",
)


class Flight:
    """Reader of the flight recorder, which it also requests.

    :param site_of: returns the user's line of a stack of (file, line, function), innermost first.
    """

    def __init__(self, site_of: Callable[[list[tuple[str, int, str]]], Site | None]) -> None:
        """Begin with nothing requested."""
        self._site_of = site_of
        self._is_requested = False

    def request(self) -> None:
        """Request that collectives are kept from the next group on.

        Does nothing if the environment already sets the variable.
        """
        if _VARIABLE not in os.environ and not torch.distributed.is_initialized():
            os.putenv(_VARIABLE, str(_BUFFER_ENTRIES))
            self._is_requested = True

    def restore_environment(self) -> None:
        """Unset the variable of the flight recorder in the environment of the process, if ``request`` set it.

        ``os.environ`` never had it.
        """
        if self._is_requested:
            self._is_requested = False
            os.unsetenv(_VARIABLE)

    def latest(self) -> tuple[Collective, ...]:
        """Return the latest collectives, in the order of the calls; empty if none are kept."""
        found = [self._collective(entry) for entry in _sorted_entries()[-_MAX_REPORTED:]]
        return tuple(sorted(found, key=lambda one: (one.group, one.number)))

    def arrivals(self) -> tuple[tuple[str, int, tuple[float, ...]], ...]:
        """Return the call times of the collectives that all ranks call alike, by group; see ``RankSeen.arrivals``."""
        groups: dict[str, dict[int, float]] = {}
        for entry in _sorted_entries():
            if str(entry["profiling_name"]).rpartition(":")[2].startswith(_ENDING_TOGETHER):
                times = groups.setdefault(_group_name(entry), {})
                times[int(entry["collective_seq_id"])] = int(entry["time_created_ns"]) / 1e9
        return tuple(
            (group, min(times), tuple(times.get(number, 0.0) for number in range(min(times), max(times) + 1)))
            for group, times in groups.items()
        )

    def _collective(self, entry: dict[str, Any]) -> Collective:
        """Translate an entry of the flight recorder."""
        kinds = [str(dtype).lower() for dtype in entry["input_dtypes"]]
        shapes = [f"{kind}{list(size)}" for kind, size in zip(kinds, entry["input_sizes"], strict=False)]
        frames = [(frame["filename"], frame["line"], frame["name"]) for frame in entry.get("frames", ())]
        return Collective(
            group=_group_name(entry),
            number=int(entry["collective_seq_id"]),
            op=str(entry["profiling_name"]).rpartition(":")[2],
            inputs=", ".join(shapes[:4]) + (", ..." if len(shapes) > 4 else ""),
            began=int(entry["time_created_ns"]) / 1e9,
            over=bool(entry["retired"]) or entry["state"] == "completed",
            timeout=int(entry["timeout_ms"]) / 1e3,
            site=self._site_of(frames),
            inside=next((name for file, _, name in frames if file == code_objects.TENSOR_HOOKS_FILE), "")
            and "backward",
        )


def _sorted_entries() -> list[dict[str, Any]]:
    """Return the entries of collectives, without point-to-point operations, in the order of their calls."""
    return sorted((one for one in entries() if not one["is_p2p"]), key=lambda one: int(one["time_created_ns"]))


def _group_name(entry: dict[str, Any]) -> str:
    """Return the name of an entry's process group, with its description if it has one."""
    name, description = entry["process_group"]
    return f"{name} ({description})" if description not in ("", "undefined") else str(name)


def store_timeout() -> float:
    """Return the seconds after which torch stops waiting for the default group's store, as in ``new_group``.

    0 if none.
    """
    get = getattr(torch.distributed.distributed_c10d, "_get_default_store", None)
    try:
        return float(get().timeout.total_seconds()) if get is not None else 0.0
    except (AttributeError, RuntimeError, ValueError, NotImplementedError):  # there is no group yet
        return 0.0


def entries() -> list[dict[str, Any]]:
    """Return the entries of the flight recorder, as torch provides them."""
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)
    if dump is None:
        return []
    # For stacks, torch imports Inductor to look up compiled code, which takes seconds and is left to the script.
    stacks = "torch._inductor" in sys.modules
    found: list[dict[str, Any]] = pickle.loads(dump(True, stacks, False)).get("entries", [])
    return found
