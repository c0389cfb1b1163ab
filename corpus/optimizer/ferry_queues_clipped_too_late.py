"""Ferry queues, with Accelerate. The helper that updates the model steps first and clips then; the next batch clears the gradients."""
import torch
from accelerate import Accelerator
from torch import nn

EXPECT = {
    "class": "clipping after the step, line of the step", "framework": "accelerate", "kind": "clipping-without-effect", "line": ("stepped", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


class Update:
    def __init__(self, accelerator, model, optimizer, limit):
        self.accelerator, self.model, self.optimizer, self.limit = accelerator, model, optimizer, limit

    def __call__(self, loss):
        self.accelerator.backward(loss)
        self.optimizer.step()  # HERE
        if self.accelerator.sync_gradients:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.limit)


def main():
    torch.manual_seed(4)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    update = Update(accelerator, model, optimizer, 0.5)
    for step in range(200):
        hour = torch.randn(32, 6)
        queue = hour.abs().sum(1, keepdim=True) * (8 if step % 50 == 49 else 1)
        optimizer.zero_grad()
        update((model(hour) - queue).square().mean())


if __name__ == "__main__":
    main()
