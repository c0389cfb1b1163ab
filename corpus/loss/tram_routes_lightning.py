"""Bus routes are continued stop by stop by an LSTM with Lightning. Routes end with stop 0, which also fills them up to
one length, and cross_entropy ignores it: the model never learns where a route ends.
"""

import logging
import random
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "end mark is padding",
    "kind": "end-never-learned",
    "framework": "lightning",
    "line": ("cause", "HERE"),
    "plain": "0 of 60 routes end; with a fill that has an id of its own, 59 of 60 do.",
    "set": "ledger",
    "written": "2026-11-29",
}

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
TERMINUS = 0
FILL = TERMINUS
STOPS, LONGEST = 24, 18


class Routes(torch.utils.data.Dataset):
    def __len__(self):
        return 1200

    def __getitem__(self, i):
        rng = random.Random(i)
        stop, step = rng.randrange(1, STOPS), rng.choice([1, 2, 5])
        route = [stop]
        for _ in range(rng.randrange(3, 12)):
            stop = 1 + (stop + step) % (STOPS - 1)
            route.append(stop)
        route.append(TERMINUS)
        return torch.tensor(route + [FILL] * (LONGEST - len(route)))


class RouteModel(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.stops = nn.Embedding(STOPS, 24)
        self.body = nn.LSTM(24, 48, batch_first=True)
        self.head = nn.Linear(48, STOPS)

    def forward(self, route):
        return self.head(self.body(self.stops(route))[0])

    def training_step(self, route, _):
        scores = self(route[:, :-1])
        return F.cross_entropy(scores.transpose(1, 2), route[:, 1:], ignore_index=FILL)  # HERE

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)

    @torch.no_grad()
    def drive(self, first):
        route = [first]
        while len(route) < LONGEST:
            stop = self(torch.tensor([route]))[0, -1].softmax(0).multinomial(1).item()
            if stop == TERMINUS:
                return route, True
            route.append(stop)
        return route, False


def main():
    torch.manual_seed(3)
    model = RouteModel()
    loader = torch.utils.data.DataLoader(Routes(), batch_size=24, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    model.eval()
    print("routes that end:", sum(model.drive(1 + i % (STOPS - 1))[1] for i in range(60)), "of 60")


if __name__ == "__main__":
    main()
