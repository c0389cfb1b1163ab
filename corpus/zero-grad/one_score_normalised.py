"""Prices of houses with a single score of their surroundings. The score is divided by its norm over the last dimension, as the
embeddings of another project were: over one number that leaves its sign. What is left of its gradient is rounding."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "gradients of rounding size behind a normalisation over a single value",
    "kind": "zero-grad",
    "line": ["cut", "cause"],
    "what": "normalize over a dimension of one element gives 1 or -1: the two ways back cancel but for rounding.",
    "symptom": "no error; the surroundings hardly matter",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(3)
torch.set_num_threads(1)


class Price(nn.Module):
    def __init__(self):
        super().__init__()
        self.around = nn.Sequential(nn.Linear(12, 24), nn.SiLU(), nn.Linear(24, 1))
        self.house = nn.Linear(5, 16)
        self.out = nn.Linear(17, 1)

    def forward(self, house, around):
        score = F.normalize(self.around(around), dim=-1)  # <-- cause
        return self.out(torch.cat([torch.tanh(self.house(house)), score], 1)).squeeze(1)


model = Price()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
of_house, of_surroundings = torch.randn(5), torch.randn(12)
for step in range(150):
    house, around = torch.randn(48, 5), torch.randn(48, 12)
    price = (house @ of_house).tanh() + around @ of_surroundings
    loss = (model(house, around) - price).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step}  loss {loss.item():.3f}")
