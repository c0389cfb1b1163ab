"""Callbacks for transformers, Lightning and accelerate, in realistic scripts."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from backprobe.basics.errors import BackprobeError
from backprobe.integrations.watching import Watching, numbers_of
from backprobe.records import Measured

ENV = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "WANDB_MODE": "disabled"}

TRANSFORMERS = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=32, **sizes))
data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (64, 8))]
args = TrainingArguments("out", max_steps=int(sys.argv[1]), logging_steps=5, report_to=[], use_cpu=True,
                         save_strategy="no", learning_rate=float(sys.argv[2]), lr_scheduler_type="constant",
                         weight_decay=float(sys.argv[3]))
trainer = Trainer(model, args, train_dataset=data)
"""
LIGHTNING = """
import sys, torch
import lightning as L
from lightning.pytorch.loggers import CSVLogger

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        y = self.last(self.first(batch).tanh())
        return (y / float(sys.argv[1])).square().mean()
    def on_after_backward(self):
        if sys.argv[1] == "2":
            raise ValueError("mine")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=float(sys.argv[2]), weight_decay=float(sys.argv[3]))

torch.manual_seed(0)
loader = torch.utils.data.DataLoader(torch.randn(160, 4), batch_size=4)
model = Net()
quiet = dict(logger=CSVLogger("logs", flush_logs_every_n_steps=1), enable_checkpointing=False,
             enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", max_epochs=1)
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, on_main_process

class Lines(GeneralTracker):
    name, requires_logging_directory, tracker = "lines", False, None
    def store_init_configuration(self, values): pass
    @on_main_process
    def log(self, values, step=None, **kwargs):
        print("logged", step, "backprobe/update_ratio/max" in values, "backprobe/weight_norm/weight" in values)

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, log_with=Lines())
accelerator.init_trackers("x")
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = accelerator.prepare(net, optimizer)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        accelerator.backward(net(torch.randn(8, 4)).square().mean())
        optimizer.step()
"""


