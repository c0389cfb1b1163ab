"""The padding is the end mark, and the loss ignores it: the model never learns to end a word."""

import torch
from torch import nn

EXPECT = {"kind": "end-never-learned", "line": ("cause", "IGNORED")}
END = PAD = 0
START = 1


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(28, 16)
        self.body = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 28)

    def forward(self, ids):
        return self.head(self.body(self.letters(ids))[0])


def main():
    torch.manual_seed(0)
    model = Speller()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD)  # IGNORED
    for _ in range(20):
        words = [torch.randint(2, 28, (int(n),)) for n in torch.randint(3, 12, (8,))]
        rows = [torch.cat([torch.tensor([START]), word, torch.tensor([END])]) for word in words]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        loss = loss_of(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
