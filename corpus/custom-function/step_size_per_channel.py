"""Learned step size quantiser as an own Function: it was written for one step size per tensor, in the last stage every output channel has its own.

Report: https://github.com/ZouJiu1/LSQplus/issues/14 (an error as soon as per_channel is used; the shape error as in issue 11 there)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "wrong-backward-shape", "apply_marker": "APPLY", "step": 90,
    "set": "seventh", "written": "2026-11-22",
}


class LSQ(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, alpha, g, Qn, Qp):
        ctx.save_for_backward(weight, alpha)
        ctx.other = g, Qn, Qp
        return (weight / alpha).round().clamp(Qn, Qp) * alpha

    @staticmethod
    def backward(ctx, grad_weight):
        weight, alpha = ctx.saved_tensors
        g, Qn, Qp = ctx.other
        q_w = weight / alpha
        smaller, bigger = (q_w < Qn).float(), (q_w > Qp).float()
        between = 1.0 - smaller - bigger
        grad_alpha = ((smaller * Qn + bigger * Qp + between * (q_w.round() - q_w)) * grad_weight * g).sum().unsqueeze(0)
        return between * grad_weight, grad_alpha, None, None, None


class QuantConv(nn.Conv2d):
    def __init__(self, *args, bits=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.Qn, self.Qp = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.s = nn.Parameter(torch.tensor([2 * self.weight.abs().mean().item() / self.Qp**0.5]))

    def split_step_size(self):
        self.s = nn.Parameter(self.s.detach().repeat(self.out_channels).view(-1, 1, 1, 1))

    def forward(self, x):
        g = 1.0 / (self.weight.numel() * self.Qp) ** 0.5
        weight = LSQ.apply(self.weight, self.s, g, self.Qn, self.Qp)  # APPLY
        return self._conv_forward(x, weight, self.bias)


def make_optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)


torch.manual_seed(0)
net = nn.Sequential(QuantConv(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), QuantConv(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
net(torch.zeros(2, 1, 8, 8))
optimizer = make_optimizer(net)
for step in range(140):
    if step == 90:
        for module in net.modules():
            if isinstance(module, QuantConv):
                module.split_step_size()
        optimizer = make_optimizer(net)
    label = torch.randint(0, 4, (16,))
    image = 0.2 * torch.randn(16, 1, 8, 8)
    for i, k in enumerate(label):
        image[i, 0, 4 * (k // 2) : 4 * (k // 2) + 4, 4 * (k % 2) : 4 * (k % 2) + 4] += 1
    loss = nn.functional.cross_entropy(net(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
