"""Gradient noise is switched on after 120 steps, by a hook. The switch is inside the loop, so that from then on every tenth
step registers one more hook on the optimizer, and the noise grows."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "hooks pile up",
    "kind": "hooks-pile-up",
    "line": ["hook", "cause"],
    "what": "The hook that adds noise before a step is registered in every tenth step after the warmup instead of once.",
    "symptom": "no error; the loss rises slowly",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)


class NoisyTraining:
    def __init__(self, model, scale=1e-3, warmup=120):
        self.model, self.scale, self.warmup = model, scale, warmup
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def add_noise(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.add_(torch.randn_like(p.grad), alpha=self.scale)

    def step(self, n, x, y):
        if n >= self.warmup and n % 10 == 0:
            self.optimizer.register_step_pre_hook(self.add_noise)  # <-- cause
        loss = (self.model(x) - y).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
training = NoisyTraining(model)
for n in range(420):
    x = torch.randn(256, 10)
    loss = training.step(n, x, x.prod(1, keepdim=True).tanh())
    if n % 70 == 69:
        print(f"step {n}  loss {loss:.4f}")
