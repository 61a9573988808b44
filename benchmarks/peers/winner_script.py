"""The peer of `winner`: the same sweep as a script of the guides of its packages.

`python -m benchmarks.peers.winner_script JOB.json` runs the job in the file and writes the trials'
results as a list to `results.json` in the same folder. As in the guides:

- Ray Tune runs a function per trial, with Optuna's search, each in a process.
- A DataLoader decodes the images by PIL and augments them by torchvision. It has a worker per CPU
  if the trial has a GPU. Otherwise workers would compete with the training for the CPU.
- On a GPU the network is trained in bfloat16 by autocast.
- The losses are SupContrast's, a loss per task. SGD uses momentum, a warm-up and a cosine.
- scikit-learn's LogisticRegression probes the encoder once, after the training.
- MLflow logs an epoch's metrics to SQLite. The driver creates database and experiment, because
  concurrent trials fail to create them.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import ray
import torch
import torch.nn.functional as F
from PIL import Image
from ray import tune
from ray.air.integrations.mlflow import setup_mlflow
from ray.tune.search.optuna import OptunaSearch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

from benchmarks.losses import TEMPERATURE, supcontrast_loss
from mtcon_ray.models.encoders.small import Small

SPLITS = ("train", "val", "test")
EXPERIMENT = "winner"
NORMALIZE = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Photographs(Dataset[tuple[Tensor, dict[str, int]]]):
    """Images of a split, decoded at each access; an item is a transformed image and its labels."""

    def __init__(
        self, job: dict[str, Any], split: str, transform: Callable[[Image.Image], Tensor]
    ) -> None:
        table = pd.read_csv(job["csv"])
        codes = {task: table[task].astype("category").cat.codes for task in job["tasks"]}
        rows = table["split"] == split
        self.paths = [Path(job["images"], name) for name in table["image"][rows]]
        self.labels = {task: each[rows].to_numpy(np.int64) for task, each in codes.items()}
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, dict[str, int]]:
        image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image), {task: each[index] for task, each in self.labels.items()}


class TwoViews:
    """Two random views of an image, [2, 3, size, size]."""

    def __init__(self, size: int) -> None:
        self.augment = transforms.Compose(
            [
                transforms.RandomResizedCrop(size, scale=(0.4, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.RandomApply([transforms.ColorJitter(0.2, 0.2, 0.2, 0.02)], 0.8),
                transforms.ToTensor(),
                NORMALIZE,
            ]
        )

    def __call__(self, image: Image.Image) -> Tensor:
        return torch.stack([self.augment(image), self.augment(image)])


class Network(nn.Module):
    """The encoder, and a projection head per task."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        head_dim, tasks = job["head_dim"], job["tasks"]
        if job["encoder"] == "small":
            self.encoder: nn.Module = Small(Small.Spec(width=job["width"]))
            width = self.encoder.width
        else:
            net = models.get_model(job["encoder"])
            width, net.fc, self.encoder = net.fc.in_features, nn.Identity(), net
        self.heads = nn.ModuleDict(
            {
                task: nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, head_dim))
                for task in tasks
            }
        )

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Returns unit rows [N, head_dim] by task."""
        on_gpu = x_NCHW.device.type == "cuda"
        with torch.autocast(x_NCHW.device.type, torch.bfloat16, enabled=on_gpu):
            h_ND = self.encoder(x_NCHW)
        h_ND = h_ND.float()
        return {task: F.normalize(head(h_ND), dim=1) for task, head in self.heads.items()}


def train(config: dict[str, Any], job: dict[str, Any]) -> None:
    """Trains and probes a temperature; a Tune trainable."""
    torch.set_num_threads(job["cpus"])
    torch.manual_seed(0)
    setup_mlflow(config, tracking_uri=job["tracking"], experiment_name=EXPERIMENT)
    device = torch.device("cuda" if job["gpus"] else "cpu")
    loader = DataLoader(
        Photographs(job, "train", TwoViews(job["size"])),
        batch_size=job["batch_size"],
        shuffle=True,
        drop_last=True,
        **workers(job),
    )
    network = Network(job).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=job["lr"], momentum=0.9, weight_decay=1e-4)
    schedule = OneCycleLR(
        optimizer,
        max_lr=job["lr"],
        epochs=job["epochs"],
        steps_per_epoch=len(loader),
        pct_start=1 / job["epochs"],
        cycle_momentum=False,
    )
    began = first = time.time()
    for epoch in range(job["epochs"]):
        losses = []
        for x_B2CHW, labels in loader:
            z_by_task = network(x_B2CHW.flatten(0, 1).to(device, non_blocking=True))
            known = {task: each.to(device, non_blocking=True) for task, each in labels.items()}
            loss = multitask_loss(z_by_task, known, config["temperature"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        values = {"loss": float(np.mean(losses)), "lr": optimizer.param_groups[0]["lr"]}
        mlflow.log_metrics(values, step=epoch + 1)
        first = time.time() if epoch == 0 else first
    trained = time.time()
    accuracies = probe(network.encoder, job)
    mlflow.log_metrics(accuracies, step=job["epochs"])
    with TemporaryDirectory() as folder:
        torch.save(network.state_dict(), Path(folder, "model.pt"))
        times = {"began": began, "first": first, "trained": trained, "ended": time.time()}
        checkpoint = tune.Checkpoint.from_directory(folder)
        tune.report({**accuracies, **times}, checkpoint=checkpoint)
    mlflow.end_run()


def workers(job: dict[str, Any]) -> dict[str, Any]:
    """Returns a DataLoader's options: workers for a GPU, none without one."""
    if not job["gpus"]:
        return {}
    return {"num_workers": job["cpus"], "persistent_workers": True, "pin_memory": True}


