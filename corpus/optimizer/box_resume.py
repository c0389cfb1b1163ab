"""Box regression on small images with imprecise annotations, interrupted and resumed from a checkpoint: after the resume the learning rate is back at its peak and the loss jumps.
Report: https://github.com/ultralytics/yolov5/issues/292 (creating the scheduler after loading the optimizer resets the learning rate when resuming)
The new LambdaLR starts at epoch 0 and overwrites the loaded learning rate (about 0.011) with the initial one (0.15): the decay
begins anew after step 200 and the validation error jumps from 0.004 to 0.019 (0.0036 in a run that continues the schedule).
"""
import math
import os
import tempfile

import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "schedule-not-resumed", "line": ("cause", "CAUSE"),
    "what": "the scheduler is created anew after the optimizer state was loaded and its own state is not restored, so the learning rate jumps back to the start of the schedule on resume",
    "set": "twentyfirst", "written": "2026-11-27",
}

TOTAL, STOP, PER_EPOCH = 240, 200, 10
JITTER = 0.25


def images(n, size=20):
    x = 0.1 * torch.randn(n, 1, size, size)
    box = torch.empty(n, 4)
    for i in range(n):
        h, w = torch.randint(4, 9, (2,)).tolist()
        r = torch.randint(0, size - h, (1,)).item()
        c = torch.randint(0, size - w, (1,)).item()
        x[i, 0, r:r + h, c:c + w] += 1.0
        box[i] = torch.tensor([r, c, r + h, c + w]) / size
    return x, box


def build():
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                         nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 4))


def cosine(epoch):
    return 0.5 * (1 + math.cos(math.pi * epoch * PER_EPOCH / TOTAL)) * 0.99 + 0.01


def run(path, start, stop, data, val):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
    if start > 0:
        ckpt = torch.load(path)
        model.load_state_dict(ckpt["model"])
        optimizer.load_state_dict(ckpt["optimizer"])  # OTHER
        print(f"resumed at step {start} with lr {optimizer.param_groups[0]['lr']:.5f}")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, cosine)  # CAUSE
    for step in range(start, stop):
        pick = torch.randint(0, len(data[0]), (8,))
        target = data[1][pick] + JITTER * torch.randn(len(pick), 4)
        loss = nn.functional.mse_loss(model(data[0][pick]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % PER_EPOCH == 0:
            scheduler.step()
        if (step + 1) % 20 == 0:
            with torch.no_grad():
                err = nn.functional.mse_loss(model(val[0]), val[1]).item()
            print(f"step {step + 1:3d} loss {loss.item():.5f} val {err:.5f} lr {scheduler.get_last_lr()[0]:.5f}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": stop}, path)


def main():
    torch.manual_seed(4)
    data, val = images(1000), images(300)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        run(path, 0, STOP, data, val)
        run(path, STOP, TOTAL, data, val)


if __name__ == "__main__":
    main()
