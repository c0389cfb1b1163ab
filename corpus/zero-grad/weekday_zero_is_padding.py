"""Sales per shop and weekday, in a pretrained-style set-up where the calendar table joins after 100 steps. Weekdays count from
Monday = 0, and the table has padding_idx=0: Mondays have no effect of their own."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "part of a parameter never learns",
    "kind": "part-never-learns",
    "line": ["defined", "cause"],
    "what": "padding_idx=0 keeps the row of Monday at zero and without gradient.",
    "symptom": "no error; the error on Mondays stays high",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(4)
torch.set_num_threads(1)


class Sales(nn.Module):
    def __init__(self):
        super().__init__()
        self.shop = nn.Embedding(30, 8)
        self.weekday = nn.Embedding(7, 8, padding_idx=0)  # <-- cause
        self.out = nn.Linear(8, 1)

    def forward(self, shop, day, calendar):
        h = self.shop(shop)
        return self.out(torch.tanh(h + self.weekday(day) if calendar else h)).squeeze(1)


level, effect = torch.randn(30), torch.tensor([2.0, 0.5, 0.1, -0.2, -0.5, -1.0, 0.8])
model = Sales()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(300):
    shop, day = torch.randint(0, 30, (64,)), torch.randint(0, 7, (64,))
    error = (model(shop, day, step >= 100) - level[shop] - effect[day]).square()
    optimizer.zero_grad()
    error.mean().backward()
    optimizer.step()
    if step % 75 == 74:
        print(f"step {step}  mean error {error.mean().item():.3f}  on Mondays {error[day == 0].mean().item():.3f}")
