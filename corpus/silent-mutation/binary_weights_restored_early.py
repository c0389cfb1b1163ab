"""Network with binary weights: the real weights are written back before backward instead of after it, the gradient of the inputs is taken with the wrong ones.

Report: https://github.com/jiecaoyu/XNOR-Net-PyTorch/issues/49 (why restore stands where it stands; also itayhubara/BinaryNet.pytorch issue 19)
"""
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "third", "written": "2026-11-22",
}


class BinOp:
    def __init__(self, layers):
        self.targets = [layer.weight for layer in layers]
        self.saved = [w.detach().clone() for w in self.targets]

    def binarization(self):
        for w, kept in zip(self.targets, self.saved):
            kept.copy_(w.data.clamp(-1.0, 1.0))
            scale = w.data.abs().mean(1, keepdim=True)
            w.data = w.data.sign() * scale

    def restore(self):
        for w, kept in zip(self.targets, self.saved):
            w.data.copy_(kept)  # MUTATES


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.fc1, self.fc2, self.out = nn.Linear(8, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, x):
        h = torch.tanh(self.stem(x))
        h = torch.tanh(self.fc1(h))
        return self.out(torch.tanh(self.fc2(h)))


torch.manual_seed(0)
model = Net()
bin_op = BinOp([model.fc1, model.fc2])
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(40):
    x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
    bin_op.binarization()
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    bin_op.restore()
    loss.backward()
    opt.step()
print("last loss", loss.item())
