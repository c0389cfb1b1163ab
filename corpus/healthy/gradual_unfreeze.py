"""Fine-tuning with warm-up from exactly 0 and gradual unfreezing by the learning rate: the first update moves nothing at all,
and the lower layers have learning rate 0 until step 40 and 80 though they get gradients. All of that is the plan; later all
groups move and the loss goes down."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import LambdaLR

EXPECT = {
    "class": "healthy: intended zero learning rate during warm-up",
    "kind": "none",
    "what": "The zero learning rates (first step of the warm-up, lower groups before steps 40 and 80) are intended by the schedule; afterwards every group is updated.",
    "symptom": "loss goes down; groups start moving one after the other",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(24)
torch.set_num_threads(1)
TOTAL = 200


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.middle = nn.Sequential(nn.Linear(64, 48), nn.ReLU())
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.middle(self.lower(x)))


def unfreeze_at(start, warmup=20):
    """0 until `start`, then linear up over `warmup` steps, then linear down."""
    def factor(step):
        if step <= start:
            return 0.0
        up = min(1.0, (step - start) / warmup)
        return up * max(0.05, (TOTAL - step) / TOTAL)
    return factor


def distance(module, reference):
    return sum(float((p.detach() - q).norm()) for p, q in zip(module.parameters(), reference))


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)

model = Stack()
parts = {"head": model.head, "middle": model.middle, "lower": model.lower}
start = {"head": 0, "middle": 40, "lower": 80}
initial = {name: [p.detach().clone() for p in part.parameters()] for name, part in parts.items()}
optimizer = torch.optim.AdamW(
    [{"params": part.parameters(), "name": name} for name, part in parts.items()], lr=5e-3, weight_decay=0.01)
scheduler = LambdaLR(optimizer, [unfreeze_at(start[name]) for name in parts])

losses = []
for step in range(TOTAL):
    idx = torch.randint(0, len(x), (64,))
    loss = F.cross_entropy(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if step % 20 == 0 or step == TOTAL - 1:
        moved = "  ".join(f"{name} {distance(part, initial[name]):.3f}" for name, part in parts.items())
        print(f"step {step:3d}  loss {sum(losses[-20:]) / len(losses[-20:]):.4f}  moved: {moved}")