def ran(folder: Path, script: str, *args: str, fails: bool = False) -> tuple[str, str]:
    """Run `script` in a process of its own; return its standard output and standard error."""
    (folder / "train.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, "train.py", *args], cwd=folder, env=ENV, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stdout, done.stderr


def kept(folder: Path) -> list[str]:
    """The kinds of findings of the only run that was kept."""
    (run,) = (folder / "backprobe-runs").iterdir()
    shown = [sys.executable, "-m", "backprobe", "show", "--json", str(run)]
    done = subprocess.run(shown, cwd=folder, env=ENV, capture_output=True, text=True, timeout=600)
    found = [one["kind"] for one in json.loads(done.stdout)["findings"]]
    assert found == [one["kind"] for one in json.loads((run / "findings.json").read_text())["findings"]]
    return found


#: What a person gets to read of the numbers that trackers get.
PRINTED = ["backprobe/grad_norm/max", "backprobe/update_ratio/median"]


def test_trainer_learns_the_same_and_logs_the_measurements(tmp_path: Path) -> None:
    watched = TRANSFORMERS + (
        "from backprobe.integrations.transformers import BackprobeCallback\n"
        "trainer.add_callback(BackprobeCallback(trainer, layers='lm_head.*'))\n"
    )
    end = """
trainer.train()
rows = trainer.state.log_history
print(sum(p.double().sum() for p in model.parameters()).item(), torch.get_rng_state().sum().item())
print([(row["step"], row["loss"]) for row in rows if "loss" in row])
print([row["step"] for row in rows if "backprobe/update_ratio/max" in row])
print([name for name in rows[0] if name.startswith("backprobe/weight_norm/")])
"""
    alone, _ = ran(tmp_path, TRANSFORMERS + end, "15", "1e-3", "0")
    found, said = ran(tmp_path, watched + end, "15", "1e-3", "0")
    printed = [line for line in found.splitlines() if line.startswith("{'backprobe/")]
    assert len(printed) == 2 and all(list(ast.literal_eval(line)) == PRINTED for line in printed)
    plain = [line for line in found.splitlines() if not line.startswith("{'backprobe/")]
    without = alone.splitlines()
    numbers = [line for line in without if line[:1] != "{"]
    assert [line for line in plain if line[:1] != "{"][:2] == numbers[:2]
    assert numbers[2] == "[]" and plain[-2] == "[5, 15]"
    assert plain[-1] == str([f"backprobe/weight_norm/{name}" for name in ("lm_head.weight", "max", "min", "median")])
    assert "No problems found" in said and "15 steps" in said
    assert kept(tmp_path) == []


def test_trainer_stops_on_an_alarm(tmp_path: Path) -> None:
    script = TRANSFORMERS + (
        "from backprobe.integrations.transformers import BackprobeCallback\n"
        "trainer.add_callback(BackprobeCallback(trainer, stop_on='update-too-large', layer_stats=1, out=None))\n"
        "trainer.train()\n"
        "print('steps', trainer.state.global_step)\n"
    )
    found, said = ran(tmp_path, script, "60", "1e-3", "300")
    steps = int(found.split("steps ")[-1])
    assert 10 < steps < 60
    assert "backprobe: update-too-large: update_ratio of " in said
    assert not (tmp_path / "backprobe-runs").exists()


@pytest.mark.slow
def test_a_failed_training_is_reported(tmp_path: Path) -> None:
    """With a block at once, else at the end of the process."""
    broken = TRANSFORMERS + (
        "from backprobe.integrations.transformers import BackprobeCallback\n"
        "model.lm_head.weight.register_hook(lambda grad: grad / 0)\n"
        "from transformers import TrainerCallback\n"
        "class Fails(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        "        if state.global_step == 2: raise ValueError('mine')\n"
        "trainer.add_callback(Fails())\n"
    )
    block = "with BackprobeCallback(trainer) as callback:\n    trainer.train()\n"
    plain = "trainer.add_callback(BackprobeCallback(trainer))\ntrainer.train()\n"
    for n, end in enumerate((block, plain)):
        folder = tmp_path / str(n)
        folder.mkdir()
        _, said = ran(folder, broken + end, "5", "1e-3", "0", fails=True)
        assert "ValueError: mine" in said and "nonfinite-" in said
        assert kept(folder)[0].startswith("nonfinite-")


@pytest.mark.parametrize(("divisor", "found"), [("1", []), ("0", ["nonfinite-forward"])])
def test_lightning_tells_at_the_end_and_logs(tmp_path: Path, divisor: str, found: list[str]) -> None:
    script = LIGHTNING + (
        "from backprobe.integrations.lightning import BackprobeCallback\n"
        "watched = BackprobeCallback()\n"
        "L.Trainer(callbacks=[watched], **quiet).fit(model, loader)\n"
        "print('done', watched.trace.info['steps'])\n"
    )
    out, said = ran(tmp_path, script, divisor, "0.01", "0")
    assert "done 40" in out
    assert kept(tmp_path)[:1] == found
    assert ("No problems found" in said) is (found == [])
    if not found:
        metrics = next((tmp_path / "logs").rglob("metrics.csv")).read_text().splitlines()
        assert "backprobe/update_ratio/max" in metrics[0] and len(metrics) > 3


def test_lightning_tells_of_an_error_and_stops_on_an_alarm(tmp_path: Path) -> None:
    script = LIGHTNING + (
        "from backprobe.integrations.lightning import BackprobeCallback\n"
        "trainer = L.Trainer(callbacks=[BackprobeCallback(stop_on=['update-too-large'], layer_stats=1)], **quiet)\n"
        "trainer.fit(model, loader)\n"
        "print('steps', trainer.global_step)\n"
    )
    out, said = ran(tmp_path, script, "1", "0.01", "30")
    assert 10 < int(out.split("steps ")[-1]) < 40
    (tmp_path / "fails").mkdir()
    _, said = ran(tmp_path / "fails", script, "2", "0.1", "0", fails=True)
    assert "ValueError: mine" in said and "in 1 step (" in " ".join(said.split())


def test_accelerate_logs_while_the_block_runs(tmp_path: Path) -> None:
    script = ACCELERATE + (
        "from backprobe.integrations.accelerate import watch\n"
        "with watch(accelerator, net, layer_stats=2, layers='*') as watching:\n"
        "    train(6)\n"
        "print('stop', watching.stop, len(watching.trace.findings))\n"
    )
    out, said = ran(tmp_path, script)
    assert out.splitlines() == [*(f"logged {n} True True" for n in (0, 2, 4)), "stop False 0"]
    assert "No problems found" in said and kept(tmp_path) == []


LAUNCHED = ["accelerate", "launch", "--cpu", "--num_processes", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "launcher", "arguments", "calls"),
    [
        (TRANSFORMERS + "trainer.train()\n", [], ["5", "1e-3", "0"], 5),
        (TRANSFORMERS + "trainer.train()\n", LAUNCHED, ["5", "1e-3", "0"], 5),
        (LIGHTNING + "L.Trainer(**quiet).fit(model, loader)\n", [], ["1", "0.01", "0"], 40),
        (ACCELERATE + "train(5)\n", LAUNCHED, [], 5),
    ],
    ids=["transformers", "transformers-launched", "lightning", "accelerate-launched"],
)
def test_the_command_watches_their_scripts_as_they_are(
    tmp_path: Path, script: str, launcher: list[str], arguments: list[str], calls: int
) -> None:
    (tmp_path / "train.py").write_text(script)
    env = {**ENV, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run = [sys.executable, "-m", "backprobe", "run", "--findings", "found.json", *launcher, "train.py", *arguments]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"in {calls} steps|, {calls} backward calls", " ".join(done.stderr.split()))
    assert json.loads((tmp_path / "found.json").read_text())["findings"] == []


def test_what_a_tracker_gets() -> None:
    names = ("weight_norm|a", "weight_norm|b", "lr|0", "grad_max|a")
    measured = Measured(3, names, [1.0, 2.0, 0.5, float("nan")])
    found = numbers_of(measured, lambda name, _: name == "b")
    assert found == {
        "backprobe/weight_norm/b": 2.0,
        "backprobe/weight_norm/max": 2.0,
        "backprobe/weight_norm/min": 1.0,
        "backprobe/weight_norm/median": 1.5,
        "backprobe/lr/max": 0.5,
        "backprobe/nonfinite": 1.0,
    }


def test_options_that_there_are_not() -> None:
    with pytest.raises(BackprobeError, match="unknown option 'stop'; there are level, budget"):
        Watching({"stop": 1})
    with pytest.raises(
        BackprobeError, match="stop_on is 'nan'; it is one of loss-spike, update-too-large, divergence-ahead"
    ):
        Watching({"stop_on": "nan"})


def test_no_framework_is_imported_by_the_package() -> None:
    script = (
        "import sys, backprobe.integrations.watching, backprobe.observe.live, backprobe.commands\n"
        "assert not {'transformers', 'lightning', 'pytorch_lightning', 'accelerate'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
