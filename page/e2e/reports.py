"""Reports for the page's tests, from real runs: `python reports.py OUT [--page PAGE] [--big FOLDER]`.

Writes OUT/NAME.html for each run and OUT/expected.json: what `backprobe show --json` says of it, and figures that are
worked out here from the records, by another way than the report's. With `--page`, the reports have that page instead of
the package's own. Large runs are made once in FOLDER and kept there; delete it after a change of what a run holds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

E2E_FOLDER = Path(__file__).resolve().parent
ROOT = E2E_FOLDER.parents[1]
DATA = re.compile(r'<script id="data" type="text/plain">([^<]*)</script>')
KILLED = """
import os, signal, torch
from torch import nn
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    if step == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()
"""
#: Trains well for forty steps; then a mask makes the argument of a logarithm zero.
LATE_NAN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(41):
    target = torch.randint(0, 3, (8,))
    probabilities = model(torch.randn(8, 8)).softmax(-1)
    if step == 40:
        probabilities = probabilities * (target != 0).float()[:, None]
    loss = -probabilities[torch.arange(8), target].log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
#: Its updates are a large part of the weights all along.
LEVELS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=0.5)
for step in range(60):
    optimizer.zero_grad()
    (model(torch.randn(8, 8)) * torch.randn(8, 3)).mean().backward()
    optimizer.step()
"""
#: Keeps every loss with its graph.
LEAK = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
history = []
for step in range(40):
    loss = model(torch.randn(512, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    history.append(loss)
"""
#: The critic adds the gradients of the generator's loss to its own; one weight is changed outside of steps.
LEDGER = """
import torch
from torch import nn
torch.manual_seed(0)
noise = nn.Linear(4, 4).requires_grad_(False)
generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-2)
for_critic = torch.optim.SGD(critic.parameters(), lr=1e-2)
for step in range(12):
    for_generator.zero_grad()
    fake = generator(noise(torch.randn(8, 4)))
    critic(fake).square().mean().backward()
    nn.utils.clip_grad_norm_(generator.parameters(), 1e-3)
    for_generator.step()
    critic(fake.detach()).abs().mean().backward()
    for_critic.step()
    for_critic.zero_grad()
    if step == 3:
        with torch.no_grad():
            generator[0].weight.mul_(0.5)
"""
#: One step, compared with others: `scale` is what one operation of it is called with.
COMPARED = """
import sys, torch
from torch import nn
class Net(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.scale = scale
    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)) * (self.scale if number == 2 else 1.0)
        return x
torch.manual_seed(0)
dtype = getattr(torch, sys.argv[2])
model = Net(float(sys.argv[1])).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 16).to(dtype)).square().mean().backward()
    optimizer.step()
