"""Recurrent actor-critic; the memory of an environment is wiped when its episode ends.

Source: https://github.com/ikostrikov/pytorch-a2c-ppo-acktr-gail/issues/206 (custom recurrent policy has to reset its own
        state; the error is the one of https://github.com/pytorch/pytorch/issues/28959)
Plain PyTorch 2.13: RuntimeError "modified by an inplace operation" in the first update that saw an episode end.
"""
import torch
from torch import nn

EXPECT = {
    "class": "b", "kind": "inplace", "mutating_marker": "MUTATES", "saving_marker": "SAVES", "step": 421,
    "plain": {"outcome": "raises", "match": "modified by an inplace operation"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell, self.norm = nn.GRUCell(width, width), nn.LayerNorm(width)

    def forward(self, x, state, ended):
        state = self.cell(x, state)
        return self.norm(state), state  # SAVES


class Agent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.see, self.memory = nn.Linear(4, width), Memory(width)
        self.actor, self.critic = nn.Linear(width, 3), nn.Linear(width, 1)

    def forward(self, obs, state, ended):
        features, state = self.memory(torch.tanh(self.see(obs)), state, ended)
        return torch.distributions.Categorical(logits=self.actor(features)), self.critic(features).squeeze(1), state


class Corridors:
    """Eight walkers between two walls; a walker that touches a wall starts again in the middle."""

    def __init__(self, count=8):
        self.place, self.speed = torch.zeros(count), torch.zeros(count)

    def observe(self):
        return torch.stack([self.place / WALL, self.speed, self.place.sin(), self.place.cos()], 1)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.1 * (action - 1) + 0.05 * torch.randn_like(self.place)
        self.place = self.place + 0.25 * self.speed
        ended = self.place.abs() > WALL
        reward = 1 - (self.place / 15).abs()
        self.place[ended], self.speed[ended] = 0.0, 0.0
        return reward, ended


def wipe(state, ended):
    if ended.any():
        state[ended] = 0.0  # MUTATES
    return state


def main(horizon=6):
    torch.manual_seed(SEED)
    agent, world = Agent(), Corridors()
    opt = torch.optim.RMSprop(agent.parameters(), lr=5e-5)
    state, ended = torch.zeros(8, 32), torch.zeros(8, dtype=torch.bool)
    for step in range(900):
        logs, values, rewards, entropy, ends = [], [], [], [], []
        state = state.detach()
        for _ in range(horizon):
            policy, value, state = agent(world.observe(), state, ended)
            action = policy.sample()
            reward, ended = world.step(action)
            state = wipe(state, ended)
            logs.append(policy.log_prob(action)), values.append(value), rewards.append(reward)
            entropy.append(policy.entropy()), ends.append(ended)
        running, returns = values[-1].detach(), []
        for reward, end in zip(reversed(rewards), reversed(ends)):
            running = reward + 0.95 * running * ~end
            returns.insert(0, running)
        advantage = torch.stack(returns) - torch.stack(values)
        loss = -(torch.stack(logs) * advantage.detach()).mean() + 0.5 * advantage.square().mean()
        loss = loss - 0.02 * torch.stack(entropy).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", f"{world.place.abs().max():.1f}", flush=True)


SEED, WALL = 5, 22.5

if __name__ == "__main__":
    main()
