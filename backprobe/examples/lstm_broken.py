"""The LSTM with a mistake: the output is detached with the state, so nothing before the last layer learns."""

import argparse
import pydoc_data.topics

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, vocabulary, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, state):
        out, state = self.lstm(self.embed(tokens), state)
        out, state = out.detach(), tuple(s.detach() for s in state)
        return self.head(out), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    text = pydoc_data.topics.topics["class"] + pydoc_data.topics.topics["types"]
    characters = sorted(set(text))
    number = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([number[c] for c in text])
    rows = data[: len(data) // 16 * 16].view(16, -1)
    model = Model(len(characters))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    state = None
    for step in range(options.steps):
        at = step * 32 % (rows.shape[1] - 33)
        logits, state = model(rows[:, at : at + 32], state)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, at + 1 : at + 33].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
