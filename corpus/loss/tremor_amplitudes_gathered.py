"""Tremor amplitudes from accelerometer spectra with accelerate: the loop divides the loss by the batches it gathers, and so does the library."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "loss-divided-twice", "line": ("cause", "DIVIDES"), "set": "ledger", "written": "2026-11-29",
    "plain": "the error falls six times more slowly than with larger batches",
}


class Setup:
    together = 6
    rate = 0.05


def spectra(count):
    amplitude = torch.rand(count, 1) * 2
    shape = torch.exp(-((torch.arange(16) - 6.0) ** 2) / 8)
    return TensorDataset(amplitude * shape + 0.1 * torch.randn(count, 16), amplitude)


def main():
    torch.manual_seed(4)
    setup = Setup()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=setup.together)
    model = nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=setup.rate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(spectra(480), batch_size=8, shuffle=True))
    for epoch in range(6):
        for spectrum, amplitude in loader:
            with accelerator.accumulate(model):
                error = nn.functional.smooth_l1_loss(model(spectrum), amplitude)
                accelerator.backward(error / setup.together)  # DIVIDES
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: error {error.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
