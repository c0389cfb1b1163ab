"""A student learns from a teacher with kl_div, which takes log-probabilities, and is given a softmax."""

import torch
from torch import nn

EXPECT = {"kind": "logarithm-missing", "line": ("cause", "SOFTMAX")}


def main():
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    student, criterion = nn.Linear(6, 4), nn.KLDivLoss(reduction="batchmean")
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    for _ in range(30):
        x = torch.randn(32, 6)
        with torch.no_grad():
            target = (teacher(x) / 2).softmax(dim=1)
        guess = (student(x) / 2).softmax(dim=1)  # SOFTMAX
        loss = criterion(guess, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
