"""Mistakes after public reports that are made outside of any graph, or over steps, and healthy twins of theirs: what is
named is where a value was born, a memory written, a parameter frozen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from test_reported_mistakes import FAULT_STEP, STEPS, Net, fit, only, train
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backprobe

pytestmark = pytest.mark.filterwarnings("ignore:std.*degrees of freedom")
EARLIER = 30
FORWARD = "nonfinite-forward"


def few(x, step, at=FAULT_STEP):
    """Return a single number in step `at`, and eight numbers in other steps."""
    return x[: 1 if step == at else 8, 0]


def test_a_number_of_python_in_the_loss() -> None:
    def weighted(net, x, step):
        scale = few(x, step).std().item()
        return net(x).square().mean() * scale

    found = only(train(weighted), FORWARD, ".std().item()")
    assert (found.step, found.confidence) == (FAULT_STEP, "likely")


@pytest.mark.parametrize("enters", ["product", "sum", "tensor", "average"])
def test_a_number_that_python_keeps_over_steps(enters) -> None:
    kept = [1.0]

    def weighted(net, x, step):
        loss = net(x).square().mean()
        kept.append(0.9 * kept[-1] + 0.1 * float(few(x, step, EARLIER).std()))
        if step < FAULT_STEP:
            return loss
        if enters == "tensor":
            return (loss * torch.tensor(kept[-4:])).sum()
        mean = sum(kept) / len(kept)
        return loss * mean if enters == "product" else loss + mean if enters == "sum" else loss / mean

    assert only(train(weighted), FORWARD, "float(few(x, step, EARLIER).std())").step == FAULT_STEP


def test_a_number_that_is_only_read() -> None:
    """A NaN that the script reads and does not use is not the cause: the loss has its own."""

    def looked(net, x, step):
        float(few(x, step, EARLIER).std())
        return (net(x).square().mean() - 1e9 * (step == FAULT_STEP)).sqrt()

    only(train(looked), FORWARD, ").sqrt()")


@pytest.mark.parametrize("kind", ["buffer", "rows", "variable"])
def test_state_that_an_empty_mean_got_into(kind) -> None:
    state = {"mean": torch.zeros(3), "rows": torch.zeros(STEPS, 3)}

    def centred(net, x, step):
        h = net(x)
        keep = x[:, 0] > (100 if step == EARLIER else 0)
        with torch.no_grad():
            mean = h[keep].mean(0)
            if kind == "buffer":
                state["mean"].mul_(0.9).add_(mean, alpha=0.1)
            elif kind == "rows":
                state["rows"][step] = mean
            else:
                state["mean"] = 0.9 * state["mean"] + 0.1 * mean
        used = state["rows"][EARLIER - 5 :].mean(0) if kind == "rows" else state["mean"]
        return (h - used if step >= FAULT_STEP else h).square().mean()

    only(train(centred), FORWARD, "h[keep].mean(0)")


def normalised(row):
    centred = row - row.mean()
    return centred / centred.abs().max()


def test_running_statistics_of_a_batch_that_was_skipped() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            net[1].train(step < FAULT_STEP)
            x = torch.randn(16, 6)
            x[3] = 2.5 if step == EARLIER else x[3]
            loss = net(torch.stack([normalised(row) for row in x])).square().mean()
            if math.isfinite(loss.item()) or step >= FAULT_STEP:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    only(trace.findings, FORWARD, "centred / centred.abs().max()")


def test_nothing_times_what_a_mask_left_out() -> None:
    teacher = nn.Linear(6, 3)

    def bootstrap(x, done, legal):
        best = teacher(x).masked_fill(~legal, float("-inf")).max(1).values
        return 0.9 * (~done).float() * best

    def learned(net, x, step, over=True):
        done, legal = torch.zeros(16, dtype=torch.bool), torch.ones(16, 3, dtype=torch.bool)
        legal[:, 1] = False
        done[3] = step >= FAULT_STEP
        legal[3] = legal[3] & ~(done[3] & over)
        with torch.no_grad():
            target = x[:, 0] + bootstrap(x, done, legal)
        return F.smooth_l1_loss(net(x).mean(1), target)

    assert only(train(learned), FORWARD, "0.9 * (~done).float() * best").step == FAULT_STEP
    assert not train(lambda net, x, step: learned(net, x, step, over=False))


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("way", ["array", "list"])
def test_values_from_numpy(way) -> None:
    def standardised(a):
        return (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True)

    def loss(net, x, step):
        if step == FAULT_STEP:
            x[4] = 1.0
        rows = standardised(x.numpy())
        x = torch.from_numpy(rows) if way == "array" else torch.tensor(rows.tolist())
        return net(x).square().mean()

    found = only(train(loss), FORWARD, "/ a.std(1, keepdims=True)")
    assert found.confidence == "likely"


def test_targets_of_inference_mode() -> None:
    teacher = nn.Linear(6, 3)

    @torch.inference_mode()
    def targets(x, step):
        t = teacher(x)
        return t / (t.abs().sum(1, keepdim=True) * (step != FAULT_STEP))

    only(train(lambda net, x, step: F.mse_loss(net(x), targets(x, step).clone())), FORWARD, "t.abs().sum(1")


def test_a_setting_of_the_optimizer() -> None:
    optimizers = []

    def kept(params, lr):
        optimizers.append(torch.optim.SGD(params, lr=lr))
        return optimizers[-1]

    def scheduled(net, step):
        optimizers[-1].param_groups[0]["lr"] = 0.01 * torch.tensor(float(FAULT_STEP - step)).sqrt().item()

    only(train(fit, optimizer=kept, after=scheduled), FORWARD, "torch.tensor(float(FAULT_STEP - step)).sqrt().item()")


def centred_head(width):
    """Eight steps of a model whose result is centred over `width` elements."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, width))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for _ in range(8):
            x = torch.randn(16, 6)
            h = net(x)
            h = h - h.mean(1, keepdim=True)
            optimizer.zero_grad()
            (h * x[:, :width]).mean().backward()
            optimizer.step()
    return trace.findings


