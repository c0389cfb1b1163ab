"""``backprobe bench``: what watching costs on a script of the user's own."""

from __future__ import annotations

import argparse
import statistics
import sys

from ..errors import BackprobeError
from .script import script_arguments, script_of

_TOOLS = ("plain", "watch", "trace", "detect_anomaly")


class Bench:
    """Measure what watching costs on your own script: each step runs plain or under one of the tools, by lot.

    The ratios are to the plain steps of the same run. The script needs a few hundred optimizer steps to tell.
    """

    name = "bench"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        script_arguments(parser)

    def run(self, options: argparse.Namespace) -> int:
        script = script_of(options)
        from ..observe.benching import Alternate
        from ..observe.launch import launch
        from ..observe.session import Settings
        from ..view.parts import Line, Part, Table
        from ..view.terminal import write

        alternate = Alternate(list(_TOOLS))
        code = launch(*script, alternate, Settings(), alternate.begin, lambda error: alternate.end())
        rows = table(alternate.times)
        if not rows:
            raise BackprobeError(
                f"{alternate.steps} optimizer steps are too few to compare {len(_TOOLS)} tools: "
                "let the script run longer"
            )
        parts: list[Part] = [
            Line(f"Time of a step against the plain step, {alternate.steps} steps, by lot", "head"),
            Table(("tool", "median", "quartiles", "steps"), rows),
        ]
        write(parts, sys.stderr)
        return code


def table(times: dict[str, dict[int, list[float]]]) -> list[list[str]]:
    """Rows of ratios: each step to the median plain step of the same optimizer."""
    plain = {key: statistics.median(v) for key, v in times["plain"].items() if len(v) >= 5}
    rows = []
    for tool, by in times.items():
        ratios = [t / plain[key] for key, v in by.items() if key in plain for t in v]
        if len(ratios) < 5:
            return []
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append([tool, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", str(len(ratios))])
    return rows
