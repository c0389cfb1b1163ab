"""``backprobe bench``: the overhead of backprobe on a user's script."""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import TYPE_CHECKING

from ..basics.errors import BackprobeError
from ..basics.terminal import say
from ..basics.text import raised
from ..observe.launch import launch
from ..observe.schedule.settings import Settings
from ..view.parts import Line, Part, Table
from ..view.terminal import write
from .script import script_arguments, script_of

if TYPE_CHECKING:
    from ..observe.overhead import ToolAlternation
    from ..observe.program import Program
    from ..observe.session import Session

_TOOLS = ("plain", "minimal", "nodes", "detect_anomaly")


class Bench:
    """Measure the overhead of backprobe on your own script.

    Each step runs plain or under one of the tools, chosen at random. Ratios are relative to the plain steps of the same
    run. The script needs a few hundred optimizer steps for a stable result.
    """

    name = "bench"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        script_arguments(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Run the script under all tools in turn, print a table of the times of a step, and return the script's exit
        code.
        """
        comparing = _Comparing()
        code = launch(script_of(options), comparing)
        alternate = comparing.alternate
        rows = table(alternate.times) if alternate is not None else []
        if alternate is None or not rows:
            steps = alternate.steps if alternate is not None else 0
            raise BackprobeError(
                f"{steps} optimizer steps are too few to compare {len(_TOOLS)} tools: let the script run longer"
            )
        parts: list[Part] = [
            Line(f"Time of a step against the plain step, {alternate.steps} steps, by lot", "head"),
            Table(("tool", "median", "quartiles", "steps"), rows),
        ]
        write(parts, sys.stderr)
        return code


class _Comparing:
    """The observer of the script: has each step run plain or under one of the tools, and collects times."""

    def __init__(self) -> None:
        self.alternate: ToolAlternation | None = None

    def begin(self, program: Program) -> None: ...

    def attach(self, own: tuple[str, ...], script_s: float) -> Session:
        """Create a session for each level and let the steps alternate between them; see ``ScriptObserver``."""
        from ..observe.overhead import ToolAlternation
        from ..observe.session import Session

        self.alternate = alternate = ToolAlternation(list(_TOOLS))
        sessions = {level: Session(alternate, Settings(level), own, whole=True) for level in ("minimal", "nodes")}
        alternate.begin(sessions)
        for session in sessions.values():
            session.start()
            session.pause()
        return session

    def forked(self) -> None: ...

    def failed(self, error: Exception) -> None:
        """Report that the tools could not be attached."""
        say(f"backprobe: watching could not begin: {raised(error)}", sys.stderr)

    def finish(self, error: BaseException | None, code: int) -> None:
        """End the alternation after the script has ended."""
        if self.alternate is not None:
            self.alternate.end()

    abandon = forked


def table(times: dict[str, dict[int, list[float]]]) -> list[list[str]]:
    """Return a row for each tool: median and quartiles of the time of a step relative to a plain step.

    A step is compared with the median plain step of the same optimizer. Empty if a tool had fewer than five steps.

    :param times: seconds of the steps, by tool and optimizer.
    """
    plain = {key: statistics.median(v) for key, v in times["plain"].items() if len(v) >= 5}
    rows = []
    for tool, by in times.items():
        ratios = [t / plain[key] for key, v in by.items() if key in plain for t in v]
        if len(ratios) < 5:
            return []
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append([tool, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", str(len(ratios))])
    return rows
