"""Small residual network; saliency hooks are attached when the accuracy phase is over and break the next forward.

Source: https://github.com/shap/shap/issues/3565 (same: https://github.com/pooya-mohammadi/yolov5-gradcam/issues/7)
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "h", "kind": "hook-inplace-conflict", "hook_marker": "HOOK", "mutating_line_contains": "out += identity",
    "step": 210,
    "plain": {"outcome": "raises", "exception": "RuntimeError", "match": "is a view and is being modified inplace"},
    "set": "twelfth", "written": "2026-11-25",
}


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return F.relu(out)


class ResNetTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.layer1, self.layer2 = BasicBlock(8, 8), BasicBlock(8, 16, 2)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


class SaliencyRecorder:
    def __init__(self):
        self.maps, self.handles = {}, []

    def attach(self, model):
        for name, m in model.named_modules():
            if isinstance(m, (nn.Conv2d, nn.BatchNorm2d)):
                self.handles.append(m.register_full_backward_hook(self.make(name)))  # HOOK

    def make(self, name):
        def hook(module, grad_in, grad_out):
            self.maps[name] = grad_out[0].detach().abs().mean(1)
        return hook

    def detach(self):
        for h in self.handles:
            h.remove()


def main(steps=300, saliency_from=210):
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    model, recorder = ResNetTiny(), SaliencyRecorder()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for step in range(steps):
        if step == saliency_from:
            recorder.attach(model)
        idx = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.3f} maps {len(recorder.maps)}")


if __name__ == "__main__":
    main()
