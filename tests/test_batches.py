"""Saved batches of steps with an alarm or an error, and functions called on alarms."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import launched
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as optim
from torch.utils.checkpoint import checkpoint

import backprobe
from backprobe.basics.errors import BackprobeError
from backprobe.integrations.watching import Watching
from backprobe.observe.statistics.numbers import Numbers
from backprobe.records import Finding, KeptBatch, Unseen
from backprobe.store.batches import Batch, BatchCall, LeftOut, packed


class Named(nn.Module):
    """Called by keyword, with what is no tensor too."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x: Any, batch: Any = None, flag: bool = True, how: Any = None) -> Any:
        out = checkpoint(self.body, x, use_reentrant=False) if how == "checkpoint" else self.body(x)
        return out if batch is None else F.cross_entropy(out, batch["y"])


def steps(count: int, seed: int = 0) -> Iterator[tuple[int, Any, Any]]:
    generator = torch.Generator().manual_seed(seed)
    for step in range(count):
        yield step, torch.randn(8, 4, generator=generator), torch.randint(2, (8,), generator=generator)


def made(lr: float = 1.0) -> tuple[Named, Any]:
    torch.manual_seed(0)
    model = Named()
    return model, torch.optim.Adam(model.parameters(), lr=lr)


def trained(
    loss: Any, count: int = 24, after: Any = lambda x, y: None, **options: Any
) -> tuple[Any, list[tuple[Any, Any]]]:
    """A trace of a run with updates that are too large, and what was given in each step."""
    model, optimizer = made()
    given = []
    with backprobe.trace(model, **{"layer_stats": 1, "save_batch": True, "budget": None} | options) as trace:
        for _, x, y in steps(count):
            given.append((x.clone(), y.clone()))
            optimizer.zero_grad()
            loss(model, x, y).backward()
            after(x, y)
            optimizer.step()
    return trace, given


