"""The clip list is a filter() iterator that the optimizer has already consumed, so accelerator.clip_grad_norm_ receives
nothing and the batches with outliers are applied unclipped.

Report: pytorch/pytorch issue #148259 (clip_grad_norm_ with an exhausted generator clips nothing)
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "clean test mse 111 and training losses of hundreds once outliers appear (step 100 on); 0.996 with params as a list",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


class FlightLog(Dataset):
    def __init__(self, n, seed, spikes=True):
        gen = torch.Generator().manual_seed(seed)
        steps = torch.randn(n, 30, 2, generator=gen) * 0.3
        self.x = steps
        path = steps.cumsum(1)
        self.y = torch.stack([path[:, -1, 0], path[:, :, 1].max(1).values], 1)
        if spikes:
            bad = torch.rand(n, generator=gen) < 0.01
            bad[: n // 3] = False
            self.y[bad] *= 400.0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.unit = nn.Parameter(torch.tensor([2.0, 2.0]), requires_grad=False)
        self.rnn = nn.RNN(2, 48, batch_first=True)
        self.out = nn.Linear(48, 2)

    def forward(self, x):
        return self.out(self.rnn(x * self.unit)[0][:, -1])


def main():
    torch.manual_seed(2)
    accelerator = Accelerator(cpu=True)
    model = Pilot()
    params = filter(lambda p: p.requires_grad, model.parameters())  # HERE
    optimizer = torch.optim.SGD(params, lr=0.03, momentum=0.5)
    loader = DataLoader(FlightLog(9600, 5), batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        losses = []
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(params, 1.0)
            optimizer.step()
            losses.append(loss.item())
            if (step + 1) % 50 == 0:
                mid = sorted(losses[-50:])[25]
                print(f"epoch {epoch} step {step + 1:4d} median loss {mid:.4f}")
    clean = FlightLog(1000, 6, spikes=False)
    with torch.no_grad():
        err = F.mse_loss(model(clean.x), clean.y).item()
    print(f"final clean test mse {err:.4f}")


if __name__ == "__main__":
    main()
