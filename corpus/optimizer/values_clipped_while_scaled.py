"""A fine-tuning run that switches to mixed precision with a GradScaler at step 130 of 400. The clipping by value that
worked before now meets scaled gradients: each element is cut to one over the scale."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "clipping before unscaling, late",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
truth = torch.randn(16, 1)


def train_step(x, y, mixed):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        loss = F.mse_loss(model(x).float(), y)
    if mixed:
        scaler.scale(loss).backward()
    else:
        loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)  # <-- cause
    if mixed:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    return loss.item()


for step in range(400):
    x = torch.randn(64, 16)
    loss = train_step(x, torch.tanh(x @ truth) + 0.1 * torch.randn(64, 1), mixed=step >= 130)
    if step % 50 == 0:
        print(f"step {step}  loss {loss:.4f}")
