"""Healthy: metric learning with a memory of earlier batches; what goes into the ring is detached, is written in place after the step, and its rows are copied when they are used.

Report it resembles: https://github.com/bnu-wangxun/Deep_Metric/issues/45 (how a cross-batch memory of detached embeddings can still train)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"class": "healthy", "kind": "none", "set": "eighth", "written": "2026-11-22"}


class CrossBatchMemory:
    def __init__(self, size, dim):
        self.features, self.labels = torch.zeros(size, dim), torch.full((size,), -1)
        self.pointer = self.count = 0

    def enqueue(self, features, labels):
        index = (self.pointer + torch.arange(len(features))) % len(self.features)
        self.features[index], self.labels[index] = features.detach(), labels
        self.pointer = (self.pointer + len(features)) % len(self.features)
        self.count = min(self.count + len(features), len(self.features))

    def get(self):
        return self.features[: self.count].clone(), self.labels[: self.count].clone()


class Embedder(nn.Module):
    def __init__(self, inputs=16, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.ReLU(inplace=True), nn.Linear(32, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def contrastive(features, labels, others, other_labels, margin=0.5):
    similarity = features @ others.T
    same = labels[:, None] == other_labels
    same_batch = len(features) == len(others)
    keep = same & (similarity < 1 - 1e-5) if same_batch else same
    positive = torch.where(keep, 1 - similarity, torch.zeros_like(similarity)).sum()
    negative = torch.where(~same, (similarity - margin).clamp(min=0), torch.zeros_like(similarity)).sum()
    return (positive + negative) / len(features)


torch.manual_seed(0)
centres = torch.randn(10, 16)
labels = torch.randint(0, 10, (960,))
data = TensorDataset(centres[labels] + 0.7 * torch.randn(960, 16), labels)
loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
model, memory = Embedder(), CrossBatchMemory(160, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
for epoch in range(6):
    for x, y in loader:
        features = model(x)
        loss = contrastive(features, y, features, y)
        if step >= 40:
            loss = loss + contrastive(features, y, *memory.get()) / 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.enqueue(features, y)
        step += 1
    print(epoch, step, loss.item())
