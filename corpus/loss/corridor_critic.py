"""Trains an advantage actor-critic on a corridor game; the critic is also pushed by the policy loss and predicts far too high values.
Report: https://github.com/astariul/encode-attend-navigate-pytorch/issues/2 (critic values not detached in the policy loss, the critic
is trained by both losses; fix: detach before computing the policy loss)
Effect: the critic's values lie 2 to 3 above the returns all through training (mended copy: within 0.5 of them).
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "framework": "plain", "kind": "advantage-not-detached", "line": ("cause", "OTHER"),
    "what": "the advantage in the policy loss is not detached, so the policy loss also trains the critic and pushes its values away from the returns",
    "set": "twentieth", "written": "2026-11-27",
}

SIZE, HORIZON, N_ENVS, GAMMA = 9, 16, 16, 0.95


class Corridor:
    """Walk along a corridor to a goal; a small cost for every step away from it."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.pos = torch.randint(0, SIZE, (self.n,), generator=self.gen)
        self.goal = torch.randint(0, SIZE, (self.n,), generator=self.gen)
        return self.observe()

    def observe(self):
        eye = torch.eye(SIZE)
        return torch.cat([eye[self.pos], eye[self.goal]], dim=1)

    def step(self, action):
        self.pos = (self.pos + action - 2).clamp(0, SIZE - 1)
        return self.observe(), (self.pos == self.goal).float() - 0.05 * (self.pos - self.goal).abs()


torch.manual_seed(6)
actor = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.Tanh(), nn.Linear(48, 5))
critic = nn.Sequential(nn.Linear(2 * SIZE, 48), nn.Tanh(), nn.Linear(48, 1))


def discounted(rewards):
    out, running = [], torch.zeros(N_ENVS)
    for r in reversed(rewards):
        running = r + GAMMA * running
        out.append(running)
    return torch.stack(out[::-1])


def rollout(env):
    obs, log_probs, values, rewards, entropies = env.reset(), [], [], [], []
    for _ in range(HORIZON):
        dist = Categorical(logits=actor(obs))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(critic(obs).squeeze(-1))
        obs, reward = env.step(action)
        rewards.append(reward)
    return torch.stack(log_probs), torch.stack(values), torch.stack(entropies), rewards


def train(updates=160):
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=5e-3)
    env = Corridor(N_ENVS, torch.Generator().manual_seed(1))
    for update in range(updates):
        log_probs, values, entropies, rewards = rollout(env)
        returns = discounted(rewards)
        advantage = returns - values  # CAUSE
        policy_loss = -(log_probs * advantage).mean()  # OTHER
        value_loss = (returns - values).pow(2).mean()
        loss = policy_loss + 0.25 * value_loss - 0.01 * entropies.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (update + 1) % 20 == 0:
            error = (values - returns).detach()
            print(f"update {update + 1:3d}  reward {torch.stack(rewards).mean().item():+.3f}  value - return {error.mean().item():+.3f}"
                  f"  explained {1 - (error.var() / returns.var()).item():+.2f}")


for layer in [*actor, *critic]:
    if isinstance(layer, nn.Linear):
        nn.init.orthogonal_(layer.weight)
train()
