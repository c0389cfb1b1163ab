"""DDPG-like training with one encoder for actor and critic and two optimizers. The actor gets the features detached, its loss
goes through the critic and leaves gradients there that no step of opt_actor uses. This is the usual recipe: the encoder is
trained by the critic only, and opt_critic clears before its own backward; actor and critic both learn."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy: shared trunk with two optimizers",
    "kind": "none",
    "what": "The encoder belongs to the critic's optimizer alone and the actor sees detached features by intention; the gradients the actor's loss leaves in the critic are cleared before the critic's next backward.",
    "symptom": "critic loss goes down, the mean reward rises to about its optimum",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(28)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, n_in=12, dim=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, dim), nn.LayerNorm(dim), nn.Tanh())

    def forward(self, obs):
        return self.net(obs)


class Actor(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())

    def forward(self, features):
        return self.net(features)


class Critic(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, features, action):
        return self.net(torch.cat([features, action], dim=1)).squeeze(-1)


class Bandit:
    """Reward is highest if the action is the hidden linear signal of the noisy observation."""

    def __init__(self):
        self.mixing = torch.randn(2, 12)

    def observe(self, n):
        hidden = torch.rand(n, 2) * 2 - 1
        return hidden @ self.mixing + 0.05 * torch.randn(n, 12), 0.8 * hidden[:, 0]

    def reward(self, action, best):
        return 1 - 2 * (action.squeeze(-1) - best).pow(2)


env = Bandit()
encoder, actor, critic = Encoder(), Actor(), Critic()
opt_critic = torch.optim.Adam([*encoder.parameters(), *critic.parameters()], lr=4e-3)
opt_actor = torch.optim.Adam(actor.parameters(), lr=2e-3)

rewards = []
for step in range(400):
    obs, best = env.observe(96)
    with torch.no_grad():
        greedy = actor(encoder(obs))
        action = (greedy + 0.3 * torch.randn_like(greedy)).clamp(-1, 1)
        reward = env.reward(action, best)
        rewards.append(env.reward(greedy, best).mean().item())

    # critic and encoder
    critic_loss = F.mse_loss(critic(encoder(obs), action), reward)
    opt_critic.zero_grad()
    critic_loss.backward()
    opt_critic.step()

    # actor only
    features = encoder(obs).detach()
    actor_loss = -critic(features, actor(features)).mean()
    opt_actor.zero_grad()
    actor_loss.backward()
    opt_actor.step()

    if step % 80 == 79:
        print(f"step {step + 1:3d}  critic loss {critic_loss.item():.4f}  actor loss {actor_loss.item():+.4f}"
              f"  greedy reward {sum(rewards[-80:]) / 80:.3f}")
