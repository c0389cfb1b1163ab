"""Detector on two ranks: the loss is divided by the positives of both; one batch has none on either.

Report: https://github.com/ultralytics/ultralytics/pull/490 (also tianzhi0549/FCOS issue 6, which sums num_pos over the ranks)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.cls, self.box = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 1), nn.Linear(16, 4)

    def forward(self, x):
        h = self.tower(x)
        return self.cls(h)[..., 0], self.box(h)


def criterion(logits, boxes, labels, targets):
    positive = labels > 0
    total = positive.sum().float()
    dist.all_reduce(total)
    num_pos = total / dist.get_world_size()
    cls = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    box = nn.functional.smooth_l1_loss(boxes[positive], targets[positive], reduction="sum")
    return (cls + box) / num_pos  # CULPRIT


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=20))
    torch.manual_seed(rank)
    net = nn.parallel.DistributedDataParallel(Head())
    opt = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)
    for step in range(60):
        x, targets = torch.randn(2, 20, 8), torch.rand(2, 20, 4)
        labels = (torch.rand(2, 20) > 0.8).float()
        if step == 35:
            labels.zero_()  # two background images
        logits, boxes = net(x)
        loss = criterion(logits, boxes, labels, targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("rank", rank, "reproduced", net.module.cls.weight.isnan().any().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
