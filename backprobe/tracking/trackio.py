"""trackio: a run of its own, or a second writer of the run that a script has open."""

from __future__ import annotations

import os
from typing import Any

from .alerts import Alert
from .space import check


class Trackio:
    """Writes rows with backprobe's step numbers; the script's own step counter belongs to another object."""

    def begin(self, about: dict[str, Any]) -> str:
        """Begin to write to the run that the script has open, or to a new one; return its name."""
        import trackio

        self._levels = trackio.AlertLevel
        given = about.get("open")
        if given:
            from trackio.run import Run

            self._run = Run(client=None, **given)
            self._run._config_logged = True  # the run's configuration is the script's
            return f"run {given['name']} of project {given['project']}"
        project = os.environ.get("TRACKIO_PROJECT") or "backprobe"
        self._run = trackio.init(
            project=project, name=about["name"], embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        return f"run {about['name']} of project {project}"

    def rows(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Log rows of (step, numbers)."""
        for step, numbers in rows:
            self._run.log(numbers, step=step)

    def alert(self, alert: Alert) -> None:
        """Send an alert to the run."""
        self._run.alert(
            title=alert.title, text=f"{alert.kind}: {alert.text}", level=self._levels[alert.level], step=alert.step or 0
        )

    def close(self) -> None:
        """Finish the run.

        :raises OSError: the disk is full.
        """
        from trackio.utils import TRACKIO_DIR

        self._run.finish()
        if os.path.isdir(TRACKIO_DIR):
            check(str(TRACKIO_DIR))
