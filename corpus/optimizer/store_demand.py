"""Reptile over shops with similar demand; the snapshot of the meta weights is overwritten by the inner steps, so the meta step does nothing.
Report: https://github.com/dvgodoy/PyTorchStepByStep/pull/28 (model.state_dict() gives references, the saved state changes while training; deepcopy is needed; also pytorch/tutorials pull 188)

`before + eps * (after - before)` is always equal to `after`, so the meta model is just the net fitted to the latest noisy shops.
The squared error on new shops (last print) is about 6.6 (before adapting), 4.0 in a copy with a real snapshot.
"""
import copy

import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "weights_before holds references to the live parameters (state_dict does not copy), so the inner SGD overwrites it and the Reptile interpolation is a no-op; deep-copy or clone the state dict",
    "set": "twentysecond", "written": "2026-11-28",
}

FEATURES, SHOTS = 24, 12
INNER_STEPS, META_ITERS, META_LR, INNER_LR = 8, 40, 0.2, 0.06


class Shop:
    def __init__(self, common, gen):
        self.weights = common + 0.2 * torch.randn(FEATURES, generator=gen)
        self.gen = gen

    def sample(self, n):
        x = torch.randn(n, FEATURES, generator=self.gen)
        demand = x @ self.weights + 0.5 * torch.relu(x[:, 0]) + 1.5 * torch.randn(n, generator=self.gen)
        return x, demand[:, None]


class DemandNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.skip = nn.Linear(FEATURES, 1)
        self.hidden = nn.Linear(FEATURES, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.skip(x) + self.out(torch.relu(self.hidden(x)))


def adapt(net, shop, steps):
    opt = torch.optim.SGD(net.parameters(), lr=INNER_LR)
    x, y = shop.sample(SHOTS)
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def error_on_new_shops(model, common, steps, n=10):
    gen = torch.Generator().manual_seed(99)
    total = 0.0
    for _ in range(n):
        shop = Shop(common, gen)
        learner = copy.deepcopy(model)
        if steps:
            adapt(learner, shop, steps)
        with torch.no_grad():
            x, y = shop.sample(200)
            total += nn.functional.mse_loss(learner(x), y).item() / n
    return total


torch.manual_seed(3)
gen = torch.Generator().manual_seed(11)
common = torch.randn(FEATURES, generator=gen)
model = DemandNet()
for it in range(META_ITERS):
    weights_before = model.state_dict()  # CAUSE
    inner_loss = adapt(model, Shop(common, gen), INNER_STEPS)
    weights_after = model.state_dict()
    model.load_state_dict({
        k: weights_before[k] + META_LR * (weights_after[k] - weights_before[k]) for k in weights_before
    })
    if it % 10 == 9:
        print(f"meta iteration {it + 1}: inner loss {inner_loss:.3f} new shops {error_on_new_shops(model, common, 0):.2f}")
print(f"new shops: before adapting {error_on_new_shops(model, common, 0):.2f}, after 2 steps {error_on_new_shops(model, common, 2):.2f}")
