"""Keyword spotting on synthetic tones: the head is trained alone first, then the front end is to join in, but it never does.

Report: https://github.com/fastai/fastai/issues/2133 (the optimizer needs to be created again after unfreezing, because
at creation it only takes the trainable parameters).
Effect: the front end gets gradients from step 120 on but its weights are equal to their first values at the end; accuracy is far
lower than when its parameters are added to the optimizer.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "parameter-not-in-optimizer", "line": ("thawed", "CAUSE"),
    "what": "the optimizer was given only the parameters that were trainable at the start; after unfreezing, the front end's parameters are not in any param group and never change: add_param_group or rebuild the optimizer",
    "set": "twentyfirst", "written": "2026-11-27",
}

N_WORDS, RATE = 8, 256


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = nn.Sequential(nn.Conv1d(1, 8, 17, stride=4), nn.ReLU(), nn.Conv1d(8, 12, 9, stride=2), nn.ReLU())
        self.head = nn.Linear(12, N_WORDS)

    def forward(self, wave):
        return self.head(self.frontend(wave.unsqueeze(1)).mean(-1))


def make_words(n, gen):
    y = torch.randint(0, N_WORDS, (n,), generator=gen)
    t = torch.arange(RATE) / RATE
    phase = 6.28 * torch.rand(n, 1, generator=gen)
    freq = (8 + 5 * y).float().unsqueeze(1)
    wave = torch.sin(6.2832 * freq * t + phase) + 0.4 * torch.randn(n, RATE, generator=gen)
    return wave, y


@torch.no_grad()
def accuracy(model, wave, y):
    model.eval()
    acc = (model(wave).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    model = Spotter()
    for p in model.frontend.parameters():
        p.requires_grad = False
    first = model.frontend[0].weight.clone()
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)  # OTHER
    valid = make_words(400, gen)

    for step in range(360):
        if step == 120:
            for p in model.frontend.parameters():
                p.requires_grad = True  # CAUSE
            print("front end joins")
        wave, y = make_words(32, gen)
        loss = F.cross_entropy(model(wave), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"step {step} loss {loss.item():.3f} valid {accuracy(model, *valid):.3f}")
    print("front end moved by", (model.frontend[0].weight - first).abs().max().item())


if __name__ == "__main__":
    main()
