"""DQN on a corridor; the target network is synchronised with itself, so it stays at its random start and values never travel further than one step.

Report: https://github.com/thesouther/MARL/issues/8 (target_qmix_net.load_state_dict(target_qmix_net.state_dict()): the target network is loaded from itself instead of the eval network)
"""
import random
from collections import deque

import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "state-not-copied", "line": ("cause", "CAUSE"),
    "what": "update_target loads the target network's own state dict, so the target never gets the online weights and the bootstrap values stay those of the random initialisation",
    "set": "nineteenth", "written": "2026-11-27",
}

LENGTH = 8


class Corridor:
    """Start on the left; a reward waits at the right end, a small one for giving up at the left end."""

    def reset(self, start=1):
        self.pos, self.t = start, 0
        return self.pos

    def step(self, action):
        self.pos += 1 if action == 1 else -1
        self.t += 1
        reward = {0: 0.3, LENGTH - 1: 1.0}.get(self.pos, 0.0)
        return self.pos, reward, reward > 0 or self.t >= 40


def encode(pos):
    return nn.functional.one_hot(torch.as_tensor(pos), LENGTH).float()


def make_net():
    return nn.Sequential(nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, 2))


class Agent:
    def __init__(self):
        self.eval_net, self.target_net = make_net(), make_net()
        self.target_net.load_state_dict(self.eval_net.state_dict())
        self.optimizer = torch.optim.Adam(self.eval_net.parameters(), lr=5e-3)
        self.memory = deque(maxlen=2000)
        self.gamma, self.updates = 0.95, 0

    def act(self, pos, eps):
        if random.random() < eps:
            return random.randrange(2)
        with torch.no_grad():
            return int(self.eval_net(encode(pos)).argmax())

    def update_target(self):
        self.target_net.load_state_dict(self.target_net.state_dict())  # CAUSE

    def learn(self, batch_size=64):
        s, a, r, s2, d = zip(*random.sample(self.memory, batch_size))
        q = self.eval_net(encode(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            q_next = self.target_net(encode(s2)).max(1).values
            target = torch.tensor(r) + self.gamma * q_next * (1 - torch.tensor(d, dtype=torch.float32))
        loss = nn.functional.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 25 == 0:
            self.update_target()
        return loss.item()


def greedy_return(agent):
    env = Corridor()
    pos, done = env.reset(), False
    while not done:
        pos, r, done = env.step(agent.act(pos, 0.0))
    return r * agent.gamma ** (env.t - 1)


def main():
    random.seed(0)
    torch.manual_seed(0)
    agent, env = Agent(), Corridor()
    pos = env.reset()
    for t in range(4 * 350 + 200):
        action = agent.act(pos, 1.0 if t < 800 else 0.3)
        nxt, r, done = env.step(action)
        agent.memory.append((pos, action, r, nxt, done))
        pos = env.reset(random.randint(1, LENGTH - 2)) if done else nxt
        if t >= 200 and t % 4 == 0:
            loss = agent.learn()
            if agent.updates % 50 == 0:
                with torch.no_grad():
                    v = agent.eval_net(encode(1)).max().item()
                print(f"update {agent.updates:3d}  loss {loss:.5f}  value at start {v:.3f}  greedy return {greedy_return(agent):.3f}")


if __name__ == "__main__":
    main()
