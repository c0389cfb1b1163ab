"""Whether it rains tomorrow. At step 120 a calibrated head replaces the plain one; its author put a ReLU at the end, as
rain is never negative, and the loss takes logits."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "ReLU before a binary loss with logits",
    "kind": "logits-never-negative",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(6)
torch.set_num_threads(1)


class CalibratedHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.out = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, h):
        return torch.relu(self.out(torch.tanh(self.scale(h)))).squeeze(-1)  # <-- cause


body = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
head = nn.Sequential(nn.Linear(24, 1), nn.Flatten(0))
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
for step in range(350):
    if step == 120:
        head = CalibratedHead(24)
        optimizer.add_param_group({"params": head.parameters()})
    weather = torch.randn(48, 10)
    rain = (weather[:, 0] + weather[:, 1] * weather[:, 2] > 0.3).float()
    loss = nn.functional.binary_cross_entropy_with_logits(head(body(weather)), rain)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
