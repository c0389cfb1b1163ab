"""A loop in mixed precision scales the loss, and calls the step of the optimizer instead of that of the scaler."""

import torch
from torch import nn

EXPECT = {"kind": "scaled-gradient-used", "line": ("cause", "STEPS")}


class Trainer:
    def __init__(self, model):
        self.model, self.scaler = model, torch.amp.GradScaler("cpu")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(x).float(), y)
        self.scaler.scale(loss).backward()
        self.optimizer.step()  # STEPS
        self.scaler.update(self.scaler.get_scale())


def main():
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 4)))
    for _ in range(30):
        x = torch.randn(32, 10)
        trainer.train_step(x, x[:, :4].argmax(dim=1))


if __name__ == "__main__":
    main()
