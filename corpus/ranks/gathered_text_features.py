"""Contrastive training on two ranks: the text features of both are collected with all_gather, whose results have no graph, so the text tower never learns.

Report: https://github.com/OFA-Sys/Chinese-CLIP/issues/54 (also huggingface/accelerate issue 1154 and mlfoundations/open_clip issue 616)
"""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

EXPECT = {
    "class": "ddp", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["text.weight", "text.bias"],
    "set": "third", "written": "2026-11-22",
}


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text, self.log_scale = nn.Linear(10, 8), nn.Linear(6, 8), nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        return nn.functional.normalize(self.image(image), dim=1), nn.functional.normalize(self.text(text), dim=1), self.log_scale.exp()


def gather(features):
    parts = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features)  # CUT
    return torch.cat(parts)  # CUT


def average_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def work(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=20))
    torch.manual_seed(0)
    model = Clip()
    torch.manual_seed(1 + rank)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(40):
        image, text, scale = model(torch.randn(8, 10), torch.randn(8, 6))
        logits = scale * image @ gather(text).t()
        loss = nn.functional.cross_entropy(logits, torch.arange(8) + 8 * rank)
        opt.zero_grad()
        loss.backward()
        average_gradients(model)
        opt.step()
    print("rank", rank, "reproduced", model.text.weight.grad is None)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=2)
