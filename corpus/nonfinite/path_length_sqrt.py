"""Path length regularisation: the length of a zero gradient is taken with sqrt, its second derivative is infinite.

Report: https://github.com/NVlabs/stylegan2-ada-pytorch/issues/133
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
mapping = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
opt = torch.optim.Adam(mapping.parameters(), 1e-3)
mean_length = torch.zeros(())
for step in range(48):
    w = torch.randn(6, 4, requires_grad=True)
    image = mapping(w)
    noise = torch.randn_like(image)
    if step == 40:
        noise[3] = 0.0  # this sample's mask is empty
    loss = image.square().mean()
    if step % 8 == 0:
        (grads,) = torch.autograd.grad((image * noise).sum(), w, create_graph=True)
        lengths = grads.square().sum(1).sqrt()  # CULPRIT
        mean_length = mean_length.lerp(lengths.mean().detach(), 0.01)
        loss = loss + 2 * (lengths - mean_length).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", mapping[0].weight.isnan().any().item())
