"""A small sequence labeller with Accelerate. The warm-up is prepared with the model and the optimizer, and the loop
never steps it: the whole run has a tenth of the rate."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

EXPECT = {
    "class": "scheduler never stepped",
    "kind": "schedule-never-stepped",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}


class Labeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 24)
        self.mix = nn.GRU(24, 24, batch_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens))[0])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = Labeller()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)  # <-- cause
    model, optimizer, warmup = accelerator.prepare(model, optimizer, warmup)
    for step in range(90):
        tokens = torch.randint(0, 20, (16, 12))
        labels = (tokens + tokens.roll(1, 1)) % 4
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 0:
            accelerator.print(f"step {step}  loss {loss.item():.4f}  rate {optimizer.param_groups[0]['lr']:.5f}")


if __name__ == "__main__":
    main()
