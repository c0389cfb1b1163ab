"""The collective operations that this process has called last, as torch's flight recorder keeps them.

Note [Flight recorder]: torch keeps the last collectives of every process group, whichever backend runs them, where
    the environment asks for it before the first group is made. ``os.environ`` is left as it is: the variable is set
    for the C library alone, in processes that are one of several, and taken back once there is a group.
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
#: Operations that are kept, of all groups together, and the last of them, of which all is said.
_KEPT, _LAST = 512, 64
#: Those that end in each rank when the last has come.
_TOGETHER = ("all_reduce", "allreduce", "all_gather", "allgather", "_all_gather", "reduce_scatter", "_reduce_scatter")


class Flight:
    """Asks for the recorder, and reads it.

    :param site_of: the user's line that a stack stands on: files, lines and functions, innermost first.
    """

    def __init__(self, site_of: Callable[[list[tuple[str, int, str]]], Site | None]) -> None:
        self._site_of = site_of
        self._asked = False

    def ask(self) -> None:
        """From the next group on, collectives are kept. Nothing where the environment says something already."""
        if _VARIABLE not in os.environ and not torch.distributed.is_initialized():
            os.putenv(_VARIABLE, str(_KEPT))
            self._asked = True

    def leave(self) -> None:
        """The environment is as it was."""
        if self._asked:
            self._asked = False
            os.unsetenv(_VARIABLE)

    def last(self) -> tuple[Collective, ...]:
        """The last collectives, in the order of the calls. Empty where none are kept."""
        found = [self._collective(entry) for entry in _collectives()[-_LAST:]]
        return tuple(sorted(found, key=lambda one: (one.group, one.number)))

    def arrivals(self) -> tuple[tuple[str, int, tuple[float, ...]], ...]:
        """When those were called that all ranks call alike, see ``RankSeen.arrivals``."""
        groups: dict[str, dict[int, float]] = {}
        for entry in _collectives():
            if str(entry["profiling_name"]).rpartition(":")[2].startswith(_TOGETHER):
                times = groups.setdefault(_group(entry), {})
                times[int(entry["collective_seq_id"])] = int(entry["time_created_ns"]) / 1e9
        return tuple(
            (group, min(times), tuple(times.get(number, 0.0) for number in range(min(times), max(times) + 1)))
            for group, times in groups.items()
        )

    def _collective(self, entry: dict[str, Any]) -> Collective:
        kinds = [str(dtype).lower() for dtype in entry["input_dtypes"]]
        shapes = [f"{kind}{list(size)}" for kind, size in zip(kinds, entry["input_sizes"], strict=False)]
        frames = [(frame["filename"], frame["line"], frame["name"]) for frame in entry.get("frames", ())]
        return Collective(
            group=_group(entry),
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


def _collectives() -> list[dict[str, Any]]:
    return sorted((one for one in entries() if not one["is_p2p"]), key=lambda one: int(one["time_created_ns"]))


def _group(entry: dict[str, Any]) -> str:
    name, description = entry["process_group"]
    return f"{name} ({description})" if description not in ("", "undefined") else str(name)


def store_timeout() -> float:
    """Seconds after which torch gives up waiting for the store of the default group, as ``new_group`` does; 0 if there
    is none."""
    get = getattr(torch.distributed.distributed_c10d, "_get_default_store", None)
    try:
        return float(get().timeout.total_seconds()) if get is not None else 0.0
    except (AttributeError, RuntimeError, ValueError, NotImplementedError):  # no group is there yet
        return 0.0


def entries() -> list[dict[str, Any]]:
    """What the recorder has, as torch gives it."""
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)
    if dump is None:
        return []
    # To give stacks torch asks Inductor about compiled code, and so imports it, which takes seconds and is the script's
    # to do.
    stacks = "torch._inductor" in sys.modules
    found: list[dict[str, Any]] = pickle.loads(dump(True, stacks, False)).get("entries", [])
    return found
