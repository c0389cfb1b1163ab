"""A small U-Net on synthetic discs, moved to mixed precision: after the move the Dice score does not rise any more
and the loss curve is a flat line, without any error. The gradients are clipped to norm 1 while they still carry the
loss scale of 65536, so that after the scaler's own unscaling next to nothing is left for the SGD update."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "clipping before unscaling",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "what": "clip_grad_norm_ is applied to the still scaled gradients (scaler.unscale_ is missing before it), so after unscaling the gradient norm is at most 1/65536 and the updates are practically nothing.",
    "symptom": "no error; loss flat around 0.69, Dice does not improve",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(2, cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(2, cout), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class MiniUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc1 = DoubleConv(1, width)
        self.enc2 = DoubleConv(width, 2 * width)
        self.dec1 = DoubleConv(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        up = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.out(self.dec1(torch.cat([a, up], dim=1)))


def make_discs(n, size=16):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cy, cx = torch.randint(4, 12, (2, n, 1, 1))
    r = torch.randint(2, 5, (n, 1, 1))
    mask = ((yy - cy) ** 2 + (xx - cx) ** 2 <= r ** 2).float().unsqueeze(1)
    return mask + 0.4 * torch.randn_like(mask), mask


def dice(logits, mask):
    pred = (logits > 0).float()
    return (2 * (pred * mask).sum() / (pred.sum() + mask.sum() + 1e-6)).item()


images, masks = make_discs(512)
val_images, val_masks = make_discs(64)
net = MiniUNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16)

step = 0
for epoch in range(6):
    order = torch.randperm(len(images))
    running = 0.0
    for i in range(0, len(images), 32):
        idx = order[i:i + 32]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(images[idx])
            loss = F.binary_cross_entropy_with_logits(logits.float(), masks[idx])
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # <-- cause
        scaler.step(optimizer)
        scaler.update()
        running += loss.item()
        step += 1
    with torch.no_grad():
        score = dice(net(val_images), val_masks)
    print(f"epoch {epoch}  step {step}  loss {running / 16:.4f}  val dice {score:.3f}")
