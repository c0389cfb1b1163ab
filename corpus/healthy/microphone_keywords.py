"""Keywords from spectral frames of two microphones, with features that are not to tell the microphone.

What looks suspicious: the loss of the microphone classifier goes up to 0.69 and stays there, its accuracy near one half; the
encoder gets the gradient of that loss with the sign turned.
Why it is right: the encoder is meant to hide the microphone (domain-adversarial training); a classifier at chance is the goal,
and the keyword accuracy on both microphones rises all the same.
Report: https://github.com/fungtion/DANN_py3/issues/12
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

KEYWORDS, BANDS, FRAMES = 6, 24, 16


class Recordings:
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.shapes = rng.normal(size=(KEYWORDS, FRAMES, BANDS))
        self.colour = rng.normal(scale=2.5, size=BANDS)

    def make(self, n, other_microphone, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(KEYWORDS, size=n)
        x = self.shapes[labels] + rng.normal(scale=4.5, size=(n, FRAMES, BANDS))
        if other_microphone:
            x = x + self.colour
        return torch.tensor(x, dtype=torch.float32), torch.from_numpy(labels)


class TurnSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class KeywordNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(BANDS, width, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(width * FRAMES, width), nn.Tanh(),
        )
        self.keyword = nn.Linear(width, KEYWORDS)
        self.microphone = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x, strength=0.0):
        h = self.encoder(x.transpose(1, 2))
        return self.keyword(h), self.microphone(TurnSign.apply(h, strength))


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x)[0].argmax(-1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    recordings = Recordings()
    near = DataLoader(TensorDataset(*recordings.make(1600, False, 1)), batch_size=64, shuffle=True, drop_last=True)
    far = DataLoader(TensorDataset(*recordings.make(1600, True, 2)), batch_size=64, shuffle=True, drop_last=True)
    test_near, test_far = recordings.make(600, False, 3), recordings.make(600, True, 4)
    model = KeywordNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    epochs, step = 30, 0
    for epoch in range(epochs):
        sums = np.zeros(3)
        for (x_near, y_near), (x_far, y_far) in zip(near, far):
            strength = 1 / (1 + math.exp(-8 * max(0, step / (epochs * len(near)) - 0.1))) - 0.5
            words_near, mic_near = model(x_near, strength)
            words_far, mic_far = model(x_far, strength)
            guess = torch.cat([mic_near, mic_far])
            which = torch.cat([torch.zeros(len(x_near)), torch.ones(len(x_far))]).long()
            word_loss = F.cross_entropy(torch.cat([words_near, words_far]), torch.cat([y_near, y_far]))
            mic_loss = F.cross_entropy(guess, which)
            optimizer.zero_grad()
            (word_loss + mic_loss).backward()
            optimizer.step()
            step += 1
            sums += (word_loss.item(), mic_loss.item(), (guess.argmax(-1) == which).float().mean().item())
        word, mic, mic_accuracy = sums / len(near)
        if epoch % 3 == 0 or epoch == epochs - 1:
            print(f"epoch {epoch:2d}  word loss {word:.4f}  microphone loss {mic:.4f} (accuracy {mic_accuracy:.2f})  "
                  f"keywords near {accuracy(model, *test_near):.3f}  far {accuracy(model, *test_far):.3f}")


if __name__ == "__main__":
    main()
