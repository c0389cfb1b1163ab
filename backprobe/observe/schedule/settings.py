"""What is to be recorded of a run, as a person asks for it. No torch."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ...errors import BackprobeError

#: What watching may take of the time that a script takes alone.
DEFAULT_BUDGET = 0.05
#: MiB of batches that are kept of a run, where nothing else is said.
BATCH_MB = 512
#: What may be asked for without steps costing more than the budget.
CHEAP = frozenset({"levels"})


@dataclass(frozen=True)
class Settings:
    """What to record.

    :ivar level: ``minimal`` (losses, parameters, updates), ``nodes`` (every node too) or ``full`` (also inspects every
        gradient and result at once).
    :ivar every: record nodes in each N-th step; the others are watched.
    :ivar first, last: record nodes in these steps only, counted from 0; ``last`` is not included, ``None`` is no end.
    :ivar careful: steps at the start that are looked at closely, and after trouble.
    """

    level: str = "nodes"
    every: int = 1
    first: int = 0
    last: int | None = None
    careful: int = 3
    #: Opt-in checks: ``functions``, ``divergence``, ``checkpoints``, ``memory``, ``levels``, ``compiled``.
    checks: frozenset[str] = frozenset()
    #: Globs on the names of modules and parameters whose tensors get histograms.
    histograms: tuple[str, ...] = ()
    #: Say nothing while the script runs.
    quiet: bool = False
    #: A file for a line of each node that runs, ``"-"`` for standard error; empty: none.
    log: str = ""
    #: Measure statistics by layer in every N-th step; 0: in none.
    layer_stats: int = 0
    #: Record every op for a comparison with another run, and save at most this many MiB of tensors.
    record_ops: bool = False
    max_record_mb: int = 512
    #: Keep the batch of a step with an alarm or an error, in this many MiB at most of all such; 0: keep none.
    max_batch_mb: int = 0
    #: The source text that is kept with what was recorded: ``lines``, ``full`` or ``none`` (Note [Source excerpts]).
    source: str = "lines"
    #: The share of the script's own time that watching may take (Note [The budget]); ``None``: every step that the
    #: other settings ask for is recorded.
    budget: float | None = None

    @property
    def plain(self) -> bool:
        """Whether nothing is asked for but what costs no more than the budget."""
        asked = self.level, frozenset(self.checks) - CHEAP, self.histograms, self.log, self.record_ops
        return asked == (Settings.level, frozenset(), (), "", False)

    @property
    def chosen(self) -> bool:
        """Whether somebody has said which steps are to be recorded."""
        asked = self.every, self.first, self.last, self.careful
        return asked != (Settings.every, Settings.first, Settings.last, Settings.careful)

    def traced(self, step: int) -> bool:
        """Whether the nodes of a step are asked for."""
        if self.level == "minimal" or step < self.first or (self.last is not None and step >= self.last):
            return False
        return (step - self.first) % self.every == 0


def budget_of(given: float | str | None, settings: Settings) -> float | None:
    """The share of the script's own time that watching may take, from what a person says.

    :param given: a share (0.05), a text (``"5%"``, ``"0.05"``, ``"none"``), ``None`` for no bound, or ``"default"``:
        what the variable ``BACKPROBE_BUDGET`` of the environment says, or 5%, where `settings` ask for all steps and no
        more of each than is recorded of itself; no bound where a person has chosen what to record.
    :raises BackprobeError: it is not a share above 0.
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
