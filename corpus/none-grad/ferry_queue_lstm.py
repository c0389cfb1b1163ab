"""Length of a ferry's queue with Lightning: the model steps an LSTM by hand over a day, and a helper that was written for
the border between two days detaches its state at each hour."""
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "state detached at each step of time",
    "kind": "detached-in-time",
    "line": ["cut", "HERE"],
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-29",
}

torch.manual_seed(3)
torch.set_num_threads(1)
HOURS = 24


def fresh_graph(state):
    """Hidden state and cell without their history."""
    return tuple(part.detach() for part in state)  # HERE


class Queue(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, arrivals):
        state, lengths = None, []
        for hour in range(HOURS):
            if state is not None:
                state = fresh_graph(state)
            hidden, state = self.lstm(arrivals[:, hour : hour + 1], state)
            lengths.append(self.out(hidden[:, -1]))
        return torch.cat(lengths, 1)

    def training_step(self, batch, i):
        arrivals, lengths = batch
        return F.mse_loss(self(arrivals), lengths)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


arrivals = torch.rand(640, HOURS, 3)
lengths = (arrivals.sum(2) - 1.5).cumsum(1)
trainer = L.Trainer(
    max_epochs=4,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Queue(), DataLoader(TensorDataset(arrivals, lengths), batch_size=32, shuffle=True))
