"""The reports of the gallery: `python docs/gallery.py OUT` runs each script and writes OUT/NAME.html.

What was found stands in OUT/reports.json; `docs/site.py` makes the page of them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Report:
    """A report in the gallery.

    :ivar command: of ``backprobe``; ``{run}`` is the folder of the run, ``{page}`` the page.
    :ivar look: what to look at first.
    """

    name: str
    title: str
    command: Sequence[str]
    look: str

    @property
    def compares(self) -> bool:
        return self.command[0] == "compare"

    def typed(self) -> str:
        """The command as a person types it, from the repository's folder."""
        words = [word for word in self.command if word not in ("--out", "{run}")]
        return shlex.join(["backprobe", *words]).replace("'{page}'", "page.html")


def _run(script: str) -> tuple[str, ...]:
    return "run", "--out", "{run}", script


REPORTS = (
    Report(
        "healthy",
        "A small GPT that trains well",
        _run("backprobe/examples/gpt.py"),
        "Nothing was found, so the page is a picture of the training: the gradient of every parameter over the steps, "
        "the flow through the modules, where the time and the memory of the backward went.",
    ),
    Report(
        "attention",
        "NaN from a row that is masked altogether",
        _run("examples/failures/fully_masked_attention_row.py"),
        "The finding opens on the node that made the first NaN. Its evidence says what went in; Source shows the line "
        "among what ran.",
    ),
    Report(
        "vanishing",
        "A deep network that begins too small",
        _run("examples/failures/deep_tanh_small_init.py"),
        "The heat map: one row a parameter, one column a step. The gradient shrinks from layer to layer.",
    ),
    Report(
        "no-gradient",
        "An encoder that stops learning in mid-run",
        _run("examples/failures/late_no_grad_encoder.py"),
        "Curves of the encoder's parameters end where its gradients do; the finding names the step and the line.",
    ),
    Report(
        "memory",
        "Losses that are kept with their graphs",
        _run("examples/failures/losses_list_on_trainer.py"),
        "Memory grows by one graph a step: how much, who holds it, and what is in it.",
    ),
    Report(
        "ranks",
        "Two processes that began with weights of their own",
        _run("corpus/ranks/drift_seed.py"),
        "The table of ranks, and the first parameter that differs between them.",
    ),
    Report(
        "compared",
        "The same script in float32 and in bfloat16",
        (*("compare", "--html", "{page}", "--", "backprobe/examples/convnet.py"), *("--vs", "--dtype", "bfloat16")),
        "Both runs side by side, op by op, with their distance from what float64 gives.",
    ),
)


def make(shown: Report, out: Path) -> dict[str, Any]:
    """Run it, write its page, and tell what was found.

    :raises RuntimeError: there is no page.
    """
    page = out / f"{shown.name}.html"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / shown.name
        backprobe = [sys.executable, "-m", "backprobe"]
        command = [word.format(run=run, page=page) for word in shown.command]
        command = [str(ROOT / word) if (ROOT / word).is_file() else word for word in command]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*backprobe, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        found: list[dict[str, Any]] = []
        if not shown.compares:
            subprocess.run([*backprobe, "report", str(run), "-o", str(page)], check=True, capture_output=True)
            said = subprocess.run([*backprobe, "show", "--json", str(run)], check=True, capture_output=True, text=True)
            found = json.loads(said.stdout)["findings"]
    if not page.is_file():
        raise RuntimeError(f"{shown.typed()} wrote no page, and ended with {done.returncode}: {done.stderr[-2000:]}")
    if shown.compares:  # what stands between the settings and the modules
        said_of_it = next(line for line in done.stdout.splitlines() if " results" in line)
        return {"name": shown.name, "kind": None, "found": said_of_it}
    first = found[0] if found else {"kind": None, "title": ""}
    return {"name": shown.name, "kind": first["kind"], "found": first["title"]}


def main(out: Path) -> None:
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    told = [make(shown, out) for shown in REPORTS]
    (out / "reports.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
