"""Proximal policy optimisation of a lamp dimmer that follows the wish of a room. Nothing is wrong.

Looks suspicious: the printed policy loss stays around zero and does not fall, in the first pass over each rollout the ratio of
new to old probabilities is exactly one, the old log-probabilities and advantages carry no gradient, and the standard deviation
is a single free parameter. It is right: advantages are normalised to mean zero, so the surrogate begins at zero although its
gradient does not, and the measure of success is the reward, which rises.
Report of the suspicion: https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/65
"""
import torch
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "kind": "none",
    "plain": "the policy loss stays about zero while the reward rises towards its best value",
    "set": "twentysixth",
    "written": "2026-11-29",
}

ROOMS, HORIZON, GAMMA, LAMBDA, CLIP = 32, 24, 0.9, 0.9, 0.2
ROLLOUTS, PASSES, BATCH = 45, 4, 192


class Rooms:
    def reset(self):
        self.level, self.wish = torch.rand(ROOMS), torch.rand(ROOMS)
        return self.observe()

    def observe(self):
        return torch.stack([self.level, self.wish, self.wish - self.level], 1)

    def step(self, action):
        self.level = (self.level + 0.3 * action.clamp(-1, 1)).clamp(0, 1)
        reward = -(self.level - self.wish).abs() - 0.02 * action.pow(2)
        moved = torch.rand(ROOMS) < 0.08
        self.wish = torch.where(moved, torch.rand(ROOMS), self.wish)
        return self.observe(), reward


class Dimmer(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.critic = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.tensor(-0.5))

    def policy(self, state):
        return Normal(self.actor(state).squeeze(-1), self.log_std.exp())

    def value(self, state):
        return self.critic(state).squeeze(-1)


@torch.no_grad()
def collect(model, rooms, state):
    states, actions, logs, rewards, values = [], [], [], [], []
    for _ in range(HORIZON):
        policy = model.policy(state)
        action = policy.sample()
        states.append(state)
        actions.append(action)
        logs.append(policy.log_prob(action))
        values.append(model.value(state))
        state, reward = rooms.step(action)
        rewards.append(reward)
    following, running, advantages = model.value(state), torch.zeros(ROOMS), []
    for step in reversed(range(HORIZON)):
        delta = rewards[step] + GAMMA * following - values[step]
        running = delta + GAMMA * LAMBDA * running
        advantages.insert(0, running)
        following = values[step]
    advantages, values = torch.stack(advantages), torch.stack(values)
    flat = [torch.stack(part).flatten(0, 1) for part in (states, actions, logs)]
    return flat, advantages.flatten(), (advantages + values).flatten(), torch.stack(rewards).mean().item(), state


def update(model, optimizer, flat, advantages, returns):
    states, actions, old_logs = flat
    total, first = 0.0, None
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(PASSES):
        for pick in torch.randperm(len(actions)).split(BATCH):
            policy = model.policy(states[pick])
            ratio = (policy.log_prob(actions[pick]) - old_logs[pick]).exp()
            first = ratio.mean().item() if first is None else first
            gain = torch.min(ratio * advantages[pick], ratio.clamp(1 - CLIP, 1 + CLIP) * advantages[pick])
            policy_loss = -gain.mean()
            value_loss = (model.value(states[pick]) - returns[pick]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss - 0.001 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            total += policy_loss.item()
    return total / (PASSES * (len(actions) // BATCH)), first


def main():
    torch.manual_seed(13)
    rooms, model = Rooms(), Dimmer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    state = rooms.reset()
    for rollout in range(ROLLOUTS):
        flat, advantages, returns, reward, state = collect(model, rooms, state)
        policy_loss, first = update(model, optimizer, flat, advantages, returns)
        if rollout % 5 == 0 or rollout == ROLLOUTS - 1:
            print(f"rollout {rollout:2d}  policy loss {policy_loss:+.4f}  first ratio {first:.3f}  deviation {model.log_std.exp().item():.3f}  reward {reward:.4f}")


if __name__ == "__main__":
    main()
