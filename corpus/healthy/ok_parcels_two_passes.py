"""Healthy: parcels are sorted by two passes with dropout, whose divergence is a term of the loss, as in R-Drop. A second head ranks
pairs and begins with zeros: the differences of its values are 0 in the first step. Both terms have a graph on both sides."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(9)
torch.set_num_threads(1)


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 24), nn.ReLU())
        self.lane, self.weight = nn.Linear(24, 6), nn.Linear(24, 1)
        nn.init.zeros_(self.weight.weight)
        nn.init.zeros_(self.weight.bias)

    def forward(self, x):
        return F.log_softmax(self.lane(self.body(x)), dim=-1)

    def rank(self, x):
        return self.weight(self.body(x)).squeeze(-1)


parcels = torch.randn(800, 11)
lanes = (parcels @ torch.randn(11, 6)).argmax(1)
heavy = parcels[:, 2] + 0.3 * parcels[:, 5]
model = Sorter()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(100):
    batch, others = torch.randint(0, 800, (2, 48))
    one, two = model(parcels[batch]), model(parcels[batch])
    both = F.kl_div(one, two, log_target=True, reduction="batchmean") + F.kl_div(two, one, log_target=True, reduction="batchmean")
    margin = model.rank(parcels[batch]) - model.rank(parcels[others])
    order = F.binary_cross_entropy_with_logits(margin, (heavy[batch] > heavy[others]).float())
    loss = 0.5 * (F.nll_loss(one, lanes[batch]) + F.nll_loss(two, lanes[batch])) + 0.25 * both + order
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(f"step {step + 1}  loss {loss.item():.4f}  divergence {both.item():.4f}")
