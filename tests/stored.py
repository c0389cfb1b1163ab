"""The scripts behind the stored runs in ``corpus/runs``, and a digest of what a reader must find in a run.

``python tests/stored.py corpus/runs/format-N`` writes the runs of the format that this backprobe writes, each with an
``expected.json``. Do that once, before a release that writes a new format; what is there stays as it is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backprobe import records
from backprobe.graphs.packed_calls import pack
from backprobe.records import BackwardCall, Facts, Finding, GradStat, ModuleCall, Node, NodeRun, ParameterStat, Step
from backprobe.store.reader import open_run
from backprobe.store.writer import Writer

#: Script by run, and the options that it was watched with.
SCRIPTS: dict[str, tuple[list[str], str]] = {
    "healthy": (
        [],
        """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
for i in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 3)).square().mean().backward()
    optimizer.step()
""",
    ),
    "nan": (
        [],
        """
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.encoder(x).log())  # of negative numbers too


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
""",
    ),
    "memory": (
        ["--check", "memory", "--histograms", "2"],
        """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(2):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).sum().backward()
    optimizer.step()
""",
    ),
    "ranks": (
        [],
        """
import datetime, os, tempfile, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def worker(rank, store):
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=4)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit)
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    for step in range(2):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        if rank == 1 and step == 1:
            continue
        for p in model.parameters():
            dist.all_reduce(p.grad)
    if rank == 1:
        time.sleep(5)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        mp.spawn(worker, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
    except mp.ProcessRaisedException:  # its text has the paths of this machine
        print("a rank failed")
""",
    ),
}


#: The command, on a machine without a name.
START = "import platform, sys; platform.node = lambda: ''; from backprobe.commands import main; sys.exit(main())"


def make(folder: Path) -> None:
    """Write the runs and what is to be read from them to `folder`."""
    folder.mkdir(parents=True)
    at = Path("/tmp/demo")  # a folder that says nothing of who made them
    at.mkdir()
    for name, (options, script) in SCRIPTS.items():
        (at / "train.py").write_text(script.lstrip())
        command = [sys.executable, "-c", START, "run", "--quiet", *options, "--out", name, "train.py"]
        subprocess.run(command, cwd=at, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
        (folder / name).mkdir()
        shutil.copy(at / name / "run.sqlite", folder / name)
    shutil.rmtree(at)
    every(folder / "every")
    for run in sorted(folder.iterdir()):
        (run / "expected.json").write_text(json.dumps(digest(run), separators=(",", ":")) + "\n")


class Filled:
    """Makes values of a type, each different from the last."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, hint: Any, depth: int = 0) -> Any:
        self._count += 1
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self(args[0], depth) if depth < 3 else None
        if origin is tuple:
            hints = [args[0]] * (2 if depth < 3 else 0) if args[1:] == (Ellipsis,) else args
            return tuple(self(one, depth) for one in hints)
        if origin is Mapping:
            return {"key": f"text {self._count}", "other": f"text {self._count + 1}"}
        if dataclasses.is_dataclass(hint):
            hints = typing.get_type_hints(hint)
            names = [f.name for f in dataclasses.fields(hint)]
            return hint(**{name: self(hints[name], depth + 1) for name in names})  # type: ignore[operator]
        of = {int: self._count, float: self._count + 0.5, bool: self._count % 2 == 0}
        return of.get(hint, f"text {self._count}")


#: Kinds that are part of a step, or stand elsewhere.
PARTS = {
    *(records.Site, GradStat, Node, NodeRun, BackwardCall, ModuleCall, Step, ParameterStat, Finding),
    *(records.BriefSteps, records.Facts, records.Parameter, records.Unseen, records.Aside),
}


def every(folder: Path) -> None:
    """A run of two of each kind of record, with something in each field."""
    filled = Filled()
    kinds = [kind for kind in vars(records).values() if dataclasses.is_dataclass(kind) and kind not in PARTS]
    seen = {kind: (filled(kind), filled(kind)) for kind in kinds}
    sites = [filled(records.Site), None]
    nodes = [
        Node(0, "MulBackward0", 7, "a.b", 2, sites[0], "mul", None, ((1, 0), None)),
        Node(1, "AccumulateGrad", 2**64 - 1, None, 0, None, "", "weight", (), (2, 3)),
    ]
    bad = records.BadValues(1, 2, 6, (2, 3), ((0, 1), (1, 2)))
    stats = [GradStat((2, 3), "float32", 0.5, bad), GradStat((2, 3), "float16", None)]
    runs = [
        NodeRun(nodes[0], 0, 0.25, (GradStat((), "float32", 1.0),), (stats[0], None)),
        NodeRun(nodes[1], 1, None, (stats[1],), ()),
    ]
    hints = typing.get_type_hints(BackwardCall)
    call = BackwardCall(**{name: runs if name == "nodes" else filled(hint) for name, hint in hints.items()})
    call = dataclasses.replace(call, index=4, step=3)
    norms = (ParameterStat("weight", 1.0, 2.0, None), ParameterStat("bias", None, 0.5, 0.25))
    step = Step(3, 0.5, 2.25, (4,), norms, 0.125)
    writer = Writer(folder, {"script": "train.py", "started": 1.0, "steps": 1, "backwards": 1, "seconds": 0.5})
    packed = pack(runs)
    writer.backward(call, packed, packed.layout, True)
    writer.step(step, "trail", lambda: (filled(ModuleCall), filled(ModuleCall)))
    for brief in (
        (4, 0.01, 2, [0.5, 0.25], [1.5, 0.0], [1, 0], [1.0, 1.0], [1, 1], [-1.0, 0.5], [5, 6]),
        (6, 0.01, 0, [0.5, 0.5], [3.0, float("inf")], [2, 2], [8.0, 8.0], [2, 2], [2.0, 2.0], [7, 8, 10, 11]),
    ):
        writer.brief_steps(records.BriefSteps(*brief))  # type: ignore[arg-type]
    writer.measured(records.Measured(6, ("norm", "mean"), [0.5, 2.0]))
    parameters, unseen = (filled(records.Parameter), filled(records.Parameter)), (filled(records.Unseen),)
    facts = facts_of(parameters, unseen, ("memory", "functions"), seen)
    writer.close(facts, [dataclasses.replace(filled(Finding), severity=how) for how in ("error", "warning")])


def facts_of(parameters: Any, unseen: Any, asked: Any, seen: dict[type, tuple[Any, ...]]) -> Facts:
    return Facts(parameters, unseen, asked, tuple(one for of in seen.values() for one in of))


def known(facts: Facts) -> dict[str, list[Any]]:
    """The records of a run as a whole, by kind."""
    found: dict[str, list[Any]] = {}
    for one in (*facts.parameters, *facts.unseen, *facts.seen):
        found.setdefault(type(one).__name__, []).append(dataclasses.asdict(one))
    return found


def node_row(run: NodeRun) -> list[Any]:
    node = run.node
    place = [node.name, node.seq, node.module, node.call, node.site and node.site.line, node.op, node.parameter]
    grads = [[g and [g.shape, g.dtype, g.norm] for g in of] for of in (run.grad_outputs, run.grad_inputs)]
    return [*place, node.edges, node.leaf_shape, run.order, run.seconds, *grads]


def digest(folder: Path) -> Any:
    """All that a stored run has, as JSON has it."""
    trace = open_run(folder)
    steps = []
    for step in trace.steps:
        calls = []
        for call in step.backwards:
            calls.append(dataclasses.asdict(dataclasses.replace(call, nodes=())))
            calls[-1]["nodes"] = [node_row(run) for run in call.nodes]
        modules = [[call.path, call.class_name, call.call, call.outputs] for call in step.module_calls]
        steps.append({**dataclasses.asdict(step.record), "calls": calls, "modules": modules})
    made = {
        "over": trace.over,
        "info": {key: trace.info[key] for key in ("script", "steps", "backwards", "seconds")},
        "asked": trace.facts.asked,
        "findings": [f.as_dict() for f in trace.findings],
        "facts": known(trace.facts),
        "steps": steps,
    }
    trace.close()
    return json.loads(json.dumps(made))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
