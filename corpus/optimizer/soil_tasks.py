"""Predicts four properties of soil from a spectrum: dict.fromkeys gives all four tasks the same head."""
import torch
from torch import nn

EXPECT = {
    "class": "module-repeated", "framework": "plain", "kind": "module-repeated", "line": ("cause", "REPEATS"),
    "set": "ledger", "written": "2026-11-27",
}

TASKS = ("clay", "carbon", "acidity", "moisture")


class SoilNet(nn.Module):
    def __init__(self, bands):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 8, 7, stride=3), nn.GELU(), nn.Flatten(), nn.LazyLinear(32), nn.GELU())
        head = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 1))
        self.heads = nn.ModuleDict(dict.fromkeys(TASKS, head))  # REPEATS
        self(torch.zeros(1, 1, bands))

    def forward(self, spectrum):
        features = self.features(spectrum)
        return {task: head(features).squeeze(1) for task, head in self.heads.items()}


torch.manual_seed(5)
spectra = torch.randn(512, 1, 64).cumsum(-1) / 8
targets = {task: spectra[:, 0, 16 * i : 16 * i + 16].mean(1) * (1 - 2 * (i % 2)) for i, task in enumerate(TASKS)}
net = SoilNet(64)
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for step in range(120):
    rows = torch.randint(0, 512, (48,))
    predicted = net(spectra[rows])
    losses = {task: nn.functional.mse_loss(predicted[task], targets[task][rows]) for task in TASKS}
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
    if step % 40 == 39:
        print(step, {task: round(loss.item(), 3) for task, loss in losses.items()})
