"""Fine-tuning: resize the classifier with setattr in a helper after configure_optimizers()."""

import torch
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "OPTIMIZER")}


class Pretrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.classifier = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 1000)

    def forward(self, x):
        return self.classifier(self.features(x))


def replace_head(model, name, classes):
    old = getattr(model, name)
    setattr(model, name, nn.Linear(old.in_features, classes))  # REPLACED


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = self.configure_optimizers()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)  # OPTIMIZER

    def fit(self, steps):
        for _ in range(steps):
            loss = nn.functional.cross_entropy(self.model(torch.randn(6, 8)), torch.randint(0, 4, (6,)))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


torch.manual_seed(0)
model = Pretrained()
trainer = Trainer(model)
replace_head(model, "classifier", 4)
trainer.fit(4)
