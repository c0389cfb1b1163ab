"""MRI reconstruction: each slice is standardised in the loader, an empty slice divides zero by zero.

Report: https://github.com/facebookresearch/fastMRI/issues/139 (NaN during training until an epsilon was added to the std)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "first", "written": "2026-11-22",
}


class Slices(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(5)
        self.raw = torch.rand(160, 1, 12, 12, generator=g)
        self.raw[131] = 0.0  # outside the body

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        image = self.raw[i]
        centred = image - image.mean()
        image = centred / image.std()  # BORN
        return image + 0.1 * torch.randn(1, 12, 12, generator=torch.Generator().manual_seed(i)), image


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
opt = torch.optim.RMSprop(net.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 20, 0.5)
for noisy, clean in DataLoader(Slices(), batch_size=4):
    loss = nn.functional.l1_loss(net(noisy), clean)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", net[0].weight.isnan().any().item())
