"""``backprobe explain`` and ``backprobe schema``: documentation of findings, without a network and without torch."""

from __future__ import annotations

import argparse
import sys

from ..basics.terminal import console, say


class Explain:
    """Explain a kind of finding: what it says, why it matters, an example, what to do, known limits.

    Without KIND it lists all kinds, the most important first. KIND may be 'skill': instructions for a model that debugs
    a gradient.
    """

    name = "explain"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("kind", nargs="?", help="a kind of finding, such as none-grad")

    def run(self, options: argparse.Namespace) -> int:
        """Print the page of a kind, the instructions for a model ("skill"), or the table of all kinds; return 0."""
        from ..findings import pages

        if options.kind is not None:
            _write(pages.skill() if options.kind == "skill" else pages.page(options.kind))
            return 0
        from ..findings import SEVERITIES, all_rules
        from ..view.parts import Table
        from ..view.terminal import write

        known = all_rules()
        topics = {kind.name: rule.topic for rule in known.rules for kind in rule.kinds}
        rows = []
        for kind in sorted(known.kinds, key=lambda kind: SEVERITIES.index(kind.severity)):
            topic = topics[kind.name]
            rows.append(
                [kind.name, kind.severity, kind.summary if topic is None else f"{kind.summary} (--check {topic.name})"]
            )
        write([Table(("kind", "severity", "what it says"), rows, words=True)], sys.stdout)
        return 0


class Schema:
    """Print the JSON Schema of the output of 'backprobe run --findings' and 'backprobe show --json'."""

    name = "schema"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add no arguments: the command has none."""
        pass

    def run(self, options: argparse.Namespace) -> int:
        """Print the JSON Schema of findings; return 0."""
        from ..findings import pages

        say(pages.schema(), end="")
        return 0


def _write(markdown: str) -> None:
    """Print Markdown: rendered on a terminal, otherwise as it is."""
    if not sys.stdout.isatty():
        say(markdown, end="")
        return
    from rich.markdown import Markdown

    console(sys.stdout).print(Markdown(markdown))
