"""Digits and permuted digits are learned one after the other with elastic weight consolidation. The anchors are p.data and follow the weights.

Report: https://github.com/ContinualAI/avalanche/issues/1099 (the penalty is 0 because a parameter is compared with itself)

Effect: accuracy on the first task falls from 0.970 to 0.738 during the second; with a clone, to 0.962.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "a loss compares a parameter with its own memory", "framework": "plain", "kind": "reference-not-copied",
    "line": ("cause", "HERE"), "set": "twentyninth", "written": "2026-11-29",
}

torch.manual_seed(19)


class MarkNet(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.fc1 = nn.Linear(64, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Consolidator:
    def __init__(self, model, strength):
        self.model = model
        self.strength = strength
        self.anchors = {}
        self.importance = {}

    def finish_workshop(self, x, y):
        fisher = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        for i in range(0, len(x), 4):
            self.model.zero_grad()
            F.cross_entropy(self.model(x[i:i + 1]), y[i:i + 1]).backward()
            for n, p in self.model.named_parameters():
                fisher[n] += p.grad.pow(2)
        self.model.zero_grad()
        for n, p in self.model.named_parameters():
            self.importance[n] = fisher[n] / (len(x) / 4)
            self.anchors[n] = p.data  # HERE

    def penalty(self):
        total = torch.zeros(())
        for n, p in self.model.named_parameters():
            if n in self.anchors:
                total = total + (self.importance[n] * (p - self.anchors[n]).pow(2)).sum()
        return self.strength * total


def workshops():
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    gen = torch.Generator().manual_seed(7)
    views = [torch.arange(64), torch.randperm(64, generator=gen)]
    return [(x[:1400, v], y[:1400], x[1400:, v], y[1400:]) for v in views]


@torch.no_grad()
def accuracy(model, task):
    return model(task[2]).argmax(1).eq(task[3]).float().mean().item()


def main():
    tasks = workshops()
    model = MarkNet()
    keeper = Consolidator(model, strength=2000.0)
    step = 0
    for number, (x, y, _, _) in enumerate(tasks):
        opt = torch.optim.SGD(model.parameters(), lr=0.05 if number == 0 else 0.01, momentum=0.9)
        for epoch in range(12):
            for idx in torch.randperm(len(x)).split(64):
                loss = F.cross_entropy(model(x[idx]), y[idx]) + keeper.penalty()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                opt.step()
                step += 1
            if epoch % 4 == 3:
                scores = "  ".join(f"{accuracy(model, t):.3f}" for t in tasks[:number + 1])
                print(f"workshop {number}  step {step:4d}  loss {loss.item():.4f}  acc {scores}")
        keeper.finish_workshop(x, y)


if __name__ == "__main__":
    main()
