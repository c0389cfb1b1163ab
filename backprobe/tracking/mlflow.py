"""MLflow: metrics and tags of a run."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from .alerts import Alert

#: Maximum number of metrics in one call to MLflow; maximum length of a tag's value.
_AT_ONCE, _LONGEST = 1000, 4000


class MLflow:
    """Writes metrics with a separate client: to a run that the script has open, or to a new one."""

    def begin(self, about: dict[str, Any]) -> str:
        """Begin to write to the run that the script has open, or to a new one; return its name."""
        import mlflow
        from mlflow.entities import Metric

        self._metric = Metric
        given = about.get("open") or {}
        uri = given.get("uri") or mlflow.get_tracking_uri()
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        self._own = not given
        if self._own:
            os.environ.pop("MLFLOW_RUN_ID", None)  # this variable selects the script's run
        self._run: str = given.get("run") or mlflow.start_run(run_name=about["name"]).info.run_id
        return f"run {self._run} of {uri}"

    def rows(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Log rows of (step, numbers) as metrics, in batches."""
        now = int(time.time() * 1000)
        metrics = [
            self._metric(re.sub(r"[^\w\-. :/]", "_", name), value, now, step)
            for step, numbers in rows
            for name, value in numbers.items()
        ]
        for at in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[at : at + _AT_ONCE])

    def alert(self, alert: Alert) -> None:
        """Set a tag by kind, and append a paragraph to the run's description."""
        note = "mlflow.note.content"
        before = self._client.get_run(self._run).data.tags.get(note, "")
        said = f"**{alert.title}** ({alert.kind})\n\n{alert.text}"
        self._client.set_tag(self._run, f"backprobe.{alert.kind}", f"{alert.level}: {alert.title}"[:_LONGEST])
        self._client.set_tag(self._run, note, f"{before}\n\n{said}".strip()[:_LONGEST])

    def close(self) -> None:
        """End the run if it is our own."""
        if self._own:
            import mlflow

            mlflow.end_run()