def multitask_loss(
    z_by_task: dict[str, Tensor], labels: dict[str, Tensor], temperature: float
) -> Tensor:
    """Returns the sum over tasks of SupContrast's loss. The rows of a pair are neighbours."""
    # supcontrast_loss divides products of rows by TEMPERATURE. Scaled rows replace it.
    scale = math.sqrt(TEMPERATURE / temperature)
    losses = [
        supcontrast_loss(scale * z_by_task[task].unflatten(0, (-1, 2)), labels_B)
        for task, labels_B in labels.items()
    ]
    return torch.stack(losses).sum()


def probe(encoder: nn.Module, job: dict[str, Any]) -> dict[str, float]:
    """Returns each task's accuracy on val and test by a linear probe, and their mean on val."""
    encoder.eval()
    features, labels = zip(*(encode(encoder, job, split) for split in SPLITS), strict=True)
    accuracies = {}
    for task in job["tasks"]:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(features[0], labels[0][task])
        for split, x_ND, labels_by_task in zip(SPLITS[1:], features[1:], labels[1:], strict=True):
            accuracies[f"{split}_{task}"] = classifier.score(x_ND, labels_by_task[task])
    mean = float(np.mean([accuracies[f"val_{task}"] for task in job["tasks"]]))
    return {"val_accuracy": mean, **accuracies}


def encode(
    encoder: nn.Module, job: dict[str, Any], split: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the features [N, D] of a split's images without augmentation, and the labels."""
    size = job["size"]
    plain = transforms.Compose([transforms.Resize((size, size)), transforms.ToTensor(), NORMALIZE])
    photographs = Photographs(job, split, plain)
    device = next(encoder.parameters()).device
    loader = DataLoader(photographs, batch_size=256, **workers(job))
    with torch.no_grad():
        parts = [encoder(x_NCHW.to(device)).cpu() for x_NCHW, _ in loader]
    return torch.cat(parts).numpy(), photographs.labels


def main() -> None:
    """Runs the job of the command line."""
    path = Path(sys.argv[1]).absolute()
    job = json.loads(path.read_text())
    job["tracking"] = f"sqlite:///{path.parent}/mlflow.db"
    mlflow.set_tracking_uri(job["tracking"])
    mlflow.set_experiment(EXPERIMENT)
    ray.init(include_dashboard=False)
    temperatures = job["temperatures"]
    grid = [{"temperature": temperature} for temperature in temperatures]
    resources = {"cpu": job["cpus"], "gpu": job["gpus"]}
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(train, job=job), resources),
        param_space={"temperature": tune.choice(temperatures)},
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            search_alg=OptunaSearch(points_to_evaluate=grid),
            num_samples=len(grid),
            max_concurrent_trials=job["at_once"],
        ),
        run_config=tune.RunConfig(name=EXPERIMENT, storage_path=str(path.parent / "tune")),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print(f"winner: {best.config}, {best.metrics}")
    found = [results[i] for i in range(len(results))]
    trials = [{**(each.config or {}), **(each.metrics or {})} for each in found]
    (path.parent / "results.json").write_text(json.dumps(trials, default=str))


if __name__ == "__main__":
    main()
