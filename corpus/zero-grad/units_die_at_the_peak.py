"""Heat demand of houses. The learning rate restarts after 120 steps with a peak that is a hundred times too large: it pushes the
hidden layer down, and most of its units are zero for every house from then on."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "part of a parameter never learns",
    "kind": "part-never-learns",
    "line": ["cut", "cause"],
    "what": "Most rows of the hidden layer have no gradient since the restart: their ReLU is zero for every input.",
    "symptom": "no error; the loss stays higher than before the restart",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(3)
torch.set_num_threads(1)


class Demand(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(10, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        h = torch.relu(self.hidden(x))  # <-- cause
        return self.out(h).squeeze(1)


model = Demand()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
law = torch.randn(10)
for step in range(600):
    optimizer.param_groups[0]["lr"] = 8.0 if 120 <= step < 122 else 0.02
    x = torch.rand(64, 10)
    demand = (x @ law).abs() + 0.5
    loss = (model(x) - demand).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 75 == 74:
        dead = (model.hidden(torch.rand(2000, 10)) <= 0).all(0).float().mean()
        print(f"step {step}  loss {loss.item():.3f}  dead units {dead.item():.0%}")
