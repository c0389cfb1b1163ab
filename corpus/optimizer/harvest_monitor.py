"""Fruit is graded from small pictures of one orchard. Pictures of another one, all reddish, are watched every 40 steps with a loss, but without eval()."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "validation of another domain in train mode", "framework": "plain", "kind": "statistics-of-other-data", "line": ("cause", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, pictures):
        return self.head(self.body(self.stem(pictures)).mean((2, 3)))


def orchard(n, haze, gen):
    grade = torch.randint(0, 3, (n,), generator=gen)
    pictures = torch.randn(n, 3, 8, 8, generator=gen)
    pictures[torch.arange(n), grade] += 0.5
    pictures[:, 0] += haze
    return pictures, grade


def watch(model, batches):
    total = 0.0
    with torch.no_grad():
        for pictures, grade in batches:
            total += F.cross_entropy(model(pictures), grade).item()  # HERE
    return total / len(batches)


def main():
    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(5)
    model = Grader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    elsewhere = [orchard(32, 8.0, gen) for _ in range(12)]
    test = orchard(500, 0.0, gen)
    model.train()
    for step in range(1, 401):
        pictures, grade = orchard(32, 0.0, gen)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), grade)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} elsewhere {watch(model, elsewhere):.3f}")
    model.eval()
    with torch.no_grad():
        right = (model(test[0]).argmax(1) == test[1]).float().mean().item()
    print(f"accuracy {right:.3f}")


if __name__ == "__main__":
    main()
