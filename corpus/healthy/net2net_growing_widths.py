"""A regressor that grows in mid-run: Net2Wider at one point, Net2Deeper at another.

Right because: each growth preserves the function (checked), the replaced Parameters are put
into a *new* optimizer and the old optimizer and scheduler are thrown away together with the
old tensors; the duplicated units get a little noise so that they part ways.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_friedman1

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Grower(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n_in, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.out(x).squeeze(-1)

    @torch.no_grad()
    def widen(self, at, new_width, gen):
        """Duplicate random units of layer `at`, sharing their outgoing weight."""
        layer = self.layers[at]
        nxt = self.layers[at + 1] if at + 1 < len(self.layers) else self.out
        old = layer.out_features
        src = torch.cat([torch.arange(old), torch.randint(0, old, (new_width - old,), generator=gen)])
        copies = torch.bincount(src, minlength=old).float()
        wide = nn.Linear(layer.in_features, new_width)
        wide.weight.copy_(layer.weight[src])
        wide.bias.copy_(layer.bias[src])
        after = nn.Linear(new_width, nxt.out_features)
        after.weight.copy_(nxt.weight[:, src] / copies[src])
        after.weight[:, old:] += 1e-3 * torch.randn(after.weight[:, old:].shape, generator=gen)
        after.bias.copy_(nxt.bias)
        self.layers[at] = wide
        if nxt is self.out:
            self.out = after
        else:
            self.layers[at + 1] = after

    @torch.no_grad()
    def deepen(self):
        """Insert an identity layer at the end (the input of ReLU is already >= 0)."""
        w = self.out.in_features
        layer = nn.Linear(w, w)
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
        self.layers.append(layer)


def fresh(net, lr):
    opt = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.LinearLR(opt, start_factor=0.2, total_iters=20)
    return opt, sched


def gap(a, b, x):
    with torch.no_grad():
        return (a(x) - b(x)).abs().max().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    x, y = make_friedman1(3000, n_features=8, noise=0.3, random_state=0)
    x = torch.tensor(x, dtype=torch.float32) * 2 - 1
    y = torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)
    net = Grower(8, 12)
    opt, sched = fresh(net, 4e-3)
    for step in range(600):
        if step in (200, 400):
            before = copy.deepcopy(net)
            if step == 200:
                net.widen(0, 32, gen)
                net.widen(1, 32, gen)
            else:
                net.deepen()
            opt, sched = fresh(net, 3e-3)
            print(f"grown at {step}, function changed by {gap(before, net, x[:200]):.4f}, "
                  f"parameters {sum(p.numel() for p in net.parameters())}")
            del before
        idx = torch.randint(0, 2500, (64,), generator=gen)
        loss = F.huber_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 100 == 99:
            with torch.inference_mode():
                print(f"step {step} train {loss.item():.4f} test mse {F.mse_loss(net(x[2500:]), y[2500:]).item():.4f}")


if __name__ == "__main__":
    main()
