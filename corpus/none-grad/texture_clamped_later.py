"""Texture fitted through a renderer by hand-written descent: after a while it is clamped to valid colours and is no leaf any more, its gradient is None.

Report: https://github.com/facebookresearch/pytorch3d/issues/763
"""
import warnings

import torch

EXPECT = {"class": "nonleaf", "kind": "nonleaf-grad", "cut_marker": "CUT", "set": "second", "written": "2026-11-22"}
warnings.simplefilter("ignore")

torch.manual_seed(0)
target, views = torch.rand(20, 3), torch.rand(6, 20).softmax(1)
texture = torch.full((20, 3), 0.5, requires_grad=True)
for step in range(60):
    if step == 40:
        texture = texture.clamp(0.0, 1.0)  # CUT
    image = views @ texture
    loss = (image - views @ target).square().mean()
    loss.backward()
    if texture.grad is None:
        print("reproduced: no gradient at", step)
        break
    with torch.no_grad():
        texture -= 5.0 * texture.grad
        texture.grad.zero_()
