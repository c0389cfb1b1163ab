"""A training step in a function that another one prepares: gradients are cleared after the backward."""

import torch
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {"kind": "gradient-not-used", "line": ("cleared", "CLEARS")}


class Trainer:
    def __init__(self, model):
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.1)

    def update(self):
        self.optimizer.zero_grad()  # CLEARS
        self.optimizer.step()

    def train(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.update()
        return loss


def main():
    torch.manual_seed(0)
    x, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    trainer = Trainer(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)))
    for _ in range(20):
        trainer.train(x.float(), y)


if __name__ == "__main__":
    main()
