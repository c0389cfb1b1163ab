"""Picture fitted by Gaussian splats with a rasteriser of its own: it renders crops and leaves out the splats that do not reach them; for the opacities its backward returns only the rows that were drawn.

Report: https://github.com/Linketic/CityGaussian/issues/160 (the rasteriser's backward returned an invalid gradient at index 6, once points had been trimmed)
"""
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward-shape", "apply_marker": "APPLIED",
    "set": "ninth", "written": "2026-11-23",
}


class Rasterize(torch.autograd.Function):
    """Adds up isotropic Gaussians: position (n, 2), log of the width (n,), colour (n, 3), opacity (n,)."""

    @staticmethod
    def weights(pixels, position, log_width):
        offset = pixels[:, None] - position[None]
        inverse = torch.exp(-2 * log_width)
        return torch.exp(-0.5 * offset.square().sum(2) * inverse), offset, inverse

    @staticmethod
    def forward(ctx, pixels, position, log_width, colour, opacity):
        margin = 3 * log_width.exp() + 1 / 32
        low, high = pixels.min(0).values, pixels.max(0).values
        drawn = ((position > low - margin[:, None]) & (position < high + margin[:, None])).all(1).nonzero().squeeze(1)
        g, offset, inverse = Rasterize.weights(pixels, position[drawn], log_width[drawn])
        alpha = opacity[drawn].sigmoid()
        ctx.save_for_backward(g, offset, inverse, colour, alpha, drawn)
        return (g * alpha) @ colour[drawn]

    @staticmethod
    def backward(ctx, grad):
        g, offset, inverse, colour, alpha, drawn = ctx.saved_tensors
        n = len(colour)
        through = grad @ colour[drawn].t()
        grad_colour = torch.zeros_like(colour).index_copy(0, drawn, (g * alpha).t() @ grad)
        common = through * g * alpha * inverse
        grad_position = grad.new_zeros(n, 2).index_copy(0, drawn, (common[:, :, None] * offset).sum(0))
        grad_width = grad.new_zeros(n).index_copy(0, drawn, (common * offset.square().sum(2)).sum(0))
        grad_opacity = (through * g).sum(0) * alpha * (1 - alpha)
        return None, grad_position, grad_width, grad_colour, grad_opacity


class Splats(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.position = nn.Parameter(torch.rand(n, 2))
        self.log_width = nn.Parameter(torch.full((n,), -3.0))
        self.colour = nn.Parameter(0.5 * torch.rand(n, 3))
        self.opacity = nn.Parameter(torch.zeros(n))

    def forward(self, pixels):
        return Rasterize.apply(pixels, self.position.clamp(0, 1), self.log_width, self.colour, self.opacity)  # APPLIED


def picture(size=32):
    image = torch.tensor(load_sample_images().images[1], dtype=torch.float32).permute(2, 0, 1)[None] / 255
    image = F.interpolate(image, size=(size, size), mode="area")[0].permute(1, 2, 0)
    y, x = torch.meshgrid(torch.arange(size) + 0.5, torch.arange(size) + 0.5, indexing="ij")
    return image, torch.stack([x, y], 2) / size


def crop(side, size=32):
    y, x = torch.randint(0, size - side + 1, (2,)).tolist()
    return slice(y, y + side), slice(x, x + side)


torch.manual_seed(0)
image, pixels = picture()
splats = Splats(80)
optimizer = torch.optim.Adam(splats.parameters(), lr=1e-2)
for step in range(120):
    rows, columns = crop(12)
    rendered = splats(pixels[rows, columns].reshape(-1, 2))
    loss = F.l1_loss(rendered, image[rows, columns].reshape(-1, 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
