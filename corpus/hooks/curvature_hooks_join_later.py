"""Small convnet whose optimizer gets a curvature term after a warm-up: its factors come from full backward hooks, and the activations after the convolutions work in place on what the hooks hand out.

Report: https://github.com/f-dangel/singd/issues/56 (an optimizer that relies on full backward hooks fails for models with in-place activations)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "hook", "kind": "hook-inplace-conflict", "hook_marker": "HOOK", "step": 50,
    "set": "eighth", "written": "2026-11-22",
}


def conv_unit(inputs, outputs, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU(inplace=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_unit(1, 8, 1), conv_unit(8, 12, 2), conv_unit(12, 16, 2))
        self.classifier = nn.Linear(16, 10)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class CurvatureSGD(torch.optim.SGD):
    """SGD whose steps are scaled by the mean square of each layer's output gradient, once `attach` was called."""

    def __init__(self, model, lr, decay=0.95):
        super().__init__(model.parameters(), lr=lr, momentum=0.9)
        self.model, self.decay, self.factors = model, decay, {}

    def attach(self):
        for module in self.model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                self.factors[module] = None
                module.register_full_backward_hook(self.collect)  # HOOK

    def collect(self, module, grad_input, grad_output):
        new = grad_output[0].square().mean()
        old = self.factors[module]
        self.factors[module] = new if old is None else self.decay * old + (1 - self.decay) * new

    @torch.no_grad()
    def precondition(self):
        known = [f for f in self.factors.values() if f is not None]
        if not known:
            return
        mean = torch.stack(known).mean()
        for module, factor in self.factors.items():
            for p in module.parameters(recurse=False):
                p.grad.mul_((mean / (factor + mean)).sqrt())


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
net = Net()
optimizer = CurvatureSGD(net, lr=0.3)
for step in range(100):
    if step == 50:
        optimizer.attach()
    pick = torch.randint(0, len(images), (48,))
    loss = nn.functional.cross_entropy(net(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.precondition()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
