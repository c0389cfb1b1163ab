"""A moving average is evaluated in the model itself every hundred steps. The weights that are to come back are kept by reference, so from then on the average is trained. The first evaluation is late."""
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "class": "state-not-copied", "framework": "plain", "kind": "state-not-copied", "line": ("cause", "KEPT"),
    "set": "ledger", "written": "2026-11-27",
}


class Swapped:
    def __init__(self, model, average):
        self.model, self.average = model, average

    def __enter__(self):
        self.trained = self.model.state_dict()  # KEPT
        self.model.load_state_dict(self.average.module.state_dict())
        return self.model

    def __exit__(self, *error):
        self.model.load_state_dict(self.trained)


torch.manual_seed(0)
wine = load_wine()
x = torch.tensor(wine.data, dtype=torch.float32)
x, y = (x - x.mean(0)) / x.std(0), torch.tensor(wine.target)
order = torch.randperm(len(x))
x, y = x[order], y[order]
model = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 3))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(1, 351):
    pick = torch.randint(0, 128, (32,))
    loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    if step % 150 == 0:
        with Swapped(model, average) as evaluated, torch.no_grad():
            print(step, loss.item(), (evaluated(x[128:]).argmax(1) == y[128:]).float().mean().item())
