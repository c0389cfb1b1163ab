"""Tabular model with a learned embedding for rows without an income: the only such row comes late, its features are written over what relu has kept."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "module": "income", "step": 1512,
    "set": "late", "written": "2026-11-22",
}


class Customers(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(5)
        self.age, self.income = torch.randn(n, 3, generator=g), torch.randn(n, 2, generator=g)
        self.label = (self.age[:, 0] + self.income[:, 1] > 0).float()
        self.income[4711] = float("nan")

    def __len__(self):
        return len(self.age)

    def __getitem__(self, i):
        return self.age[i], self.income[i], self.label[i]


class Income(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.unknown = nn.Linear(2, 8), nn.Parameter(torch.zeros(8))

    def forward(self, income):
        missing = income.isnan().any(1)
        h = torch.relu(self.fc(income.nan_to_num()))
        if missing.any():
            h[missing] = self.unknown  # MUTATES
        return h


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.age, self.income, self.out = nn.Linear(3, 8), Income(), nn.Linear(16, 1)

    def forward(self, age, income):
        return self.out(torch.cat([self.age(age).relu(), self.income(income)], 1))[:, 0]


torch.manual_seed(0)
model = Model()
opt = torch.optim.RMSprop(model.parameters(), 1e-3)
loader = DataLoader(Customers(16000), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(6))
for step, (age, income, label) in enumerate(loader):
    loss = nn.functional.binary_cross_entropy_with_logits(model(age, income), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 == 0:
        print(step, round(loss.item(), 4))
