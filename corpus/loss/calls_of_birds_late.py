"""Recognition of bird calls. For the first 150 steps with hard labels; then mixup begins, whose branch asks the model
for probabilities, as its demo did, and hands them to cross_entropy with soft targets."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "softmax before cross entropy",
    "kind": "normalised-twice",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(5)
torch.set_num_threads(1)
SPECIES = 12
songs = torch.randn(SPECIES, 24)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(4, 32, batch_first=True)
        self.head = nn.Linear(32, SPECIES)

    def forward(self, x, probabilities=False):
        scores = self.head(self.encoder(x.view(len(x), 6, 4))[0][:, -1])
        return F.softmax(scores, dim=-1) if probabilities else scores  # <-- cause


model = Recogniser()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(400):
    species = torch.randint(0, SPECIES, (32,))
    x = songs[species] + 0.5 * torch.randn(32, 24)
    if step < 150:
        loss = F.cross_entropy(model(x), species)
    else:
        share, other = torch.rand(32, 1), torch.randperm(32)
        hot = F.one_hot(species, SPECIES).float()
        mixed = share * x + (1 - share) * x[other]
        loss = F.cross_entropy(model(mixed, probabilities=True), share * hot + (1 - share) * hot[other])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
