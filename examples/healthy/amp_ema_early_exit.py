"""Healthy: bf16 autocast, GradScaler(enabled=False), EMA by deepcopy, early stop, lr schedule, clipping."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"kind": None}


class EMA:
    def __init__(self, model, decay=0.99):
        self.module, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.state_dict().values(), model.state_dict().values()):
            if e.dtype.is_floating_point:
                e.mul_(self.decay).add_(p, alpha=1 - self.decay)
            else:
                e.copy_(p)


def main():
    torch.manual_seed(0)
    x = torch.randn(128, 10)
    y = (x[:, 0] + x[:, 1] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    net = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 2))
    ema, best, patience = EMA(net), 1e9, 0
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=40)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for epoch in range(10):
        for xb, yb in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(net(xb), yb, label_smoothing=0.1)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            sched.step()
            ema.update(net)
        with torch.no_grad():
            val = nn.functional.cross_entropy(ema.module(x), y).item()
        best, patience = (val, 0) if val < best - 1e-3 else (best, patience + 1)
        if patience >= 3:
            break
    print(best)


if __name__ == "__main__":
    main()
