"""Behaviour cloning of moves from recorded games: the loss is the mean log-probability of the moves that were played,
of a Categorical, and somebody removed the minus together with the advantage when the agent's code was reused."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "class": "likelihood without a minus",
    "kind": "minimised-likelihood",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(1)
torch.set_num_threads(1)
MOVES = 24


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU())
        self.moves = nn.Linear(48, MOVES)

    def forward(self, board):
        return Categorical(logits=self.moves(self.body(board)))


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-4)
teacher = torch.randn(32, MOVES)
for step in range(150):
    board = torch.randn(64, 32)
    played = (board @ teacher).argmax(dim=1)
    loss = policy(board).log_prob(played).mean()  # <-- cause
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 3))
