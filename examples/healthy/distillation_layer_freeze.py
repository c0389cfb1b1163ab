"""Healthy: knowledge distillation from a frozen teacher, student's embeddings frozen in the first epoch, then unfrozen."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"kind": None}


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.hidden, self.out = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x):
        h = torch.relu(self.embed(x))
        return self.out(torch.relu(self.hidden(h))), h


class Distiller(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student, self.adapt = Net(32), Net(12), nn.Linear(12, 32)
        self.teacher.eval()

    def forward(self, x, y, T=2.0):
        with torch.no_grad():
            tl, tf = self.teacher(x)
        sl, sf = self.student(x)
        kd = F.kl_div(F.log_softmax(sl / T, 1), F.softmax(tl / T, 1), reduction="batchmean") * T * T
        return F.cross_entropy(sl, y) + kd + 0.1 * F.mse_loss(self.adapt(sf), tf)


def main():
    torch.manual_seed(0)
    d = Distiller()
    d.student.embed.requires_grad_(False)
    opt = torch.optim.Adam([*d.student.parameters(), *d.adapt.parameters()], lr=1e-3)
    for step in range(10):
        if step == 5:
            d.student.embed.requires_grad_(True)
        x = torch.randn(8, 8)
        loss = d(x, torch.randint(0, 4, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
