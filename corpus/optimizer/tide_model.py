"""Trains a tide predictor in two sessions with a checkpoint in between; after the resume the learning-rate schedule starts over.

Report: https://github.com/PolymathicAI/the_well/pull/63 (the optimizer state is saved and loaded but not that of lr_scheduler, so a resumed run restarts the warmup and the cosine decay)

Effect: after step 120 the learning rate begins again at the bottom of the warmup, and at the end it is still high instead of near zero: the error of the predicted curve ends several times as large as with the restored schedule.
"""
import math
import os
import tempfile
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "schedule-not-resumed", "line": ("cause", "CAUSE"),
    "what": "The scheduler state is neither saved nor loaded with the checkpoint, so after the resume the warmup and the decay start again from step 0; save and load scheduler.state_dict() too.",
    "set": "eighteenth", "written": "2026-11-27",
}

TOTAL, WARMUP = 240, 30


def lr_factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (TOTAL - WARMUP))))


def build():
    model = nn.Sequential(nn.Linear(6, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-2, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)
    return model, optimizer, scheduler


def batch(gen, n=32):
    t = torch.rand(n, 1, generator=gen) * 24
    feats = torch.cat([f(t * w) for w in (0.26, 0.52, 0.87) for f in (torch.sin, torch.cos)], 1)
    height = torch.sin(0.52 * t) * torch.cos(0.26 * t + 0.4) + 0.3 * torch.sin(1.74 * t)
    return feats, height + 0.25 * torch.randn(height.shape, generator=gen), height


def run_session(first, last, path=None, save_to=None):
    torch.manual_seed(first)
    gen = torch.Generator().manual_seed(100 + first)
    model, optimizer, scheduler = build()
    if path:
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])  # CAUSE
        print(f"resumed at step {ckpt['step']}")
    test_x, _, test_y = batch(torch.Generator().manual_seed(5), 800)
    for step in range(first, last):
        x, y, _ = batch(gen)
        lr = optimizer.param_groups[0]["lr"]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 19:
            with torch.no_grad():
                error = nn.functional.mse_loss(model(test_x), test_y).item()
            print(f"step {step} lr {lr:.5f} loss {loss.item():.4f} error of the curve {error:.5f}")
    if save_to:
        state = {"step": last, "model": model.state_dict(), "optimizer": optimizer.state_dict(),  # OTHER
                 "loss": loss.item()}
        torch.save(state, save_to)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "last.pt")
        run_session(0, 120, save_to=file)
        run_session(120, TOTAL, path=file)
