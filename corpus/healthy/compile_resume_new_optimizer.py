"""torch.compile (aot_eager, then eager) with a save / load / resume in the middle of the run.

Right because: the first process state (model, optimizer, scheduler, RNG) is written to a
buffer and read back into a *new* model and a *new* optimizer built over the new model's
parameters; the state dict is taken from the uncompiled module so the keys fit; evaluation
runs on the original module, which shares the parameters with its compiled wrapper.
"""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Gated(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b, self.c = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        h = self.norm(x)
        return x + self.c(F.silu(self.a(h)) * self.b(h))


class Classifier(nn.Module):
    def __init__(self, n_in=30, d=32):
        super().__init__()
        self.inp = nn.Linear(n_in, d)
        self.blocks = nn.Sequential(Gated(d), Gated(d))
        self.out = nn.Linear(d, 1)
        self.register_buffer("mean", torch.zeros(n_in))
        self.register_buffer("std", torch.ones(n_in))

    def forward(self, x):
        return self.out(self.blocks(self.inp((x - self.mean) / self.std))).squeeze(1)


def setup(x):
    net = Classifier()
    net.mean.copy_(x.mean(0))
    net.std.copy_(x.std(0))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30) * 0.995 ** s)
    return net, opt, sched


def save(net, opt, sched, step):
    buf = io.BytesIO()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                "rng": torch.get_rng_state(), "step": step}, buf)
    buf.seek(0)
    return buf


def run(net, opt, sched, backend, data, first, last):
    x, y = data
    fast = torch.compile(net, backend=backend, dynamic=False)
    fast.train()
    for step in range(first, last):
        idx = torch.randint(0, 400, (40,))
        mix = torch.rand(40, 1) * 0.2
        other = idx[torch.randperm(40)]
        xb = (1 - mix) * x[idx] + mix * x[other]
        yb = (1 - mix.squeeze(1)) * y[idx] + mix.squeeze(1) * y[other]
        loss = F.binary_cross_entropy_with_logits(fast(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 49:
            net.eval()
            with torch.no_grad():
                acc = ((net(x[400:]) > 0).float() == y[400:]).float().mean().item()
            net.train()
            print(f"{backend} step {step} loss {loss.item():.4f} acc {acc:.3f} lr {sched.get_last_lr()[0]:.2e}")
    return last


def main():
    torch.manual_seed(0)
    x, y = load_breast_cancer(return_X_y=True)
    perm = torch.randperm(len(x))
    data = torch.tensor(x, dtype=torch.float32)[perm], torch.tensor(y, dtype=torch.float32)[perm]
    net, opt, sched = setup(data[0][:400])
    step = run(net, opt, sched, "aot_eager", data, 0, 200)
    file = save(net, opt, sched, step)
    del net, opt, sched
    torch._dynamo.reset()

    state = torch.load(file)
    net, opt, sched = setup(data[0][:400])
    net.load_state_dict(state["net"])
    opt.load_state_dict(state["opt"])
    sched.load_state_dict(state["sched"])
    torch.set_rng_state(state["rng"])
    run(net, opt, sched, "eager", data, state["step"], 400)


if __name__ == "__main__":
    main()
