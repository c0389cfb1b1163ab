"""Segmentation of lesions with a small network whose forward ends with a softmax over classes, since predictions were
drawn as probabilities, and a loss of the author's own that takes log_softmax of what it gets."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "softmax before log_softmax",
    "kind": "normalised-twice",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(3)
torch.set_num_threads(1)
CLASSES = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 12, 3, padding=1)
        self.mid = nn.Conv2d(12, 12, 3, padding=1)
        self.head = nn.Conv2d(12, CLASSES, 1)

    def forward(self, x):
        h = F.silu(self.down(x))
        h = h + F.silu(self.mid(F.avg_pool2d(h, 2))).repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.head(h).softmax(dim=1)  # <-- cause


def pixel_loss(maps, labels, weights):
    flat = maps.permute(0, 2, 3, 1).reshape(-1, CLASSES)
    logp = F.log_softmax(flat, dim=-1)
    chosen = logp[torch.arange(len(flat)), labels.reshape(-1)]
    w = weights[labels.reshape(-1)]
    return -(w * chosen).sum() / w.sum()


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
weights = torch.tensor([0.5, 1.0, 1.0, 2.0])
for step in range(120):
    labels = torch.randint(0, CLASSES, (4, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    images = labels[:, None].float() / CLASSES + 0.2 * torch.randn(4, 1, 16, 16)
    loss = pixel_loss(net(images), labels, weights)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 4))