"""
#: Files of programs may be called so where the system allows it.
FOLDER, FILE = "<script>alert(5)<", "script>\"&'\U0001f92f a.py"


def backprobe(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-m", "backprobe", *arguments], cwd=cwd, capture_output=True, text=True)
    return done.stdout


def runs(out: Path) -> dict[str, Path]:
    """Run every script; by name, the folder of its run."""
    scripts = out / "scripts"
    hostile = scripts / FOLDER / FILE
    hostile.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(E2E_FOLDER / "hostile_model.py", hostile)
    written = {"killed": KILLED, "late": LATE_NAN, "leak": LEAK, "levels": LEVELS, "ledger": LEDGER}
    for name, text in written.items():
        (scripts / f"{name}.py").write_text(text)
    killed, late, leak, levels, ledger = (scripts / f"{name}.py" for name in written)
    examples = ROOT / "examples"
    commands: dict[str, tuple[list[str], Path]] = {
        "nan": ([], examples / "failures" / "fully_masked_attention_row.py"),
        "raised": (["--check", "memory"], examples / "failures" / "dropout_relu_inplace_after_sigmoid_gate.py"),
        "healthy": ([], examples / "healthy" / "moco_momentum_encoder.py"),
        "hostile": (["--check", "memory"], hostile),
        "killed": ([], killed),
        "late": ([], late),
        "leak": ([], leak),
        "levels": (["--check", "levels", "--layer-stats", "2", "--budget", "none"], levels),
        "ledger": (["--budget", "none"], ledger),
    }
    found = {}
    for name, (options, script) in commands.items():
        folder = out / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        start = scripts if name == "hostile" else script.parent  # the folder's name is to be seen too
        script_name = str(script.relative_to(start))
        backprobe("run", "--quiet", *options, "--out", str(folder), script_name, "--an", "<b>&", cwd=start)
        found[name] = folder
    return found


def expected(folder: Path) -> dict[str, Any]:
    from backprobe.store.reader import open_run

    trace = open_run(folder)
    calls = []
    for step in trace.steps:
        for call in step.backwards:
            lines: dict[str, dict[str, Any]] = {}
            for run in call.nodes:
                if run.node.site is None:
                    continue
                row = lines.setdefault(str(run.node.site.line), {"file": run.node.site.file, "seconds": []})
                row["seconds"].append(run.seconds)
            raised = None if call.raised is None else call.raised.type
            calls.append({"step": call.step, "index": call.index, "lines": lines, "raised": raised})
    losses = [s.loss for s in trace.steps if s.loss is not None]
    return {
        "findings": json.loads(backprobe("show", "--json", str(folder)))["findings"],
        "steps": len(trace.steps),
        "losses": [v if math.isfinite(v) else str(v) for v in losses],
        "calls": calls,
        "error": trace.info.get("error"),
        "parameters": [p.name for p in trace.parameters],
        "ledger": {p.name: periods(trace, p.name) for p in trace.parameters},
    }


def periods(trace: Any, name: str) -> list[dict[str, Any]]:
    """Return the periods of one parameter: how many had the same events, with the lines of all but the step."""
    from backprobe.records import LedgerRow

    found: dict[Any, dict[str, Any]] = {}
    for row in trace.facts.of(LedgerRow):
        if name in row.parameters:
            events = tuple((one.what, one.times, one.site and one.site.line) for one in row.events[:-1])
            entry = {"first": row.first, "last": row.last, "times": 0, "lines": [line for *_, line in events]}
            same = found.setdefault((row.optimizer, events, row.events[-1].what), entry)
            same["first"], same["last"] = min(same["first"], row.first), max(same["last"], row.last)
            same["times"] += row.periods
    return sorted(found.values(), key=lambda one: one["first"])


def report(folder: Path, file: Path, page: str | None) -> None:
    said = backprobe("report", str(folder), "-o", str(file))
    if not file.is_file():
        raise SystemExit(f"no report was written for {folder}: {said}")
    put(file, page)


def put(file: Path, page: str | None) -> None:
    """Put the data of a report into another page."""
    if page is not None:
        data = DATA.search(file.read_text(encoding="utf-8"))
        assert data is not None, "the report has no data"
        text = DATA.sub(lambda _: data.group(0), page, count=1)
        file.write_text(text, encoding="utf-8")


def compared(out: Path, page: str | None) -> None:
    """Pages of compared runs: a pair that differs, and three runs of which two agree but for rounding."""
    script = out / "scripts" / "<i>compared.py"
    script.write_text(COMPARED)
    folder = out / "compared"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, given in (("plain", ["0.5", "float32"]), ("fault", ["0.25", "float32"]), ("low", ["0.5", "bfloat16"])):
        backprobe("run", "--quiet", "--record-ops", "--out", str(folder / name), str(script), *given)
    for file, names in (("compared", ["plain", "fault"]), ("many", ["plain", "fault", "low"])):
        target = out / f"{file}.html"
        said = backprobe("compare", *names, "--html", str(target), cwd=folder)
        if not target.is_file():
            raise SystemExit(f"no page was written of {names}: {said}")
        put(target, page)


def framed(file: Path) -> None:
    """The report as a notebook shows it: inside a frame without an origin of its own."""
    from backprobe.report.html import frame
    from backprobe.store.reader import open_run

    text = frame(open_run(file.parent / "runs" / "nan"))
    report_text = file.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    text = re.sub(r'srcdoc="[^"]*"', lambda _: f'srcdoc="{report_text}"', text, count=1)
    file.with_name("framed.html").write_text(f"<!doctype html><title>frame</title>{text}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--big", type=Path)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    page = options.page.read_text(encoding="utf-8") if options.page else None
    found = runs(out)
    everything = {name: expected(folder) for name, folder in found.items()}
    (out / "expected.json").write_text(json.dumps(everything))
    big = options.big or out / "big"
    if not (big / "steps").is_dir():
        subprocess.run([sys.executable, str(E2E_FOLDER / "big.py"), str(big)], check=True)
    for name, folder in {**found, "nodes": big / "nodes", "steps": big / "steps"}.items():
        report(folder, out / f"{name}.html", page)
    framed(out / "nan.html")
    compared(out, page)


if __name__ == "__main__":
    main()
