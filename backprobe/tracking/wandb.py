"""Weights & Biases: a run of its own, or rows of the run that a script has open."""

from __future__ import annotations

import os
from typing import Any

from .alerts import Alert
from .space import check


class Wandb:
    """Writes to a separate run, stored on disk for ``wandb sync`` unless ``WANDB_MODE`` says otherwise."""

    def begin(self, about: dict[str, Any]) -> str:
        """Start a run, named and configured by `about`, and return its folder."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "backprobe",
            name=os.environ.get("WANDB_NAME") or about["name"],
            mode=None if os.environ.get("WANDB_MODE") else "offline",
            config={"script": about["script"], "run": about["run"]},
            settings=wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_stats=True),
        )
        # Values of a step may come after those of the next one, and wandb's own steps cannot go back.
        self._run.define_metric("backprobe/*", step_metric="backprobe/step")
        return str(self._run.settings.sync_dir)

    def rows(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Log rows of (step, numbers)."""
        for step, numbers in rows:
            self._run.log({**numbers, "backprobe/step": step})

    def alert(self, alert: Alert) -> None:
        """Send an alert to the run."""
        self._run.alert(title=alert.title, text=f"{alert.kind}: {alert.text}", level=alert.level, wait_duration=0)

    def close(self) -> None:
        """Finish the run.

        :raises OSError: the disk is full.
        """
        folder = str(self._run.settings.sync_dir)
        self._run.finish()
        if os.path.isdir(folder):
            check(folder)


class WandbOpen:
    """Adds to rows of the run that the script has open, in the script's process.

    The run's step counter is never moved: wandb drops values for a step that is over, so moving the counter would lose
    values of the script. The values are added to the row that the script writes next, which has the script's own step,
    together with ``backprobe/step``. If several measurements meet in one row, the last one wins.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    @property
    def closed(self) -> bool:
        """Whether the script has finished the run."""
        return bool(getattr(self._run, "_is_finished", False))

    def rows(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Add rows of (step, numbers) to the row that the script writes next."""
        for step, numbers in rows:
            self._run.log({**numbers, "backprobe/step": step}, commit=False)

    def alert(self, alert: Alert) -> None:
        """Send an alert to the script's run."""
        self._run.alert(title=alert.title, text=f"{alert.kind}: {alert.text}", level=alert.level, wait_duration=0)

    def close(self) -> None:
        """Do nothing: the script closes the run."""
