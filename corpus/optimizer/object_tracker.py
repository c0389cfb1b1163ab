"""Joint detection and identity net on small synthetic frames with learned task weights: the weights stay at their start and the identity task is swamped.
Report: https://github.com/ifzhang/FairMOT/issues/19 (the uncertainty parameters of the multi-task loss are used in the loss but not given to any optimizer)
s_box and s_id get gradients at every step but are not among the optimizer's parameters: they stay at 0,
the box loss (in pixels) keeps drowning the identity loss, and the identity accuracy ends at 0.35 instead of 0.99.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "CAUSE"),
    "what": "the loss module's learnable log-variances s_box and s_id are not passed to the optimizer, so they never change and the task balance is never learned",
    "set": "twentyfirst", "written": "2026-11-27",
}

SIZE, N_IDS = 24, 6


class TrackNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.box = nn.Sequential(nn.Flatten(), nn.Linear(24 * 36, 48), nn.ReLU(), nn.Linear(48, 2))
        self.ident = nn.Linear(24, N_IDS)

    def forward(self, x):
        h = self.backbone(x)
        return self.box(h), self.ident(h.amax(dim=(2, 3)))


class TrackLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.s_box = nn.Parameter(torch.zeros(1))
        self.s_id = nn.Parameter(torch.zeros(1))

    def forward(self, box, ident, target_box, target_id):
        box_loss = F.mse_loss(box, target_box)
        id_loss = F.cross_entropy(ident, target_id)
        total = torch.exp(-self.s_box) * box_loss + torch.exp(-self.s_id) * id_loss + self.s_box + self.s_id
        return 0.5 * total.squeeze(), box_loss, id_loss


def frames(n, patterns):
    img = 0.15 * torch.randn(n, 1, SIZE, SIZE)
    ids = torch.randint(0, N_IDS, (n,))
    pos = torch.randint(0, SIZE - 5, (n, 2))
    for i in range(n):
        r, c = pos[i].tolist()
        img[i, 0, r:r + 5, c:c + 5] += patterns[ids[i]]
    return img, pos.float() * 4.0, ids


def main():
    torch.manual_seed(5)
    patterns = (torch.rand(N_IDS, 5, 5) > 0.5).float() * 2 - 0.5
    train = frames(1500, patterns)
    test = frames(400, patterns)
    model, criterion = TrackNet(), TrackLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # CAUSE
    for step in range(400):
        pick = torch.randint(0, 1500, (64,))
        img, box, ids = (t[pick] for t in train)
        total, box_loss, id_loss = criterion(*model(img), box, ids)
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 80 == 0:
            print(f"step {step:3d} box {box_loss.item():8.2f} id {id_loss.item():.3f} "
                  f"weights {criterion.s_box.item():+.3f} {criterion.s_id.item():+.3f}")
    with torch.no_grad():
        box, ident = model(test[0])
    acc = (ident.argmax(1) == test[2]).float().mean().item()
    print(f"identity accuracy {acc:.3f}, box mse {F.mse_loss(box, test[1]).item():.2f}")


if __name__ == "__main__":
    main()
