"""Fine-tuning with accelerate: the head first, later the backbone with an optimizer of its own.

Source: https://github.com/f-dangel/backpack/issues/95 (a missing zero_grad; the model still trains, badly); request for a
        warning: https://github.com/pytorch/pytorch/issues/47175
Plain PyTorch 2.13: silent; the loss gets worse some time after the backbone was thawed.
"""
import torch
from accelerate import Accelerator
from torch import nn

EXPECT = {
    "class": "d", "kind": "gradient-not-cleared", "stepping_marker": "STEPS", "step": 200,
    "parameters": ["body.embed.weight", "body.mix.0.weight", "body.mix.0.bias", "body.mix.2.weight", "body.mix.2.bias"],
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Body(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, tokens):
        e = self.embed(tokens)
        return (e + self.mix(e)).mean(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 4))

    def forward(self, tokens):
        return self.head(self.body(tokens))


class Phases:
    """Which optimizers are at work in a step."""

    def __init__(self, model, thaw):
        self.model, self.thaw = model, thaw
        model.body.requires_grad_(False)

    def enter(self, step):
        if step == self.thaw:
            self.model.body.requires_grad_(True)
        return step >= self.thaw


def documents(generator, count=32, length=12):
    topic = torch.randint(4, (count,), generator=generator)
    common = torch.randint(50, (count, length), generator=generator)
    own = 10 * topic[:, None] + torch.randint(14, (count, length), generator=generator)
    pick = torch.rand(count, length, generator=generator) < 0.35
    return torch.where(pick, own % 50, common), topic


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    accelerator = Accelerator(cpu=True)
    model = Classifier()
    phases = Phases(model, thaw=200)
    head_opt = torch.optim.AdamW(model.head.parameters(), lr=2e-3)
    body_opt = torch.optim.SGD(model.body.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(head_opt, 1.0, 0.3, 700)
    model, head_opt, body_opt, schedule = accelerator.prepare(model, head_opt, body_opt, schedule)
    for step in range(700):
        whole = phases.enter(step)
        tokens, topic = documents(generator)
        loss = nn.functional.cross_entropy(model(tokens), topic)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.head.parameters(), 1.0)
        head_opt.step()
        if whole:
            body_opt.step()  # STEPS
        schedule.step()
        head_opt.zero_grad()
        if step % 50 == 0:
            accelerator.print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
