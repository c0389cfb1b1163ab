"""``backprobe demo``: ``backprobe run`` on example scripts of the package."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from ..basics.errors import BackprobeError
from ..basics.terminal import say

_EXAMPLES = Path(__file__).parent.parent / "examples"


class Demo:
    """Run an example under backprobe (default: a healthy GPT, then the same one with a mistake)."""

    name = "demo"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("example", nargs="?", help="one of: " + ", ".join(names()))

    def run(self, options: argparse.Namespace) -> int:
        """Run the examples one after the other in new processes; return the first exit code that is not 0."""
        wanted = [options.example] if options.example else ["gpt", "gpt_broken"]
        for name in wanted:
            script = _EXAMPLES / f"{name}.py"
            if not script.is_file():
                raise BackprobeError(f"no example {name!r}; there are {', '.join(names())}")
            say(f"$ backprobe run {name}.py\n")
            done = subprocess.run([sys.executable, "-m", "backprobe", "run", str(script)])
            say()
            if done.returncode:
                return done.returncode
        return 0


def names() -> list[str]:
    """Return the names of the example scripts."""
    return sorted(p.stem for p in _EXAMPLES.glob("*.py") if p.stem != "__init__")
