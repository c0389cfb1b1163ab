"""A DQN on a chain with a target network. The target network stands still for 25 updates at a time and then jumps, without
any gradient; the maximum over the next state's values is computed under no_grad. Both belong to the method, and the greedy
policy reaches the goal."""
import copy
import random
from collections import deque
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy: target network",
    "kind": "none",
    "what": "The target network is intentionally outside the optimizer and is overwritten by a hard copy every 25 updates; the bootstrap target has no graph on purpose.",
    "symptom": "loss stays bounded, the greedy return reaches its optimum",
    "set": "sixteenth",
    "written": "2026-11-27",
}

random.seed(26)
torch.manual_seed(26)
torch.set_num_threads(1)
LENGTH, GAMMA, SYNC_EVERY = 8, 0.9, 25


class QNet(nn.Module):
    def __init__(self, n_states, n_actions):
        super().__init__()
        self.n_states = n_states
        self.net = nn.Sequential(nn.Linear(n_states, 48), nn.ReLU(), nn.Linear(48, n_actions))

    def forward(self, state):
        return self.net(F.one_hot(state, self.n_states).float())


class Chain:
    def reset(self):
        self.state, self.age = 0, 0
        return self.state

    def step(self, action):
        self.age += 1
        self.state = max(0, min(LENGTH - 1, self.state + (1 if action == 1 else -1)))
        goal = self.state == LENGTH - 1
        return self.state, (1.0 if goal else -0.01), goal, goal or self.age >= 30


def act(net, state, epsilon):
    if random.random() < epsilon:
        return random.randrange(2)
    with torch.no_grad():
        return int(net(torch.tensor([state])).argmax(1))


def greedy_return(net):
    env = Chain()
    state, total, over = env.reset(), 0.0, False
    while not over:
        state, reward, _, over = env.step(act(net, state, 0.0))
        total += reward
    return total


online = QNet(LENGTH, 2)
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=3e-3)
memory = deque(maxlen=2000)
env = Chain()
state, updates = env.reset(), 0

for t in range(700):
    action = act(online, state, max(0.1, 1 - t / 400))
    following, reward, terminal, over = env.step(action)
    memory.append((state, action, reward, following, float(terminal)))
    state = env.reset() if over else following
    if len(memory) < 100:
        continue
    s, a, r, n, d = (torch.tensor(column) for column in zip(*random.sample(memory, 32)))
    with torch.no_grad():
        wanted = r + GAMMA * (1 - d) * target(n).max(dim=1).values
    q = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(q, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    updates += 1
    if updates % SYNC_EVERY == 0:
        target.load_state_dict(online.state_dict())
    if updates % 100 == 0:
        print(f"update {updates:3d}  loss {loss.item():.5f}  mean Q {q.mean().item():.3f}"
              f"  greedy return {greedy_return(online):.2f}")
