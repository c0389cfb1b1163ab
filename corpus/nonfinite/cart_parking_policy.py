"""Park a cart on a short rail with PPO; rollouts are whole episodes, so their length varies.

Report: https://github.com/DLR-RM/stable-baselines3/issues/325
"""
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "SOURCE"),
    "plain": "training goes well for many rollouts, then sampling actions raises ValueError because the logits are NaN",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}


class Rail:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.pos = self.rng.uniform(-1.0, 1.0)
        self.vel = 0.0
        self.goal = self.rng.uniform(-0.8, 0.8)
        self.t = 0
        return self.observe()

    def observe(self):
        return np.array([self.pos, self.vel, self.goal, self.goal - self.pos], dtype=np.float32)

    def step(self, action):
        self.vel = 0.8 * self.vel + 0.06 * (action - 1)
        self.pos = float(np.clip(self.pos + self.vel, -1.2, 1.2))
        self.t += 1
        parked = abs(self.pos - self.goal) < 0.08 and abs(self.vel) < 0.06
        reward = 1.0 if parked else -0.03
        return self.observe(), reward, parked or self.t >= 50, parked


class ActorCritic(nn.Module):
    def __init__(self, n_obs=4, n_act=3, width=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, n_act))
        self.v = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.v(obs).squeeze(-1)


def collect(env, net, episodes, gamma=0.98, lam=0.95):
    obs_all, act_all, logp_all, adv_all, ret_all = [], [], [], [], []
    returns, parked_count = [], 0
    for _ in range(episodes):
        obs, done, total = env.reset(), False, 0.0
        values, rewards = [], []
        while not done:
            x = torch.from_numpy(obs)
            with torch.no_grad():
                dist, value = net(x)
                action = dist.sample()
            obs_all.append(x)
            act_all.append(action)
            logp_all.append(dist.log_prob(action))
            obs, reward, done, parked = env.step(action.item())
            values.append(value.item())
            rewards.append(reward)
            total += reward
        parked_count += parked
        values.append(0.0)
        running, advantages = 0.0, np.zeros(len(rewards), dtype=np.float32)
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + gamma * values[t + 1] - values[t]
            running = delta + gamma * lam * running
            advantages[t] = running
        adv_all.append(torch.from_numpy(advantages))
        ret_all.append(torch.from_numpy(advantages + np.array(values[:-1], dtype=np.float32)))
        returns.append(total)
    data = (torch.stack(obs_all), torch.stack(act_all), torch.stack(logp_all), torch.cat(adv_all), torch.cat(ret_all))
    return data, float(np.mean(returns)), parked_count / episodes


def policy_loss(net, obs, act, old_logp, adv, ret, clip=0.2):
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # SOURCE
    dist, value = net(obs)
    ratio = torch.exp(dist.log_prob(act) - old_logp)
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    return -surrogate.mean() + 0.5 * (value - ret).pow(2).mean() - 0.01 * dist.entropy().mean()


def update(net, optimizer, data, epochs=4, batch_size=32):
    n = len(data[0])
    losses = []
    for _ in range(epochs):
        for idx in torch.randperm(n).split(batch_size):
            loss = policy_loss(net, *(part[idx] for part in data))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


def main():
    torch.manual_seed(1)
    env = Rail(np.random.default_rng(1))
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for rollout in range(70):
        data, mean_return, rate = collect(env, net, episodes=12)
        loss = update(net, optimizer, data)
        if rollout % 3 == 0:
            print(f"rollout {rollout:3d}  transitions {len(data[0]):4d}  loss {loss:7.4f}  return {mean_return:6.3f}  parked {rate:.2f}")


if __name__ == "__main__":
    main()
