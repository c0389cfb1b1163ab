"""Fine-tuning callback: resuming a run freezes the backbone again, the epoch that would unfreeze it is past.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/21901
"""
import tempfile
from pathlib import Path

import torch
from torch import nn

EXPECT = {
    "class": "stops-learning", "kind": "none-grad", "parameters": ["backbone.weight", "backbone.bias"], "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class Finetuning:
    unfreeze_at = 1

    def setup(self, model):
        for p in model.backbone.parameters():
            p.requires_grad = False  # CUT

    def on_epoch_start(self, model, epoch):
        if epoch == self.unfreeze_at:
            for p in model.backbone.parameters():
                p.requires_grad = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))


def fit(model, opt, callback, epochs):
    callback.setup(model)
    for epoch in epochs:
        callback.on_epoch_start(model, epoch)
        for _ in range(12):
            x = torch.randn(16, 6)
            loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            opt.zero_grad()
            loss.backward()
            opt.step()


torch.manual_seed(0)
model = Net()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
with tempfile.TemporaryDirectory() as folder:
    fit(model, opt, Finetuning(), range(0, 3))
    file = Path(folder, "last.pt")
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    state = torch.load(file)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    before = model.backbone.weight.detach().clone()
    fit(model, opt, Finetuning(), range(3, 6))
print("reproduced", torch.equal(before, model.backbone.weight))