def test_gradients_that_add_up_to_zero() -> None:
    found = only(centred_head(1), "zero-grad", "h = h - h.mean(1, keepdim=True)")
    assert len(found.parameters) == 4
    assert "adds up to exactly zero" in found.title
    assert not centred_head(2)


def test_values_overwritten_before_their_inspection() -> None:
    """Targets that are normalised in place: the sum was seen to be Inf, what was summed is not there any more."""

    def sharpened(net, x, step):
        with torch.no_grad():
            q = (net(x) * (1e4 if step == FAULT_STEP else 1.0)).exp().t()
            q /= q.sum()
            for _ in range(2):
                q /= q.sum(1, keepdim=True)
                q /= 3
                q /= q.sum(0, keepdim=True)
        return -(q.t() * net(x).log_softmax(-1)).sum(-1).mean()

    found = only(train(sharpened), FORWARD, ".exp().t()")
    assert (found.step, found.confidence) == (FAULT_STEP, "likely") and found.title.startswith(
        "exp produced Inf outside"
    )


def test_an_intentional_nan_is_not_blamed() -> None:
    def parsed(net, x, step):
        with torch.no_grad():
            rewards = torch.where(x[:8, :1] > (10 if step == FAULT_STEP else 0), x[:8, :1], torch.nan).view(2, 4)
            rewards[0, 0] = 1.0
            valid = ~rewards.isnan()
            spread = (rewards - rewards.nanmean(1, keepdim=True)).square().nansum(1, keepdim=True) / (
                (valid.sum(1, keepdim=True) - 1).clamp(min=0 if step == FAULT_STEP else 1)
            )
            advantage = torch.where(valid, rewards / (spread.sqrt() + 1e-4), torch.zeros_like(rewards)).flatten()
        return (net(x[:8])[:, 0] * advantage).mean()

    found = only(train(parsed), FORWARD, "spread = ")
    assert found.step == FAULT_STEP and found.title.startswith("div produced")


