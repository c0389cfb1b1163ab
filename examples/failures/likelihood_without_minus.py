"""A naive word model maximises nothing: its loss is the log-likelihood of the next word, and the minus is missing."""

import torch
from torch import nn

EXPECT = {"kind": "minimised-likelihood", "line": ("cause", "LOSS")}


def log_likelihood(model, words):
    log_p = model(words[:, :-1]).log_softmax(dim=-1)
    picked = log_p.gather(-1, words[:, 1:, None]).squeeze(-1)
    return picked.sum(dim=1).mean()  # LOSS


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(30):
        words = (torch.arange(9) + torch.randint(0, 20, (16, 1))) % 20
        loss = log_likelihood(model, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
