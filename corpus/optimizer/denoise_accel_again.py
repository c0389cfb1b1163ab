"""Small diffusion denoiser on the digits, trained with accelerate and gradient accumulation over 4 micro-batches: it learns several times too slowly.
Report: https://github.com/huggingface/accelerate/issues/616 (optimizer.zero_grad() at the top of the accumulate block discards the gradients accumulated so far)
accelerate lets zero_grad through only on the micro-batch that steps, so the gradients of the three before it are thrown away
and each update uses one micro-batch, already divided by 4; the denoising loss ends clearly higher than with zero_grad after step.
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "gradient-not-used", "line": ("cleared", "CAUSE"),
    "what": "optimizer.zero_grad() at the start of the accumulate block wipes the gradients of the earlier micro-batches just before the step; move it after optimizer.step()",
    "set": "twentyfirst", "written": "2026-11-27",
}

T = 50


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.time = nn.Embedding(T, 32)
        self.net = nn.Sequential(nn.Linear(64 + 32, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 64))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], dim=1))


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 8.0 - 1.0
    loader = DataLoader(TensorDataset(x[:1536]), batch_size=16, shuffle=True)
    alphas = torch.cumprod(1.0 - torch.linspace(1e-3, 0.1, T), dim=0)
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    updates, window = 0, []
    for epoch in range(10):
        for (clean,) in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()  # CAUSE
                t = torch.randint(0, T, (len(clean),))
                noise = torch.randn_like(clean)
                a = alphas[t].unsqueeze(1)
                noisy = a.sqrt() * clean + (1 - a).sqrt() * noise
                loss = nn.functional.mse_loss(model(noisy, t), noise)
                accelerator.backward(loss)
                optimizer.step()  # OTHER
            window = (window + [loss.item()])[-100:]
            if accelerator.sync_gradients:
                updates += 1
                if updates % 40 == 0:
                    print(f"update {updates:3d} loss {sum(window) / len(window):.4f}")
    print(f"{updates} updates, final loss {sum(window) / len(window):.4f}")


if __name__ == "__main__":
    main()
