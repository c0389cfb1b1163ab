"""Fine-tuning with a gentler backbone: at the start of each epoch the gradients of the backbone are halved by a hook.
The first epochs look fine, later the backbone stops and the loss stays where it is: the hooks are registered anew each
epoch and never removed, so in epoch n the gradient is multiplied by 0.5 to the power n."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "hooks pile up",
    "kind": "hooks-pile-up",
    "line": ["hook", "cause"],
    "what": "A gradient-scaling hook is registered on each backbone parameter every epoch without removing the former one; the scales multiply (0.5 ** epoch) and the backbone's gradients shrink to nothing.",
    "symptom": "no error; backbone gradient norm halves from epoch to epoch, learning stops",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(10)
torch.set_num_threads(1)


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 24), nn.Tanh())
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


class GradScaleCallback:
    """Multiplies the backbone's gradients by a factor."""

    def __init__(self, factor):
        self.factor = factor

    def on_epoch_start(self, model):
        for p in model.backbone.parameters():
            p.register_hook(lambda grad: grad * self.factor)  # <-- cause


def load():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)
    x = (x - x.mean(0)) / (x.std(0) + 1e-3)
    return x, torch.tensor(digits.target)


def run_epoch(model, optimizer, x, y):
    order = torch.randperm(len(x))
    total, norms = 0.0, []
    for i in range(0, len(x) - 127, 128):
        idx = order[i:i + 128]
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.cat([p.grad.flatten() for p in model.backbone.parameters()]).norm().item())
        optimizer.step()
        total += loss.item()
    return total / len(norms), sum(norms) / len(norms)


x, y = load()
model = Tuned()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
callbacks = [GradScaleCallback(0.5)]
for epoch in range(14):
    for callback in callbacks:
        callback.on_epoch_start(model)
    loss, norm = run_epoch(model, optimizer, x, y)
    if epoch % 2 == 1:
        print(f"epoch {epoch:2d}  step {14 * (epoch + 1):3d}  loss {loss:.4f}  mean backbone gradient norm {norm:.2e}")
