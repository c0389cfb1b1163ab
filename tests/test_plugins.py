"""Third-party packages: findings and sinks by entry points. Failures in them are left out and reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
MODULE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
ENTRY_POINTS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]

SCRIPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(5):
    optimizer.zero_grad()
    x = torch.ones(4, 3) * (100 if step == 3 else 1)
    (model(x).square().mean() + 0 * torch.zeros(())).backward()  # HERE
    optimizer.step()
print("as alone", sys.argv[1:])
"""

BROKEN = """
from backprobe.findings import Kind, rule
from backprobe.records import Finding

def kind(name, **more):
    return Kind(name, "info", "for a test", **({"after": "zero-grad"} | more))

def finding(kind, **more):
    return Finding(**({"kind": kind, "severity": "info", "title": "a title", "confidence": "certain"} | more))

def plain(trace):
    return []

@rule(kind("none-grad"))
def taken(trace):
    return []

@rule(kind("mine", after=None, rank=530))
def rank_taken(trace):
    return []

@rule(kind("mine", after="a-kind-that-is-not"))
def after_nothing(trace):
    return []

@rule(kind("mine"), silences=("a-kind-that-is-not",))
def silences_nothing(trace):
    return []

@rule(kind("raises"))
def raises(trace):
    raise ValueError("no answer\\nat all")

@rule(kind("raises-each"), each_call=True)
def raises_each(call, facts):
    raise KeyError(call.index)

@rule(kind("other"))
def other_kind(trace):
    return [finding("none-grad")]

@rule(kind("no-severity"))
def no_severity(trace):
    return [finding("no-severity", severity="bad")]

@rule(kind("no-finding"))
def no_finding(trace):
    return ["something is wrong"]

@rule(kind("no-text"))
def no_text(trace):
    return [finding("no-text", title=7)]

@rule(kind("lists"))
def lists(trace):
    return [finding("lists", parameters=["weight"])]

@rule(kind("odd-keys"))
def odd_keys(trace):
    return [finding("odd-keys", evidence={(1, 2): 3})]

@rule(kind("exits"))
def exits(trace):
    raise SystemExit(9)

@rule(kind("works"))
def works(trace):
    return [finding("works", evidence={"object": object})]

def no_sink(info):
    raise OSError("no space left")

class Fails:
    def __init__(self, info):
        self.info = info
    def backward(self, recorded):
        raise RuntimeError("a sink failed")
    def step(self, step, session):
        raise AssertionError("it was told that it is over")

class FailsToClose:
    def __init__(self, info):
        pass
    def backward(self, recorded):
        pass
    def step(self, step, session):
        pass
    def close(self, trace, findings):
        raise RuntimeError("could not close")
"""
WHY = {
    "after_nothing": "ValueError: mine comes after a-kind-that-is-not, which has no place",
    "exits": "SystemExit: 9",
    "lists": "TypeError: unhashable type: 'list'",
    "missing": "AttributeError: module 'broken_backprobe' has no attribute 'missing'",
    "no_finding": "TypeError: it gave a str, not a Finding",
    "no_severity": "ValueError: the severity 'bad' is not one of error, warning, info",
    "no_text": "TypeError: its texts have to be of type str, its step an int or None",
    "odd_keys": "TypeError: keys must be str, int, float, bool or None, not tuple",
    "other_kind": "ValueError: it gave a finding of kind 'none-grad', which it does not state",
    "plain": "TypeError: it is a function, not a rule: decorate it with backprobe.findings.rule",
    "raises": "ValueError: no answer at all",
    "raises_each": "KeyError: 0",
    "rank_taken": "ValueError: mine has the rank 530 of zero-grad",
    "silences_nothing": "ValueError: broken_backprobe.silences_nothing names a-kind-that-is-not, which is no kind",
    "taken": "ValueError: the kind none-grad is stated twice",
}
SINKS_WHY = {
    "no_sink": "OSError: no space left",
    "Fails": "RuntimeError: a sink failed",
    "FailsToClose": "RuntimeError: could not close",
}
NEEDS_TORCH = """
import torch
from backprobe.findings import Kind, rule

@rule(Kind("needs-torch", "info", "for a test", after="zero-grad"))
def asks(trace):
    return [] if torch.ones(1) else []
"""


def install(site: Path, module: str, text: str, entry_points: str) -> None:
    """Install a package with one module into `site`, as an installer would."""
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in `folder`, with the packages that are installed in its ``site``."""
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder where the package of ``docs/plugins.md`` is installed, and a script to run."""
    points = re.sub(r'project\.entry-points\."(.+)"', r"\1", ENTRY_POINTS).replace('"', "")
    install(tmp_path / "site", "my_backprobe", MODULE, points)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_an_installed_package_finds_and_listens(installed: Path) -> None:
    done = python(installed, "-m", "backprobe", "run", "--out", "run", "--findings", "f.json", "train.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (0, "as alone ['--lr', '1']\n"), done.stderr
    (found,) = json.loads((installed / "f.json").read_text())["findings"]
    assert (found["kind"], found["step"], found["sites"][0]["role"]) == ("loss-jumped", 3, "failed")
    assert found["sites"][0]["line"] == next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if "HERE" in line)
    assert "1. loss-jumped  warning, certain" in done.stderr
    assert "plugin" not in done.stderr
    *steps, kinds = map(json.loads, (installed / "losses.jsonl").read_text().splitlines())
    assert [(one["step"], one["calls"]) for one in steps] == [(i, i + 1) for i in range(5)]
    assert kinds == ["loss-jumped"]
    # Of a stored run, the findings are those that were stored: the package is not needed to read them.
    for one in (installed / "site").glob("my_backprobe*/*"):
        one.unlink()
    shown = python(installed, "-m", "backprobe", "show", "--json", "run")
    assert [f["kind"] for f in json.loads(shown.stdout)["findings"]] == ["loss-jumped"], shown.stderr


