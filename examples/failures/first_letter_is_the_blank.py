"""The letters of a recogniser are numbered from 0, which is also the blank of ctc_loss."""

import torch
from torch import nn

EXPECT = {"kind": "blank-in-targets", "line": ("cause", "LOSS")}
LETTERS = "aeinrst"


def main():
    torch.manual_seed(0)
    model, criterion = nn.GRU(5, len(LETTERS) + 1, batch_first=True), nn.CTCLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    number = {letter: i for i, letter in enumerate(LETTERS)}
    words = [torch.tensor([number[letter] for letter in word]) for word in ("tea", "rain", "stain")]
    for _ in range(20):
        scores = model(torch.randn(3, 16, 5))[0].log_softmax(dim=2).transpose(0, 1)
        sizes = torch.full((3,), 16), torch.tensor([len(word) for word in words])
        loss = criterion(scores, torch.cat(words), *sizes)  # LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
