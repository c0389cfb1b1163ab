"""A variational autoencoder for small glyphs, with a probe of what the latent codes know.

Report: https://github.com/jankrepl/deepdow/pull/106
"""
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "sample-without-gradient",
    "line": ("cut", "HERE"),
    "plain": "the KL goes to zero, the reconstruction error stays at that of a mean image and the codes say nothing about the glyph",
    "set": "twentysixth",
    "written": "2026-11-29",
}

LATENT, EPOCHS, BATCH = 8, 25, 64


class Encoder(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, LATENT)
        self.log_scale = nn.Linear(hidden, LATENT)

    def forward(self, image):
        hidden = self.body(image)
        return Normal(self.mean(hidden), self.log_scale(hidden).clamp(-6, 3).exp())


class Decoder(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LATENT, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def forward(self, code):
        return torch.sigmoid(self.body(code))


class GlyphVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, image):
        posterior = self.encoder(image)
        code = posterior.sample()  # HERE
        prior = Normal(torch.zeros_like(code), torch.ones_like(code))
        kl = kl_divergence(posterior, prior).sum(1).mean()
        error = ((self.decoder(code) - image) ** 2).sum(1).mean()
        return error, kl


def probe(model, train, test):
    with torch.no_grad():
        train_code, test_code = model.encoder(train[0]).mean, model.encoder(test[0]).mean
    head = LogisticRegression(max_iter=300)
    head.fit(train_code.numpy(), train[1].numpy())
    return head.score(test_code.numpy(), test[1].numpy())


def main():
    torch.manual_seed(7)
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(7))
    pixels, digits = torch.tensor(pixels, dtype=torch.float32)[order] / 16, torch.tensor(digits)[order]
    train, test = (pixels[:1300], digits[:1300]), (pixels[1300:], digits[1300:])
    loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True)
    model = GlyphVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        errors, kls = 0.0, 0.0
        for image, _ in loader:
            error, kl = model(image)
            loss = error + 0.1 * kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            errors += error.item()
            kls += kl.item()
        if epoch % 4 == 0:
            print(f"epoch {epoch:2d}  error {errors / len(loader):.4f}  kl {kls / len(loader):.4f}")
    with torch.no_grad():
        error, kl = model(test[0])
    print(f"test error {error.item():.4f}  kl {kl.item():.4f}  probe accuracy {probe(model, train, test):.3f}")


if __name__ == "__main__":
    main()