def test_a_failing_plugin_is_left_out_and_reported_once(tmp_path: Path) -> None:
    findings = "".join(f"{name} = broken_backprobe:{name}\n" for name in (*WHY, "works"))
    sinks = "".join(f"{name} = broken_backprobe:{name}\n" for name in SINKS_WHY)
    points = f"[backprobe.findings]\nabsent = a_module_that_is_not:x\n{findings}[backprobe.sinks]\n{sinks}"
    install(tmp_path / "site", "broken_backprobe", BROKEN, points)
    (tmp_path / "train.py").write_text(SCRIPT + "(model(x) / 0).sum().backward()\n")
    done = python(tmp_path, "-m", "backprobe", "run", "--out", "run", "--findings", "f.json", "train.py")
    assert (done.returncode, done.stdout) == (0, "as alone []\n"), done.stderr
    kinds = [f["kind"] for f in json.loads((tmp_path / "f.json").read_text())["findings"]]
    assert kinds == ["nonfinite-forward", "works"]
    for report in (done.stderr, python(tmp_path, "-m", "backprobe", "show", "run").stdout):
        said = " ".join(report.split())
        for group, names in (("findings", WHY), ("sinks", SINKS_WHY)):
            for name, why in names.items():
                line = f"Not seen: 1 plugin {name} (a plugin of backprobe.{group} failed, and was left out: {why})"
                assert said.count(line) == 1, (name, said)
        assert "plugin absent (a plugin of backprobe.findings failed, and was left out: ModuleNotFoundError" in said
        assert said.count("Not seen: 1 plugin") == len(WHY) + len(SINKS_WHY) + 1


def test_runs_are_read_without_torch_beside_a_plugin_that_needs_it(installed: Path) -> None:
    install(installed / "site", "needs_torch", NEEDS_TORCH, "[backprobe.findings]\nneedy = needs_torch:asks\n")
    block = SCRIPT.replace("for step", "import backprobe\nwith backprobe.trace(model) as trace:\n  for step", 1)
    block = re.sub(r"^    ", "      ", block, flags=re.MULTILINE)
    (installed / "block.py").write_text(
        block
        + "assert [f.kind for f in trace.findings] == ['loss-jumped']\n"
        + "assert not trace.coverage.unseen\ntrace.save('run')\n"
        + "assert backprobe.diagnose(model, lambda: model(x).sum()) == []\n"  # sinks do not hear of a single loss
    )
    made = python(installed, "block.py")
    assert made.returncode == 0, made.stderr
    assert len((installed / "losses.jsonl").read_text().splitlines()) == 6  # the sink heard the block
    (installed / "read.py").write_text(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import backprobe\n"
        "from backprobe import Trace\n"
        "read = backprobe.load_run('run')\n"
        "assert [f.kind for f in read.findings] == ['loss-jumped'] and not read.coverage.unseen\n"
        "again = Trace(read.steps, read.facts)\n"  # as of a run that was cut off, which has no findings yet
        "assert [f.kind for f in again.findings] == ['loss-jumped']\n"
        "(one,) = again.coverage.unseen\n"
        "assert one.what == 'plugin needy' and 'ModuleNotFoundError' in one.note, one\n"
    )
    done = python(installed, "read.py")
    assert done.returncode == 0, done.stderr


def test_a_topic_of_a_plugin_can_be_asked_for(installed: Path) -> None:
    module = installed / "site" / "my_backprobe.py"
    asked = 'after="exploding-gradient"),\n    topic=Topic("losses", "steps with a much larger loss"),\n'
    module.write_text(
        MODULE.replace("import Kind,", "import Kind, Topic,").replace('after="exploding-gradient")\n', asked)
    )
    (installed / "ask.py").write_text(
        "import argparse, sys\n"
        "from backprobe.commands import main\n"
        "from backprobe.commands.run import Run\n"
        "from backprobe.records import Facts, Step\n"
        "from backprobe import Trace\n"
        "from backprobe.traces import TracedStep\n"
        "parser = argparse.ArgumentParser()\n"
        "Run().arguments(parser)\n"
        "topics = tuple(parser.parse_args(['--check', 'losses', 'train.py']).check)\n"
        "steps = [TracedStep(Step(i, 0.1, loss, ()), ()) for i, loss in enumerate([1.0, 50.0])]\n"
        "print([[f.kind for f in Trace(steps, Facts(asked=ask)).findings] for ask in ((), topics)])\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(main(['run', '--check', 'everything', 'train.py']))\n"
    )
    done = python(installed, "ask.py")
    assert (done.returncode, done.stdout) == (2, "[[], ['loss-jumped']]\n"), done.stderr
    topics = "'functions', 'compiled', 'divergence', 'checkpoints', 'levels', 'losses'"
    assert f"invalid choice: 'everything' (choose from {topics}" in done.stderr
