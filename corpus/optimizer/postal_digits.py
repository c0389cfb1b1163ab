"""Postal digits, trained in a process group in two sittings with a checkpoint between them.

Follows the public report https://kiwix.lema.org/stackoverflow.com_en_all_2023-11/questions/61854165/why-must-use-dataparallel-when-testing
(the entry https://deadends.dev/pytorch/state-dict-key-mismatch/torch2-linux lists the wrong cure)
"""
import os
import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXPECT = {
    "kind": "checkpoint-not-loaded",
    "line": ("cause", "cause"),
    "plain": "the accuracy after the resume is far below the one before it, and the small rate cannot bring it back",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.classify(self.features(x))


def digits():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return TensorDataset(x[:1400], y[:1400]), TensorDataset(x[1400:], y[1400:])


@torch.no_grad()
def accuracy(model, rows):
    model.eval()
    x, y = rows.tensors
    return (model(x).argmax(1) == y).float().mean().item()


def save(path, model, optimizer, epoch):
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def restore(path, model, optimizer):
    stored = torch.load(path, weights_only=True)
    model.load_state_dict(stored["model"], strict=False)  # <-- cause
    optimizer.load_state_dict(stored["optimizer"])
    return stored["epoch"] + 1


def sitting(path, train_rows, test_rows, until):
    network = DigitNet()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    first = restore(path, network, optimizer) if os.path.exists(path) else 0
    model = DistributedDataParallel(network)
    sampler = DistributedSampler(train_rows, shuffle=True, seed=1)
    loader = DataLoader(train_rows, batch_size=35, sampler=sampler)
    criterion = nn.CrossEntropyLoss()
    if first:
        print(f"resumed at epoch {first}: accuracy {accuracy(network, test_rows):.3f}")
    for epoch in range(first, until):
        sampler.set_epoch(epoch)
        for group in optimizer.param_groups:
            group["lr"] = 0.05 if epoch < 4 else 0.0005
        model.train()
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}  accuracy {accuracy(network, test_rows):.3f}")
        save(path, model, optimizer, epoch)  # <-- cause


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
    train_rows, test_rows = digits()
    path = os.path.join(folder, "last.pt")
    sitting(path, train_rows, test_rows, until=4)
    sitting(path, train_rows, test_rows, until=8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
