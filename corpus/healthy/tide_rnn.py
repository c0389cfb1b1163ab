"""Trains a recurrent network over long series in pieces, the state is carried on without its graph and the gradients are clipped; stops after half and resumes from a checkpoint. Nothing goes wrong."""
import os
import tempfile
import torch
import torch.nn as nn

EXPECT = {"framework": "plain", "kind": None, "set": "eighteenth", "written": "2026-11-27"}

PIECE, ROWS, PIECES = 16, 12, 120


def build():
    model = nn.ModuleDict({"rnn": nn.LSTM(1, 40, batch_first=True), "out": nn.Linear(40, 1)})
    opt = torch.optim.Adam(model.parameters(), lr=8e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=PIECES)
    return model, opt, sched


def load_series():
    g = torch.Generator().manual_seed(0)
    t = torch.arange(PIECE * PIECES + 1).float()
    phase = torch.rand(ROWS, 1, generator=g) * 6.28
    return (torch.sin(0.25 * t + phase) * torch.cos(0.06 * t) + 0.02 * torch.randn(ROWS, len(t), generator=g))[..., None]


def train(series, first, last, path, resume):
    torch.manual_seed(1)
    model, opt, sched = build()
    state = None
    if resume:
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["opt"])
        sched.load_state_dict(ckpt["sched"])
        state = ckpt["state"]
    for k in range(first, last):
        lo = k * PIECE
        x, y = series[:, lo:lo + PIECE], series[:, lo + 1:lo + PIECE + 1]
        hidden, state = model["rnn"](x, state)
        state = tuple(s.detach() for s in state)
        loss = nn.functional.mse_loss(model["out"](hidden), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if k % 15 == 14:
            print(f"piece {k} loss {loss.item():.4f} norm {norm.item():.3f} lr {sched.get_last_lr()[0]:.5f}")
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "state": state}, path)


if __name__ == "__main__":
    data = load_series()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "half.pt")
        train(data, 0, 60, file, resume=False)
        train(data, 60, PIECES, file, resume=True)
