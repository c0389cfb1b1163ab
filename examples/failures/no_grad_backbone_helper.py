"""extract_features() was written for inference under no_grad and is reused for fine-tuning with backbone.requires_grad on."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))
        self.classifier = nn.Linear(16, 4)

    @torch.no_grad()  # CUT
    def extract_features(self, x):
        return self.backbone(x)  # CUT

    def forward(self, x):
        return self.classifier(self.extract_features(x))  # CUT


def train():
    torch.manual_seed(0)
    model = Recognizer()
    opt = torch.optim.Adam(
        [{"params": model.backbone.parameters(), "lr": 1e-4}, {"params": model.classifier.parameters()}]
    )
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 20)), torch.randint(0, 4, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model


model = train()
print({"reproduced": all(p.grad is None for p in model.backbone.parameters())})
