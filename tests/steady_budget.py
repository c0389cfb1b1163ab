"""An overhead budget for tests that counts steps instead of seconds, so that no test depends on the load of a machine.

Which steps are recorded follows from what steps are assumed to cost. Recording is assumed to be expensive: after the
first steps, most steps are unrecorded, as in a long run.
"""

from __future__ import annotations

from typing import Any

from backprobe.observe.schedule.budget import Budget

#: Assumed seconds of a step without backprobe.
STEP_S = 1e-3
#: Assumed seconds of overhead: of a recorded step, of an unrecorded one, and of one that takes the fast path.
RECORDED_S, UNRECORDED_S, FAST_PATH_S = 2e-2, 1e-4, 5e-6


class SteadyBudget(Budget):
    """A budget in which a step of one kind costs the same on any machine."""

    def charge_step(self, seconds: float, overhead: float, recorded: bool, *details: Any, **more: Any) -> None:
        overhead = RECORDED_S if recorded else UNRECORDED_S
        super().charge_step(STEP_S + overhead, overhead, recorded, *details, **more)

    def charge_fast_path_steps(self, steps: int, seconds: float, overhead: float) -> None:
        super().charge_fast_path_steps(steps, steps * (STEP_S + FAST_PATH_S), steps * FAST_PATH_S)
