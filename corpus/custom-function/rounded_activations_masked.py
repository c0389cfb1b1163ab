"""Activations rounded to a grid: the backward sets gradients outside of the range to zero, in the tensor that came."""
import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "gradient-overwritten",
    "line": ("mutated", "HERE"),
    "plain": "no error; the accuracy stays below that of the same network with a copy of the gradient",
    "set": "classes",
    "written": "2026-11-28",
}


class OnGrid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, step, bound):
        ctx.save_for_backward(x.abs() > bound)
        return (x.clamp(-bound, bound) / step).round() * step

    @staticmethod
    def backward(ctx, grad):
        (outside,) = ctx.saved_tensors
        grad[outside] = 0.0  # HERE
        return grad, None, None


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + OnGrid.apply(self.linear(x), 0.25, 1.0)


class Digits(lightning.LightningModule):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), *(Layer(width) for _ in range(3)), nn.Linear(width, 10))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    lightning.seed_everything(0, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
    loader = DataLoader(TensorDataset(x, torch.tensor(digits.target)), batch_size=64, shuffle=True)
    model = Digits()
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    with torch.no_grad():
        print(f"accuracy {(model.net(x).argmax(1) == torch.tensor(digits.target)).float().mean():.3f}")


if __name__ == "__main__":
    main()
