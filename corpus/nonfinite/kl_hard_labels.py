"""Distillation where some teacher rows are one-hot: target * (log target - log p) is 0 * -inf.

Report: https://github.com/RasmussenLab/vamb/issues/12 (NaN after some epochs from the log of an exact zero)
"""
import torch
from torch import nn

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "first", "written": "2026-11-22",
}


def batches():
    for i in range(60):
        x = torch.randn(16, 6)
        soft = torch.softmax(torch.randn(16, 4) * 2, 1)
        if i >= 35:  # the second half of the file was labelled by hand
            soft = nn.functional.one_hot(soft.argmax(1), 4).float()
        yield x, soft


def kl(logp, target):
    entropy = torch.log(target)  # BORN
    return (target * (entropy - logp)).sum(1).mean()


torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 4))
opt = torch.optim.AdamW(student.parameters(), 3e-3)
for x, soft in batches():
    loss = kl(student(x).log_softmax(1), soft)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    opt.step()
print("reproduced", bool(loss.isnan()))
