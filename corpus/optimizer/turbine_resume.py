"""Surrogate model of a turbine, stopped and resumed at step 160; the checkpoint lacks the scheduler, so after the resume the learning rate warms up and starts again from the top and never decays.

Report: https://github.com/PolymathicAI/the_well/issues/77 (the learning-rate schedule's state is not stored in the checkpoint, so it starts anew and the results differ from an uninterrupted run)
"""
import os
import tempfile

import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "schedule-not-resumed", "line": ("cause", "SCHED"),
    "what": "the scheduler's state is neither saved nor restored, so after resuming the warm-up and decay start from step 0 and the learning rate jumps back up; save and load scheduler.state_dict() too",
    "set": "nineteenth", "written": "2026-11-27",
}

TOTAL = 240
WARMUP = 20


def build():
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9)

    def factor(step):
        if step < WARMUP:
            return (step + 1) / WARMUP
        return max(0.0, (TOTAL - step) / (TOTAL - WARMUP)) ** 2

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)  # SCHED
    return model, optimizer, scheduler


def power(x):
    return (torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3] ** 2 + 0.3 * torch.cos(3 * x[:, 4])).unsqueeze(1)


def get_batch(gen, n=32):
    x = torch.randn(n, 6, generator=gen)
    return x, power(x) + 0.3 * torch.randn(n, 1, generator=gen)


def save(path, model, optimizer, step):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)  # OTHER


def load(path, model, optimizer):
    ckpt = torch.load(path)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])  # CAUSE
    return ckpt["step"]


def run(path, stop_at, resume=False):
    model, optimizer, scheduler = build()
    start = load(path, model, optimizer) if resume else 0
    gen = torch.Generator().manual_seed(100 + start)
    val_x = torch.randn(1000, 6, generator=torch.Generator().manual_seed(5))
    for step in range(start, stop_at):
        x, y = get_batch(gen)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 20 == 0:
            with torch.no_grad():
                val = nn.functional.mse_loss(model(val_x), power(val_x)).item()
            print(f"step {step + 1:3d}  lr {scheduler.get_last_lr()[0]:.4f}  train {loss.item():.4f}  val {val:.4f}")
    save(path, model, optimizer, stop_at)


with tempfile.TemporaryDirectory() as folder:
    checkpoint = os.path.join(folder, "last.pt")
    run(checkpoint, stop_at=160)
    print("job restarted")
    run(checkpoint, stop_at=TOTAL, resume=True)
