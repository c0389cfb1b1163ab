"""Detection of runs that a script has open in trackers. Only modules that the script has imported are inspected, and
nothing is changed.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

#: Class names of the writer threads of event files, in TensorBoard and tensorboardX.
_THREADS = ("_AsyncWriterThread", "_EventLoggerThread")
_MODULES = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")


def tensorboard() -> str | None:
    """Return the folder for backprobe's event files, next to the first event file that the script has open.

    An open writer has a thread, which knows its file.
    """
    if not any(name in sys.modules for name in _MODULES):
        return None
    for thread in threading.enumerate():
        if type(thread).__name__ in _THREADS and type(thread).__module__ in _MODULES:
            records = thread._record_writer  # type: ignore[attr-defined]
            name = getattr(records, "_file_name", None) or records._writer.filename
            path = os.fsdecode(name)
            if "://" not in path:
                return os.path.join(os.path.dirname(os.path.abspath(path)), "backprobe")
    return None


def mlflow() -> dict[str, object] | None:
    """Return how to reach the MLflow run that is active in this thread; ``None`` if there is none."""
    module = sys.modules.get("mlflow")
    if module is None:
        return None
    run = module.active_run()
    return {"run": run.info.run_id, "uri": module.get_tracking_uri()} if run is not None else None


def trackio() -> dict[str, object] | None:
    """Return how to reach the run that ``trackio.init`` has begun in this thread; ``None`` if there is none."""
    module = sys.modules.get("trackio.context_vars")
    run = module.current_run.get() if module is not None else None
    if run is None or run._stop_flag.is_set():
        return None
    where = {name: getattr(run, f"_{name}") for name in ("space_id", "bucket_id", "server_base_url", "write_token")}
    return {"url": run.url, "project": run.project, "name": run.name, "run_id": run.id, **where}


def wandb() -> Any | None:
    """Return ``wandb.run``."""
    return getattr(sys.modules.get("wandb"), "run", None)


#: Tracker -> function that describes the script's open run for the tracker's process; it returns ``None`` for no run.
OPEN = {"tensorboard": tensorboard, "mlflow": mlflow, "trackio": trackio}
