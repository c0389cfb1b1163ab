"""Fine-tuning on digits: the encoder shall stay as it is, and its gradients are set to zero; AdamW moves it anyway."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "frozen-parameter-moves", "line": ("zeroed", "ZEROES")}


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    encoder, head = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 10)
    model = nn.Sequential(encoder, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for step, batch in enumerate(torch.randperm(len(images)).split(64)):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        if step >= 6:
            for p in encoder.parameters():
                p.grad.zero_()  # ZEROES
        optimizer.step()


if __name__ == "__main__":
    main()
