"""LAMB written by hand without the case of zero norms: a head that starts at zero joins with a weight that still is zero, and its trust ratio is 0 / 0.

Report: https://github.com/cybertronai/pytorch-lamb/pull/6 (set trust_ratio to 1 if weight_norm or adam_norm is 0; stockeh/mlx-optimizers issue 36 has the NaN)
"""
import torch
from torch import nn

EXPECT = {
    "class": "optimizer-step", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 151,
    "set": "sixth", "written": "2026-11-22",
}


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                adam_step = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
                if group["weight_decay"] != 0:
                    adam_step.add_(p, alpha=group["weight_decay"])
                weight_norm = p.pow(2).sum().sqrt().clamp(0, 10)
                adam_norm = adam_step.pow(2).sum().sqrt()
                trust_ratio = weight_norm / adam_norm  # CULPRIT
                p.add_(adam_step * trust_ratio, alpha=-group["lr"])  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.label, self.value = nn.Linear(32, 3), nn.Linear(32, 1)
        for head in (self.label, self.value):
            nn.init.normal_(head.bias, std=0.02)
        nn.init.zeros_(self.value.weight)

    def forward(self, x):
        h = self.trunk(x)
        return self.label(h), self.value(h)[:, 0]


def ramp(step, start=150, length=50):
    return min(1.0, (step - start) / length)


torch.manual_seed(0)
net = Net()
optimizer = Lamb([*net.trunk.parameters(), *net.label.parameters()], lr=1e-2)
for step in range(200):
    x = torch.randn(32, 8)
    label, value = net(x)
    loss = nn.functional.cross_entropy(label, x[:, :3].argmax(1))
    if step == 150:
        optimizer.add_param_group({"params": list(net.value.parameters())})
    if step >= 150:
        loss = loss + ramp(step) * nn.functional.mse_loss(value, x[:, 3] * x[:, 4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or not loss.isfinite():
        print(step, loss.item())
