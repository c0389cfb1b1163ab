"""Q-learning with a mask of legal moves: moves that are not legal are minus infinity; at the end of a game none is left, and zero for "done" times minus infinity is no number.

Report: https://github.com/anthonytorlucci/rlevo/issues/192 (the bootstrap term is scaled by 1 - done in place of being masked; pull 1074 there: Inf times zero)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "seventh", "written": "2026-11-22",
}


class Board:
    """Nine fields, each taken once; whoever fills the last one ends the game."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.taken = torch.zeros(9)
        self.value = torch.randn(9)

    def observe(self):
        return torch.cat([self.taken, self.value])

    def play(self, move):
        reward = self.value[move].item() / (1 + self.taken.sum().item())
        self.taken[move] = 1
        return reward, bool(self.taken.all())


class Replay:
    def __init__(self, size=600):
        self.size, self.items = size, []

    def add(self, *item):
        self.items = (self.items + [item])[-self.size :]

    def sample(self, n):
        rows = [self.items[i] for i in torch.randint(0, len(self.items), (n,))]
        return tuple(torch.stack([torch.as_tensor(v) for v in column]) for column in zip(*rows))


def bootstrap(target_net, observation, done, gamma=0.9):
    q = target_net(observation).masked_fill(observation[:, :9] > 0, float("-inf"))
    return gamma * (1 - done.float()) * q.max(1).values  # CULPRIT


torch.manual_seed(0)
q_net, target_net = (nn.Sequential(nn.Linear(18, 48), nn.ReLU(), nn.Linear(48, 9)) for _ in range(2))
target_net.load_state_dict(q_net.state_dict())
optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-3)
board, replay = Board(), Replay()
patience = 5  # moves after which a game is given up; longer games later
for step in range(220):
    patience = 9 if step >= 100 else 5
    before = board.observe()
    legal = (board.taken == 0).nonzero().squeeze(1)
    move = legal[torch.randint(0, len(legal), ())]
    reward, done = board.play(move)
    replay.add(before, move, reward, board.observe(), done)
    if done or board.taken.sum() >= patience:
        board.reset()
    if step < 20:
        continue
    state, action, gain, following, finished = replay.sample(16)
    with torch.no_grad():
        target = gain.float() + bootstrap(target_net, following, finished)
    loss = nn.functional.smooth_l1_loss(q_net(state).gather(1, action[:, None]).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        target_net.load_state_dict(q_net.state_dict())
        print(step, loss.item())
