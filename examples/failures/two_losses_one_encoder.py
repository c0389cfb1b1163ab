"""Multi-task: two heads share an encoder, each loss has its own backward without retain_graph."""

import torch
from torch import nn

EXPECT = {"kind": "second-backward", "line": ("reused", "REUSED")}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.reg_head, self.cls_head = nn.Linear(12, 1), nn.Linear(12, 3)


def main():
    torch.manual_seed(0)
    net = MultiTask()
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        x = torch.randn(8, 6)
        feat = net.encoder(x)
        opt.zero_grad()
        loss_reg = net.reg_head(feat).square().mean()
        loss_reg.backward()  # FREED
        loss_cls = nn.functional.cross_entropy(net.cls_head(feat), torch.randint(0, 3, (8,)))  # REUSED
        loss_cls.backward()
        opt.step()


if __name__ == "__main__":
    main()
