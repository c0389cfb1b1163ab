"""A ReLU-RNN on noisy sequences, with gradient clipping. After some seventy steps an outlier comes along and the loss jumps
to astronomic values or NaN, just what the clipping was meant to prevent: the parameters were taken as a generator, the
optimizer used it up, and clip_grad_norm_ has been clipping an empty list ever since."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "clipping of nothing",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "what": "params = model.parameters() is a generator that the optimizer has exhausted; clip_grad_norm_(params) sees no parameter and clips nothing, so the outlier batch at step 70 blows the weights up.",
    "symptom": "loss fine until step 70, then NaN; only a UserWarning about an empty generator at the first step",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(12)
torch.set_num_threads(1)


class SensorModel(nn.Module):
    """Sums up a sensor's readings over a window."""

    def __init__(self, hidden=24):
        super().__init__()
        self.cell = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.cell.weight_hh_l0.copy_(0.95 * torch.eye(hidden))

    def forward(self, x):
        states, _ = self.cell(x)
        return self.out(states[:, -1]).squeeze(-1)


def make_batch(step, n=32, length=16):
    readings = torch.rand(n, length)
    marks = torch.zeros(n, length)
    for row in range(n):
        marks[row, torch.randperm(length)[:2]] = 1
    target = (readings * marks).sum(1)
    if step == 70:
        readings[0] = readings[0] * 400.0  # a broken sensor
    return torch.stack([readings, marks], dim=-1), target


model = SensorModel()
params = model.parameters()  # <-- cause
optimizer = torch.optim.SGD(params, lr=0.004, momentum=0.9)
MAX_NORM = 1.0

history = []
for step in range(120):
    xb, yb = make_batch(step)
    loss = F.mse_loss(model(xb), yb)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, MAX_NORM)
    optimizer.step()
    history.append(loss.item())
    if step % 10 == 0 or step in (71, 72):
        total = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
        print(f"step {step:3d}  loss {loss.item():.4g}  gradient norm after clipping {total:.3g}")
