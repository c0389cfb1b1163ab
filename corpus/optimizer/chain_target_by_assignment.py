"""Q-learning on a chain: the target network is loaded with assign=True so that it starts in the dtype of the online one. From then on both have the same tensors, and each synchronisation copies them onto themselves."""
import copy

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "state-not-copied", "framework": "plain", "kind": "state-not-copied", "line": ("cause", "SHARED"),
    "set": "ledger", "written": "2026-11-27",
}
STATES, ACTIONS = 12, 2


def walk(state, action):
    after = (state + 2 * action - 1).clamp(0, STATES - 1)
    return after, (after == STATES - 1).float()


def network():
    return nn.Sequential(nn.Embedding(STATES, 16), nn.ReLU(), nn.Linear(16, ACTIONS))


torch.manual_seed(0)
online, target = network().double(), network()
target.load_state_dict(online.state_dict(), assign=True)  # SHARED
target.requires_grad_(False)
online.requires_grad_(True)
optimizer = torch.optim.Adam(online.parameters(), lr=5e-3)
start = copy.deepcopy(online[2].weight)
for step in range(240):
    state = torch.randint(0, STATES, (64,))
    action = torch.randint(0, ACTIONS, (64,))
    after, reward = walk(state, action)
    with torch.no_grad():
        goal = reward + 0.9 * (1 - reward) * target(after).max(1).values
    loss = F.smooth_l1_loss(online(state).gather(1, action[:, None])[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        target.load_state_dict(online.state_dict())
        print(step, loss.item(), (online[2].weight - start).norm().item())
