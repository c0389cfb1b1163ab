"""Lightning: a callback averages the weights and puts the average into the module before each validation. The method that takes it back has a name that no hook has."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "weights-put-back", "framework": "lightning", "kind": "weights-put-back", "line": ("mutated", "LOADED"),
    "set": "ledger", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Smoothed(L.Callback):
    def __init__(self, keep=0.97):
        self.keep, self.average, self.trained = keep, None, None

    def on_train_batch_end(self, trainer, module, *_):
        new = module.state_dict()
        if self.average is None:
            self.average = {k: v.clone() for k, v in new.items()}
        for k, v in self.average.items():
            v.mul_(self.keep).add_(new[k], alpha=1 - self.keep)

    def on_validation_epoch_start(self, trainer, module):
        self.trained = {k: v.clone() for k, v in module.state_dict().items()}
        module.load_state_dict(self.average)  # LOADED

    def on_validation_finished(self, trainer, module):
        module.load_state_dict(self.trained)


class Tumours(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 2))

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("valid", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


torch.manual_seed(0)
cells = load_breast_cancer()
x = torch.tensor(cells.data, dtype=torch.float32)
data = TensorDataset((x - x.mean(0)) / x.std(0), torch.tensor(cells.target))
train, valid = torch.utils.data.random_split(data, [400, len(data) - 400])
trainer = L.Trainer(max_epochs=6, accelerator="cpu", callbacks=[Smoothed()], logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer.fit(Tumours(), DataLoader(train, batch_size=10, shuffle=True), DataLoader(valid, batch_size=169))
print(trainer.callback_metrics)
