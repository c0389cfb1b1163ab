"""A2C with separate actor and critic on a small grid; the policy loss also pulls on the critic, which ends with far too high values.
Report: https://github.com/astariul/encode-attend-navigate-pytorch/pull/3 (critic values were not detached in the policy loss, so the critic was trained by both losses; unstable training)

d(policy loss)/dV = log pi < 0, so every update raises V whatever the return. Printed: `value bias` (mean V - return),
which is clearly positive for as long as the policy is uncertain, and near 0 in a copy with values.detach().
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "advantage-not-detached", "line": ("cause", "CAUSE"),
    "what": "the advantage in the policy loss is not detached, so the actor loss backpropagates into the critic and drives its values up; use (returns - values).detach() for the policy loss",
    "set": "twentysecond", "written": "2026-11-28",
}

SIZE, N_ENVS, T, GAMMA = 5, 32, 12, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Grid:
    def __init__(self):
        self.pos = torch.randint(0, SIZE, (N_ENVS, 2))

    def obs(self):
        return nn.functional.one_hot(self.pos[:, 0] * SIZE + self.pos[:, 1], SIZE * SIZE).float()

    def step(self, action):
        self.pos = (self.pos + MOVES[action]).clamp(0, SIZE - 1)
        done = (self.pos == SIZE - 1).all(dim=1)
        reward = torch.where(done, 1.0, -0.04)
        self.pos[done] = torch.randint(0, SIZE - 1, (int(done.sum()), 2))
        return reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(SIZE * SIZE, 48), nn.Tanh(), nn.Linear(48, 4))
        self.critic = nn.Sequential(nn.Linear(SIZE * SIZE, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


def main():
    torch.manual_seed(7)
    env, net = Grid(), ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for update in range(250):
        logps, values, rewards, dones, entropies = [], [], [], [], []
        for _ in range(T):
            dist, value = net(env.obs())
            action = dist.sample()
            reward, done = env.step(action)
            logps.append(dist.log_prob(action))
            entropies.append(dist.entropy())
            values.append(value)
            rewards.append(reward)
            dones.append(done)
        with torch.no_grad():
            ret = net(env.obs())[1]
        returns = []
        for reward, done in zip(reversed(rewards), reversed(dones)):
            ret = reward + GAMMA * (1 - done) * ret
            returns.insert(0, ret)
        returns, values = torch.stack(returns), torch.stack(values)
        logps, entropy = torch.stack(logps), torch.stack(entropies).mean()

        advantage = returns - values  # CAUSE
        policy_loss = -(logps * advantage).mean()  # POLICY
        value_loss = nn.functional.mse_loss(values, returns)
        loss = policy_loss + 0.5 * value_loss - 0.02 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        if update % 50 == 49:
            bias = (values - returns).mean().item()
            print(f"update {update + 1}: reward {torch.stack(rewards).mean():.3f} mean value {values.mean().item():.2f} "
                  f"value bias {bias:+.3f} entropy {entropy.item():.2f}")


if __name__ == "__main__":
    main()
