"""A gradient reversal that negates the gradient in place: nobody else gets that tensor, so nothing is wrong with it."""
import torch
from torch import nn

EXPECT = {
    "kind": None,
    "plain": "the source cannot be told from the features, and the classes can",
    "set": "classes",
    "written": "2026-11-28",
}


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg_()


def batch(generator):
    kind = torch.randint(0, 3, (64,), generator=generator)
    source = torch.randint(0, 2, (64,), generator=generator)
    x = torch.randn(64, 8, generator=generator)
    x[torch.arange(64), kind] += 2.5
    x[:, 5] += 2.0 * source
    return x, kind, source


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
    classes, sources = nn.Linear(16, 3), nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    model = nn.ModuleList([body, classes, sources])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(400):
        x, kind, source = batch(generator)
        features = body(x)
        loss = nn.functional.cross_entropy(classes(features), kind)
        loss = loss + 0.3 * nn.functional.cross_entropy(sources(Reverse.apply(features)), source)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