def hooked(frozen, off=False, everywhere=False):
    """Six steps with a backward hook on the body."""
    torch.manual_seed(0)
    net = Net()
    net.body.requires_grad_(not frozen)

    def note(module, given, came):
        seen.append(came[0].norm())

    seen: list = []
    net.body.register_full_backward_hook(note)
    if everywhere:
        net.head.register_full_backward_hook(note)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for _ in range(6):
            x = torch.randn(16, 6)
            with torch.set_grad_enabled(not off):
                h = net.body(x).tanh()
            loss = (net.head(h) + net.aux(h)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [f for f in trace.findings if f.kind == "hook-never-fires"]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_backward_hook_where_nothing_has_a_gradient() -> None:
    assert "frozen" in only(hooked(frozen=True), "hook-never-fires", "net.body.register_full_backward_hook").title
    assert "gradient mode off" in only(hooked(frozen=False, off=True), "hook-never-fires", "net.body.register").title
    assert not hooked(frozen=False)
    assert not hooked(frozen=True, everywhere=True)  # one hook for all: it runs where there is something


class Shown(Net):
    def forward(self, x):
        self.h = self.body(x).tanh()
        return self.head(self.h) + self.aux(self.h)


def centred(batch):
    for one in batch:
        flat = one.reshape(-1)
        flat -= flat.mean()


def projected(net):
    return centred(net.h.data.numpy()[None])


def copied(net):
    return centred(net.h.data.numpy()[None].copy())


def outside(activations):
    return activations.detach().numpy()


def clipped(net):
    array = outside(net.h)
    np.clip(array, 0, 1, out=array)


@pytest.mark.parametrize(
    ("look", "line"), [(projected, "flat -= flat.mean()"), (clipped, "np.clip(array"), (copied, "")]
)
def test_a_write_by_numpy_in_any_step(look, line) -> None:
    torch.manual_seed(0)
    net = Shown()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(net, budget=None) as trace:
        for step in range(STEPS):
            loss = net(torch.randn(16, 6)).square().mean()
            if step == FAULT_STEP + 3:
                look(net)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if line:
        assert only(trace.findings, "silent-mutation", line).step == FAULT_STEP + 3
    else:
        assert not trace.findings


def frozen_but_biases(net, step):
    if step not in (FAULT_STEP, FAULT_STEP + 10):
        return
    for p in net.parameters():
        p.requires_grad_(False)
    for name, p in net.named_parameters():
        if name.endswith("weight"):
            p.requires_grad_(True)


def test_a_model_that_is_frozen_and_thawed_in_part_time_and_again() -> None:
    found = only(train(fit, after=frozen_but_biases), "none-grad", "p.requires_grad_(False)")
    assert found.step == FAULT_STEP + 1
    assert set(found.parameters) == {"body.bias", "head.bias", "aux.bias"}


def on_a_list(everywhere: bool) -> list:
    """A forward hook on the list of blocks, and on nothing else or on all modules."""
    net = nn.ModuleDict({"blocks": nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), "head": nn.Linear(4, 1)})
    norms = []

    def note(module, given, out):
        norms.append(float(out.detach().norm()))

    for module in net.modules() if everywhere else (net["blocks"], net["head"]):
        module.register_forward_hook(note)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with backprobe.trace(budget=None) as trace:
        for _ in range(4):
            h = torch.randn(8, 4)
            for block in net["blocks"]:
                h = block(h).relu() + h
            optimizer.zero_grad()
            net["head"](h).square().mean().backward()
            optimizer.step()
    return [f for f in trace.findings if f.kind == "hook-never-fires"]


def test_a_hook_on_a_list_of_modules() -> None:
    found = only(on_a_list(everywhere=False), "hook-never-fires", "module.register_forward_hook(note)")
    assert "is a ModuleList, which nobody calls" in found.title
    assert not on_a_list(everywhere=True)


class Scaled(nn.Module):
    """Prepares its input outside of any graph."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, wide), nn.Linear(wide, 4)

    def forward(self, x):
        scaled = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return self.last(self.first(scaled))


@pytest.mark.parametrize("wide", [4, 9])
@pytest.mark.parametrize("how", ["plain", "autocast", "checkpoint", "both"])
def test_what_a_layer_prepares_where_its_operation_keeps_nothing_or_a_copy(wide, how) -> None:
    """The graph saves a copy in another dtype, or nothing until the checkpoint is recomputed."""
    torch.manual_seed(0)
    model = Scaled(wide)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with backprobe.trace(model, budget=None) as trace:
        for step in range(FAULT_STEP + 2):
            x = torch.randn(6, 4)
            if step == FAULT_STEP:
                x[2] = 3.0
            with torch.autocast("cpu", torch.bfloat16, enabled=how in ("autocast", "both")):
                run = how in ("checkpoint", "both")
                y = checkpoint(model, x, use_reentrant=False) if run else model(x)
            optimizer.zero_grad()
            y.float().square().mean().backward()
            optimizer.step()
    found = only(trace.findings, FORWARD, "/ x.std(-1, keepdim=True)")
    assert (found.step, found.confidence) == (FAULT_STEP, "certain" if how == "plain" else "likely")
    assert "it entered the graph in linear" in found.title


def test_nonfinite_data_is_not_blamed_on_neighbouring_values() -> None:
    torch.manual_seed(0)
    model = Scaled(4).first
    with backprobe.trace(model, budget=None) as trace:
        for step in range(3):
            x = torch.full((6, 4), math.nan if step == 2 else 1.0)
            with torch.autocast("cpu", torch.bfloat16):
                checkpoint(model, x, use_reentrant=False).float().mean().backward()
    assert [f.evidence["op"] for f in trace.findings if f.kind == FORWARD] == ["linear"]
