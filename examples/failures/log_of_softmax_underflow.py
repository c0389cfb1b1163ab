"""Hand-written cross entropy: log(softmax(x)) with large logits gives log(0) = -inf, times zero one-hot = NaN."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


def soft_cross_entropy(logits, target):
    prob = F.softmax(logits, dim=1)
    logp = torch.log(prob)  # CULPRIT
    return -(target * logp).sum(1).mean()


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.classifier = nn.Linear(32, 6)

    def forward(self, x):
        return self.classifier(self.body(x))


if __name__ == "__main__":
    torch.manual_seed(0)
    student = Student()
    opt = torch.optim.SGD(student.parameters(), lr=0.05)
    for i in range(3):
        x = torch.randn(16, 12) * (1 if i == 0 else 500)
        target = F.one_hot(torch.randint(0, 6, (16,)), 6).float()
        loss = soft_cross_entropy(student(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": loss.isnan().item()})
