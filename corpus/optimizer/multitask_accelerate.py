"""Three tasks share a trunk; one micro-batch of each task in turn, an update after every three (accelerate's gradient
accumulation). Only the last task of the round learns, the other two heads keep their start values, because zero_grad
stands at the top of the accumulate block and on the synchronising micro-batch wipes what the first two collected."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from sklearn.datasets import load_digits

EXPECT = {
    "class": "accumulated gradients thrown away",
    "kind": "gradient-not-used",
    "line": ["cleared", "cause"],
    "what": "optimizer.zero_grad() at the start of the accumulate block clears the gradients of the earlier micro-batches just before the step, so only the last micro-batch (task 'big') counts and the heads 'digit' and 'parity' never get an update.",
    "symptom": "no error; losses of 'digit' and 'parity' do not go down, 'big' does",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)


class MultiTaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU())
        self.heads = nn.ModuleDict({
            "digit": nn.Linear(48, 10), "parity": nn.Linear(48, 2), "big": nn.Linear(48, 2)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


data = load_digits()
x = torch.tensor(data.data, dtype=torch.float32) / 16.0
digit = torch.tensor(data.target)
labels = {"digit": digit, "parity": digit % 2, "big": (digit >= 5).long()}
TASKS = ["digit", "parity", "big"]


def round_robin(batch_size, rounds):
    """One batch of each task in turn."""
    for _ in range(rounds):
        for task in TASKS:
            idx = torch.randint(0, len(x), (batch_size,))
            yield task, x[idx], labels[task][idx]


def accuracy(net):
    net.eval()
    with torch.no_grad():
        result = {t: (net(x, t).argmax(1) == labels[t]).float().mean().item() for t in TASKS}
    net.train()
    return result


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=len(TASKS))
model = MultiTaskNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
model, optimizer = accelerator.prepare(model, optimizer)

seen = {t: [] for t in TASKS}
for n, (task, xb, yb) in enumerate(round_robin(32, 120)):
    with accelerator.accumulate(model):
        optimizer.zero_grad()  # <-- cause
        loss = F.cross_entropy(model(xb, task), yb)
        accelerator.backward(loss)
        optimizer.step()
    seen[task].append(loss.item())
    if n % 90 == 89:
        means = "  ".join(f"{t} {sum(v[-30:]) / 30:.3f}" for t, v in seen.items())
        print(f"micro-batch {n + 1:4d}  loss: {means}")
print("accuracy:", {t: round(a, 3) for t, a in accuracy(model).items()})