def plain(model: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(model(x), y)


def kept(trace: Any) -> list[KeptBatch]:
    return list(trace.facts.of(KeptBatch))


def only(trace: Any) -> KeptBatch:
    (one,) = kept(trace)
    return one


@pytest.mark.parametrize("budget", [None, "5%", "1000%"])
def test_the_batch_of_an_alarm_has_the_arguments_of_the_model_and_the_loss(budget: Any, tmp_path: Path) -> None:
    trace, given = trained(plain, budget=budget)
    one = only(trace)
    (alarm,) = [found for found in trace.findings if found.kind == "update-too-large"]
    assert (one.step, one.why, one.notes) == (alarm.evidence["noticed"], "update-too-large", ())
    assert one.nbytes == 8 * 4 * 4 + 8 * 8
    run = backprobe.load_run(trace.save(tmp_path / "run"))
    again = backprobe.load_run(run.save(tmp_path / "again"))
    for batch in (trace.batch(), run.batch(one.step), again.batch()):
        x, y = given[one.step]
        assert (batch.step, batch.why) == (one.step, one.why)
        (call,) = batch.calls
        assert call.kind == "Named" and call.trained and dict(batch.kwargs) == {}
        assert len(batch.args) == len(batch.targets) == 1
        assert torch.equal(batch.args[0], x) and torch.equal(batch.targets[0], y)


def test_keyword_and_non_tensor_arguments_are_restored(tmp_path: Path) -> None:
    class Pair(NamedTuple):
        a: Any
        b: float

    def loss(model: Any, x: Any, y: Any) -> Any:
        return model(x, batch={"y": y, "same": x, 3: [Pair(x[0], 0.5)], "of": object()}, flag=False, how="checkpoint")

    trace, given = trained(loss)
    one = only(trace)
    x, y = given[one.step]
    batch = backprobe.load_run(trace.save(tmp_path / "run")).batch()
    assert one.calls == len(batch.calls) == 1  # what a checkpoint calls again in backward is no call
    assert torch.equal(batch.args[0], x)
    assert [*batch.kwargs] == ["batch", "flag", "how"]
    assert (batch.kwargs["flag"], batch.kwargs["how"]) == (False, "checkpoint")
    inside = batch.kwargs["batch"]
    assert inside["same"] is batch.args[0]
    assert torch.equal(inside["y"], y)
    ((row, number),) = inside[3]
    assert torch.equal(row, x[0]) and number == 0.5
    assert inside["of"] == LeftOut("a object")
    assert batch.targets == ()  # they are among the arguments
    model, _ = made()
    assert model(*batch.args, **batch.kwargs).isfinite()


def test_a_loss_that_is_a_module_is_a_call_and_keeps_no_graph() -> None:
    criterion = nn.CrossEntropyLoss()
    trace, given = trained(lambda model, x, y: criterion(model(x), y))
    batch = trace.batch()
    assert [call.kind for call in batch.calls] == ["Named", "CrossEntropyLoss"]
    assert isinstance(batch.calls[1].args[0], LeftOut)
    assert torch.equal(batch.calls[1].args[1], given[batch.step][1])
    assert torch.equal(batch.args[0], given[batch.step][0])


@pytest.mark.parametrize("budget", [None, "1000%"])
def test_numbers_that_come_a_look_later_as_those_of_an_accelerator(budget: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Numbers, "all_on_host", False)
    trace, given = trained(plain, 60, layer_stats=3, budget=budget)
    (alarm,) = [found for found in trace.findings if found.kind == "update-too-large"]
    steps_kept = [one.step for one in kept(trace)]
    assert alarm.evidence["noticed"] in steps_kept
    assert [step % 3 for step in steps_kept] == [0] * len(steps_kept)
    for step in steps_kept:
        assert torch.equal(trace.batch(step).args[0], given[step][0])
        assert torch.equal(trace.batch(step).targets[0], given[step][1])


def test_an_in_place_change_after_the_call_is_reported() -> None:
    trace, _ = trained(plain, after=lambda x, y: x.zero_())
    said = "argument 0 of model was changed in place after the call: these are the values after that"
    assert only(trace).notes == (said,)
    assert not trace.batch().args[0].any()


def test_tensors_beyond_the_size_limit_are_left_out_and_reported() -> None:
    large = torch.zeros(1 << 19)
    trace, given = trained(lambda model, x, y: plain(model, x, y) + 0 * model(x, how=large).sum(), max_batch_mb=1)
    one, batch = only(trace), trace.batch()
    assert one.notes == ("argument how of model is left out: 2 MiB, beyond the space for batches",)
    assert [torch.equal(call.args[0], given[one.step][0]) for call in batch.calls] == [True, True]
    assert repr(batch.calls[1].kwargs["how"]) == "<not kept: 2 MiB, beyond the space for batches>"
    with pytest.raises(BackprobeError, match="max_batch_mb=0: give 1 or more"):
        backprobe.trace(save_batch=True, max_batch_mb=0)


@pytest.mark.parametrize(
    ("budget", "count", "bad", "value"),
    [
        (None, 6, 2, torch.nan),
        ("5%", 6, 2, torch.nan),
        (None, 600, 500, torch.nan),
        ("5%", 600, 500, torch.nan),
        (None, 6, 2, torch.inf),  # tanh gives 1 for it
    ],
)
def test_the_batch_of_a_step_that_is_not_finite(budget: Any, count: int, bad: int, value: float) -> None:
    model, optimizer = made(1e-3)
    given = []
    with backprobe.trace(model, save_batch=True, budget=budget) as trace:
        for step, x, y in steps(count):
            given.append((x, y))
            optimizer.zero_grad()
            x[3, 1] = value if step == bad else 0.0
            plain(model, x, y).backward()
            optimizer.step()
    first = only(trace)
    assert (first.step, first.why) == (bad, "a gradient is not finite" if value > 0 else "the loss is not finite")
    batch = trace.batch(bad)
    assert torch.equal(batch.args[0].nan_to_num(9), given[bad][0].nan_to_num(9))
    assert torch.equal(batch.targets[0], given[bad][1])


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_batch_of_a_step_that_raises(where: str) -> None:
    model, optimizer = made(1e-3)

    def broken(grad: Any) -> None:
        raise ValueError("odd")

    with pytest.raises((RuntimeError, ValueError)), backprobe.trace(model, save_batch=True, budget="5%") as trace:
        for step, x, y in steps(300):
            optimizer.zero_grad()
            if step == 250 and where == "forward":
                x = x[:, :3]
            loss = model(x, batch={"y": y})
            if step == 250 and where == "backward":
                loss.register_hook(broken)
            loss.backward()
            optimizer.step()
    one = only(trace)
    assert one.step == 250
    assert one.why in ("the script raised RuntimeError", "backward raised an error", "backward raised ValueError")
    batch = trace.batch()
    assert torch.equal(batch.args[0], x) and torch.equal(batch.kwargs["batch"]["y"], y)


def test_an_error_after_the_last_step_is_no_error_of_its_batch() -> None:
    model, optimizer = made(1e-3)
    with pytest.raises(OSError), backprobe.trace(model, save_batch=True) as trace:
        for _, x, y in steps(4):
            plain(model, x, y).backward()
            optimizer.step()
        raise OSError("no space left")
    assert kept(trace) == []


def test_steps_of_a_script_that_updates_by_hand() -> None:
    model, _ = made()
    given = []
    with backprobe.trace(model, save_batch=True) as trace:
        for step, x, y in steps(6):
            x[0, 0] = torch.nan if step == 4 else 0.0
            given.append(x)
            model.zero_grad()
            plain(model, x, y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
    assert only(trace).step == 4
    assert torch.equal(trace.batch(4).args[0].nan_to_num(9), given[4].nan_to_num(9))


def test_several_calls_of_a_step_and_none_of_an_evaluation() -> None:
    model, optimizer = made()
    given: list[list[Any]] = []
    with backprobe.trace(model, save_batch=True, layer_stats=1, budget=None) as trace:
        for step, x, y in steps(40):
            given.append([])
            optimizer.zero_grad()
            for part in (slice(0, 4), slice(4, 8)):
                given[step].append(x[part].clone())
                plain(model, x[part], y[part]).backward()
            optimizer.step()
            with torch.no_grad():
                for _ in range(3):
                    model(x + 1)
    batch = trace.batch()
    assert [call.kind for call in batch.calls] == ["Named", "Named"]
    assert all(torch.equal(call.args[0], x) for call, x in zip(batch.calls, given[batch.step], strict=True))


def test_of_many_calls_the_last_are_kept() -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        return sum(plain(model, x + i / 100, y) for i in range(20))

    trace, given = trained(loss)
    batch = trace.batch()
    assert batch.notes == ("the last 16 of 20 calls are there",)
    assert torch.equal(batch.calls[-1].args[0], given[batch.step][0] + 19 / 100)


def test_an_overflow_that_a_scaler_is_there_for_is_no_error() -> None:
    model, optimizer = made(1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with backprobe.trace(model, save_batch=True, layer_stats=1) as trace:
        for _, x, y in steps(5):
            optimizer.zero_grad()
            scaler.scale(plain(model, 100 * x, y)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() < 2.0**127
    assert kept(trace) == []


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Leave what other tests of the process hold out of the collections of this one: there can be a lot of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("budget", [None, "5%"])
def test_nothing_of_a_step_that_is_over_is_held(budget: Any) -> None:
    model, optimizer = made(1e-3)
    inputs: list[Any] = []
    outputs: list[Any] = []
    with backprobe.trace(model, save_batch=True, layer_stats=2, budget=budget):
        for _, x, y in steps(60):
            optimizer.zero_grad()
            out = model(x)
            F.cross_entropy(out, y).backward()
            optimizer.step()
            inputs.append(weakref.ref(x))
            outputs.append(weakref.ref(out))
            del x, y, out
            gc.collect()
            alive = [i for i, ref in enumerate(inputs) if ref() is not None]
            assert len(alive) <= 2 and alive[0] >= len(inputs) - 2
            assert not any(ref() is not None for ref in outputs)
    gc.collect()
    assert not any(ref() is not None for ref in inputs)


def test_training_is_bit_for_bit_as_alone() -> None:
    def weights(watch: bool) -> list[Any]:
        model, optimizer = made()
        torch.manual_seed(1)
        trace = backprobe.trace(model, save_batch=True, layer_stats=3, on_alarm=print) if watch else None
        if trace is not None:
            trace.__enter__()
        for _ in range(30):
            optimizer.zero_grad()
            model(F.dropout(torch.randn(8, 4), 0.3), batch={"y": torch.randint(2, (8,))}).backward()
            optimizer.step()
        if trace is not None:
            trace.__exit__(None, None, None)
        return [*model.parameters(), torch.rand(3)]

    every = nn.modules.module
    hooks = every._global_forward_hooks, every._global_forward_pre_hooks, optim._global_optimizer_post_hooks
    before = [list(one) for one in hooks]
    assert all(map(torch.equal, weights(True), weights(False)))
    assert [list(one) for one in hooks] == before


def test_loading_a_batch_that_was_not_saved_raises(tmp_path: Path) -> None:
    trace, _ = trained(plain, save_batch=False)
    with pytest.raises(BackprobeError, match="no batch was kept: --save-batch and save_batch=True keep that of"):
        trace.batch()
    trace, _ = trained(plain)
    step = only(trace).step
    with pytest.raises(BackprobeError, match=f"no batch was kept of step 3, but of {step}"):
        trace.batch(3)
    folder = trace.save(tmp_path / "run")
    file = folder / only(trace).file
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(BackprobeError, match="is damaged"):
        backprobe.load_run(folder).batch()
    file.unlink()
    with pytest.raises(BackprobeError, match="is not there"):
        backprobe.load_run(folder).batch()


def test_a_batch_as_it_is_written() -> None:
    same = torch.ones(2)
    call = BatchCall("", "Linear", True, (same, [same, (1, "a")]), {"b": LeftOut("a Graph")})
    tensors, header = packed(Batch(3, "loss-spike", (call,), (same,), ("a note",)))
    assert [*tensors] == ["0.args.0"]
    told = json.loads(header["backprobe"])
    assert told["calls"][0]["args"] == {
        "tuple": [{"tensor": "0.args.0"}, [{"tensor": "0.args.0"}, {"tuple": [1, "a"]}]]
    }
    assert told["calls"][0]["kwargs"] == {"dict": [["b", {"left_out": "a Graph"}]]}


# Functions called on alarms


def test_a_callback_of_a_framework_takes_both(tmp_path: Path) -> None:
    told: list[str] = []
    options = {"layer_stats": 1, "save_batch": True, "out": tmp_path / "run", "quiet": True}
    watching = Watching({**options, "on_alarm": lambda finding: told.append(finding.kind)})
    model, optimizer = made()
    watching.begin(model, "here")
    given = []
    for _, x, y in steps(24):
        given.append(x)
        optimizer.zero_grad()
        plain(model, x, y).backward()
        optimizer.step()
    assert told == ["update-too-large"] == [alarm.kind for alarm in watching.alarms]
    watching.end()
    batch = backprobe.load_run(tmp_path / "run").batch()
    assert torch.equal(batch.args[0], given[batch.step])


@pytest.mark.parametrize("budget", [None, "1000%"])
def test_an_alarm_function_runs_as_if_the_script_called_it(budget: Any) -> None:
    model, optimizer = made()
    told: list[tuple[Finding, int]] = []
    now = [0]

    def tell(finding: Finding) -> None:
        assert torch.is_grad_enabled() and torch._C._is_torch_function_enabled()
        told.append((finding, now[0]))
        optimizer.param_groups[0]["lr"] = 1e-4
        model(torch.ones(1, 4))  # a forward of its own disturbs nothing

    rates = []
    with backprobe.trace(model, on_alarm=tell, layer_stats=1, budget=budget) as trace:
        for step, x, y in steps(40):
            now[0] = step
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            plain(model, x, y).backward()
            optimizer.step()
    ((finding, at),) = told
    (found,) = [one for one in trace.findings if one.kind == finding.kind]
    assert (finding.title, finding.sites, finding.evidence) == (found.title, found.sites, found.evidence)
    assert finding.evidence["noticed"] <= at <= finding.evidence["noticed"] + 1
    assert rates == [1.0] * (at + 1) + [1e-4] * (39 - at)
    assert not trace.facts.of(KeptBatch)


def test_the_last_alarms_are_passed_on_at_the_end() -> None:
    noticed = only(trained(plain)[0]).step
    model, optimizer = made()
    told: list[str] = []
    with backprobe.trace(model, on_alarm=lambda finding: told.append(finding.kind), layer_stats=1) as trace:
        for _, x, y in steps(noticed + 1):
            optimizer.zero_grad()
            plain(model, x, y).backward()
            optimizer.step()
        assert told == []
    assert told == ["update-too-large"] == [one.kind for one in trace.findings]


def test_an_alarm_function_that_fails_is_reported_once(capsys: Any) -> None:
    model, optimizer = made()
    calls = []

    def tell(finding: Finding) -> None:
        calls.append(finding)
        raise ValueError("no place")

    def end(finding: Finding) -> None:
        raise SystemExit(4)

    for call in (tell, end):
        model, optimizer = made()
        steps_done = 0
        try:
            with backprobe.trace(model, on_alarm=call, layer_stats=1) as trace:
                for _, x, y in steps(40):
                    optimizer.zero_grad()
                    plain(model, x, y).backward()
                    optimizer.step()
                    steps_done += 1
        except SystemExit as stop:
            assert stop.code == 4
        assert steps_done == 40 if call is tell else steps_done < 40
        if call is tell:
            said = Unseen(
                "function for alarms", 1, "it raised, and was not called again: ValueError: no place", hides=False
            )
            assert said in trace.coverage.unseen
    assert len(calls) == 1
    err = capsys.readouterr().err
    assert err.count("backprobe: your function for alarms raised, and is not called again: ValueError: no place") == 1


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1.0)

def slower(finding):
    optimizer.param_groups[0]["lr"] = 1e-3
    print("told", finding.kind)

for step in range(60):
    x, y = torch.randn(16, 4), torch.randint(2, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print("lr", optimizer.param_groups[0]["lr"])
"""


def command(folder: Path, *options: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    (folder / "other.py").write_text("def tell(finding):\n    print('other', finding.kind)\n")
    line = [sys.executable, "-m", "backprobe", "run", "--out", "run", *options, "train.py"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_command_keeps_the_batch_and_calls_a_function_of_the_script(tmp_path: Path) -> None:
    done = command(tmp_path, "--save-batch", "--on-alarm", "__main__:slower", "--layer-stats", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "told update-too-large\nlr 0.001\n"
    run = backprobe.load_run(tmp_path / "run")
    batch = run.batch()
    torch.manual_seed(0)
    [nn.Linear(4, 32), nn.Linear(32, 2)]
    for _ in range(batch.step + 1):
        x, y = torch.randn(16, 4), torch.randint(2, (16,))
    assert torch.equal(batch.args[0], x) and torch.equal(batch.targets[0], y)
    said = " ".join(done.stderr.split())
    file = f"run/batch-{batch.step:06d}.safetensors"
    load = f"backprobe.load_run('run').batch({batch.step})"
    assert f"Batch of step {batch.step} (update-too-large): {file}, {load}" in said
    shown = subprocess.run(
        [sys.executable, "-m", "backprobe", "show", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert file in " ".join(shown.stdout.split())


def test_a_function_of_another_module_and_one_that_is_not_there(tmp_path: Path) -> None:
    done = command(tmp_path, "--on-alarm", "other:tell", "--layer-stats", "1")
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("other update-too-large", "lr 1.0")
    (tmp_path / "2").mkdir()
    done = command(tmp_path / "2", "--on-alarm", "other:nothing", "--layer-stats", "1")
    assert (done.returncode, done.stdout) == (0, "lr 1.0\n")
    assert "is not called again: AttributeError: module 'other' has no attribute 'nothing'" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--on-alarm", "nowhere_at_all:tell"), "--on-alarm nowhere_at_all:tell: no module named 'nowhere_at_all'"),
        (("--on-alarm", "tell"), "'tell' is not MODULE:FUNCTION"),
        (("--save-batch", "--no-keep"), "--save-batch keeps a batch with the run: leave out --no-keep"),
    ],
)
def test_options_that_cannot_be_followed(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = command(tmp_path, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_command_keeps_the_batch_of_an_error(tmp_path: Path) -> None:
    script = SCRIPT.replace("optimizer.zero_grad()", "optimizer.zero_grad(); y[2] = 7 * (step == 5)")
    done = command(tmp_path, "--save-batch", script=script.replace("lr=1.0", "lr=1e-3"))
    assert done.returncode == 1
    batch = backprobe.load_run(tmp_path / "run").batch()
    assert batch.step == 5 and batch.args[0].shape == (16, 4)


@pytest.mark.slow
def test_each_rank_keeps_its_own(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done, _ = launched.run(
        tmp_path, launched.TORCHRUN, "--out", "kept", "--save-batch", launcher=launcher, how=("nan",)
    )
    job = backprobe.load_run(tmp_path / "kept")
    batch = job.ranks[1].batch()
    assert (batch.step, batch.why) == (1, "the loss is not finite")
    torch.manual_seed(0)
    nn.Linear(3, 1)
    x = [torch.randn(8, 3), torch.randn(8, 3)][1]
    assert torch.equal(batch.args[0], x)
    assert only(job.ranks[1]).file in " ".join(done.stderr.split())
    assert only(job.ranks[0]).step == 2  # its weights are by then
