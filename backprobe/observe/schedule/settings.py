"""User settings of a run: what is recorded, and the overhead budget. Does not import torch."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ...basics.errors import BackprobeError

#: The default overhead budget, as a share of the script's own time.
DEFAULT_BUDGET = 0.05
#: The default limit on saved batches of a run, in MiB.
DEFAULT_MAX_BATCH_MB = 512
#: Checks whose cost stays within the budget.
CHECKS_WITHIN_BUDGET = frozenset({"levels"})
#: How much a run records; see ``Settings``.
RECORDING_LEVELS = ("minimal", "nodes", "full")


@dataclass(frozen=True)
class Settings:
    """The settings of what a run records.

    :ivar level: ``minimal`` (losses, parameters, updates), ``nodes`` (every node too) or ``full`` (also inspects every
        gradient and result at once).
    :ivar every: record nodes in each N-th step; the other steps get a minimal record.
    :ivar first, last: record nodes in these steps only, counted from 0; ``last`` is not included, ``None`` is no end.
    :ivar inspected_steps: how many steps are closely inspected at the start, and after a failure.
    """

    level: str = "nodes"
    every: int = 1
    first: int = 0
    last: int | None = None
    inspected_steps: int = 3
    #: Opt-in checks: ``functions``, ``divergence``, ``checkpoints``, ``memory``, ``levels``, ``compiled``.
    checks: frozenset[str] = frozenset()
    #: Globs on the names of modules and parameters whose tensors get histograms.
    histograms: tuple[str, ...] = ()
    #: Print nothing while the script runs.
    quiet: bool = False
    #: A file that gets a line for each node that runs, ``"-"`` for standard error; empty: none.
    log: str = ""
    #: Measure statistics by layer in every N-th step; 0: in none.
    layer_stats: int = 0
    #: Record every op for a comparison with another run, and save at most this many MiB of tensors.
    record_ops: bool = False
    max_record_mb: int = 512
    #: Save the batch of a step with an alarm or an error, up to this many MiB in total; 0: save none.
    max_batch_mb: int = 0
    #: The source text that is saved with a recording: ``lines``, ``full`` or ``none`` (Note [Source excerpts]).
    source: str = "lines"
    #: The share of the script's own time that recording may take (Note [The budget]); ``None``: record every step that
    #: the other settings ask for.
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check the recording level.
        :raises ValueError: it is unknown.
        """
        if self.level not in RECORDING_LEVELS:
            raise ValueError(f"level={self.level!r}: give {', '.join(map(repr, RECORDING_LEVELS))}")

    @property
    def plain(self) -> bool:
        """Return whether no requested feature costs more than the budget."""
        asked = self.level, frozenset(self.checks) - CHECKS_WITHIN_BUDGET, self.histograms, self.log, self.record_ops
        return asked == (Settings.level, frozenset(), (), "", False)

    @property
    def chosen(self) -> bool:
        """Return whether the user chose which steps are to be recorded."""
        asked = self.every, self.first, self.last, self.inspected_steps
        return asked != (Settings.every, Settings.first, Settings.last, Settings.inspected_steps)

    def traced(self, step: int) -> bool:
        """Return whether the settings ask for the nodes of a step."""
        if self.level == "minimal" or step < self.first or (self.last is not None and step >= self.last):
            return False
        return (step - self.first) % self.every == 0


def budget_of(given: float | str | None, settings: Settings) -> float | None:
    """Return the share of the script's own time that recording may take, as the user specified it.

    :param given: a share (0.05), a text (``"5%"``, ``"0.05"``, ``"none"``), ``None`` for no bound, or ``"default"``:
        the environment variable ``BACKPROBE_BUDGET``, or 5%, if `settings` are the defaults that affect cost; no bound
        if the user chose what to record.
    :raises BackprobeError: the value is not a share above 0.
    """
    if given == "default":
        if not settings.plain or settings.chosen:
            return None
        given = os.environ.get("BACKPROBE_BUDGET") or DEFAULT_BUDGET
    if given is None or given == "none":
        return None
    try:
        text = str(given).strip()
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < math.inf:
        raise BackprobeError(f"the budget is {given!r}; it is a share of the script's time such as 5% or 0.05, or none")
    return share
