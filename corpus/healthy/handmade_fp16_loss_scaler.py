"""Mixed precision by hand: fp32 master weights, a half-precision copy, dynamic loss scaling.

Right because: the scale starts so high that the first backward passes overflow to Inf by
design; those steps are skipped (no optimizer step, scale halved) and the scale grows again
after 80 good steps, so an overflow now and then is normal; gradients are unscaled in
fp32 before clipping; the fp16 copy's gradients are cleared in each step, taken or not.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Scaler:
    def __init__(self, scale=2.0 ** 24, patience=80):
        self.scale, self.patience, self.good, self.skipped = scale, patience, 0, 0

    def update(self, overflow):
        if overflow:
            self.scale, self.good = max(self.scale / 2, 1.0), 0
            self.skipped += 1
        else:
            self.good += 1
            if self.good == self.patience:
                self.scale, self.good = self.scale * 2, 0


class MasterWeights:
    """fp32 parameters which shadow those of an fp16 module."""

    def __init__(self, half):
        self.half = list(half.parameters())
        self.full = [nn.Parameter(p.detach().float().clone()) for p in self.half]

    def pull(self, scale):
        """Unscale fp16 gradients into the masters; returns True on overflow."""
        grads = [p.grad.float() / scale for p in self.half]
        if not all(torch.isfinite(g).all() for g in grads):
            return True
        for f, g in zip(self.full, grads):
            f.grad = g
        return False

    @torch.no_grad()
    def push(self):
        for h, f in zip(self.half, self.full):
            h.copy_(f)

    def clear(self):
        for h in self.half:
            h.grad = None


def build():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x).half() / 16, torch.tensor(y)
    net = build().half()
    master, scaler = MasterWeights(net), Scaler()
    opt = torch.optim.AdamW(master.full, lr=1e-3, weight_decay=1e-2)
    steps, taken, order = 500, 0, torch.randperm(1400)
    for step in range(steps):
        at = step * 64 % 1344
        if at == 0:
            order = torch.randperm(1400)
        idx = order[at:at + 64]
        loss = F.cross_entropy(net(x[idx]).float(), y[idx])
        (loss * scaler.scale).backward()
        overflow = master.pull(scaler.scale)
        if not overflow:
            nn.utils.clip_grad_norm_(master.full, 1.0)
            opt.step()
            master.push()
            taken += 1
        opt.zero_grad()
        master.clear()
        scaler.update(overflow)
        if step % 100 == 99:
            with torch.inference_mode():
                acc = (net(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} scale 2^{torch.tensor(scaler.scale).log2().item():.0f} "
                  f"taken {taken} skipped {scaler.skipped} test acc {acc:.3f}")


if __name__ == "__main__":
    main()
