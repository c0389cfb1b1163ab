"""GRU forecasting of sensor windows with accelerate: accumulation over 2 micro-batches, bfloat16 autocast, clipping and a schedule that ends at zero.
Report: none (healthy: zero_grad comes after the step, clipping only on the stepping micro-batch, the schedule's length fits the number of updates)
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "accelerate", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}

LOOKBACK, ACCUM, EPOCHS = 24, 2, 4


class SensorNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        states, _ = self.gru(x)
        return x[:, -1] + self.out(states[:, -1])


def windows(n=1700):
    t = torch.arange(n, dtype=torch.float32)
    s = torch.sin(t / 4) + 0.5 * torch.sin(t / 2.3) + 0.05 * torch.randn(n)
    w = s.unfold(0, LOOKBACK + 1, 1).unsqueeze(-1)
    return w[:, :-1].contiguous(), w[:, -1].contiguous()


def main():
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
    x, y = windows()
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=16, shuffle=True)
    model = SensorNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-3)
    updates = EPOCHS * len(train) // ACCUM
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 15) * max(0.0, 1 - k / updates))
    model, optimizer, train = accelerator.prepare(model, optimizer, train)

    done = 0
    for epoch in range(EPOCHS):
        model.train()
        for inputs, target in train:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                done += 1
        model.eval()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[1280:]).float(), y[1280:]).item()
        print(f"epoch {epoch} updates {done} val mse {val:.4f} lr {scheduler.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    main()
