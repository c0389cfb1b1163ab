"""Species of reef from spectra, with accelerate. From step 150 on, a monitor runs unlit readings through the network in train mode without gradients, and the running statistics follow them."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "running statistics of a monitor's data", "framework": "accelerate", "kind": "statistics-of-other-data", "line": ("cause", "HERE"),
    "set": "eighteen_classes", "written": "2026-11-29",
}


def reef(n, seed, offset=0.0, gain=1.0):
    gen = torch.Generator().manual_seed(seed)
    species = torch.randint(0, 4, (n,), generator=gen)
    t = torch.linspace(0, 1, 24)
    peak = 0.2 + 0.2 * species.float() + 0.05 * torch.randn(n, generator=gen)
    curve = torch.exp(-((t[None] - peak[:, None]) / 0.1) ** 2)
    curve = curve + 0.15 * torch.randn(n, 24, generator=gen)
    return gain * curve[:, None] + offset, species


class ProbeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 3, padding=1), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten())
        self.head = nn.Linear(32 * 6, 4)

    def forward(self, x):
        return self.head(self.net(x))


@torch.no_grad()
def confidence(model, batches):
    model.train()  # HERE
    tops = [torch.softmax(model(x), 1).max(1).values.mean().item() for x in batches]
    return sum(tops) / len(tops)


@torch.no_grad()
def accuracy(model, x, label):
    model.eval()
    logits = model(x)
    return (logits.argmax(1) == label).float().mean().item(), F.cross_entropy(logits, label).item()


def main():
    torch.manual_seed(80)
    accelerator = Accelerator(cpu=True)
    model = ProbeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(*reef(400 * 32, 81)), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    deep, _ = reef(256, 83, offset=2.0, gain=3.0)
    test = reef(1000, 82)
    running = 0.0
    for step, (x, label) in enumerate(loader, 1):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        accelerator.backward(loss)
        optimizer.step()
        running += loss.item()
        if step >= 150 and step % 10 == 0:
            sure = confidence(model, deep.split(32))
        if step % 50 == 0:
            acc, test_loss = accuracy(model, *test)
            accelerator.print(f"step {step} train loss {running / 50:.4f} test loss {test_loss:.4f} accuracy {acc:.3f}")
            running = 0.0
    acc, test_loss = accuracy(model, *test)
    print(f"final test loss {test_loss:.4f} accuracy {acc:.4f} deep confidence {sure:.3f}")


if __name__ == "__main__":
    main()
