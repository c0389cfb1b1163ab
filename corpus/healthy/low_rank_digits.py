"""LoRA on a frozen digits network under bfloat16 autocast.

Story: after some plain training the body is frozen and low rank updates are trained for
rotated images.  The second factor starts at zero, so the first factor has a gradient of
exactly zero at the first step, as in every LoRA (a question that comes again and again in the
issues of microsoft/LoRA and huggingface/peft; written from general knowledge).  The adapters
are folded into the weights at the end, in place, without gradients.  Nothing is wrong.
"""
import logging

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"class": "x", "kind": "none", "plain": {"outcome": "silent"}, "set": "fourteenth", "written": "2026-11-26"}

log = logging.getLogger("lora")


class LoraLinear(nn.Module):
    def __init__(self, base, rank=8, alpha=8.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features ** 0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)

    @torch.no_grad()
    def fold(self):
        self.base.weight.add_(self.scale * self.up @ self.down)
        return self.base


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(F.gelu(self.second(F.gelu(self.first(x)))))

    def add_adapters(self):
        self.requires_grad_(False)
        self.first, self.second, self.head = (LoraLinear(m) for m in (self.first, self.second, self.head))

    def fold_adapters(self):
        self.first, self.second, self.head = (m.fold() for m in (self.first, self.second, self.head))


def run(model, images, labels, steps, lr, name):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    for step in range(steps):
        idx = torch.randint(len(images), (64,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images[idx])
        loss = F.cross_entropy(logits.float(), labels[idx])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        if step % 50 == 0:
            log.info("%s step %d loss %.3f", name, step, loss.item())


@torch.inference_mode()
def accuracy(model, images, labels):
    return (model(images).argmax(1) == labels).float().mean().item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    rotated = torch.tensor(data.images, dtype=torch.float32).rot90(1, (1, 2)).flatten(1) / 16
    model = Net()
    run(model, images, labels, 250, 2e-3, "body")
    log.info("accuracy %.3f rotated %.3f", accuracy(model, images, labels), accuracy(model, rotated, labels))
    model.add_adapters()
    run(model, rotated, labels, 350, 5e-3, "lora")
    adapted = accuracy(model, rotated, labels)
    model.fold_adapters()
    log.info("rotated with adapters %.3f, folded %.3f", adapted, accuracy(model, rotated, labels))


if __name__ == "__main__":
    main()
