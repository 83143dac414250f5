"""Trains on images that are read, cut and mirrored on the fly: by four threads, then by four processes."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from make_images import make_images
from PIL import Image

import infeed

SIZE = 32
BATCH = 16
BUFFER = 32
WORKERS = 4
Batch = dict[str, Any]


class Images:
    """Reads images when they are asked for. All that infeed needs: a length, and `[array of indices]`."""

    def __init__(self, paths: list[Path]):
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, indices: np.ndarray) -> list[np.ndarray]:
        images = []
        for index in indices:
            with Image.open(self.paths[index]) as file:
                images.append(np.asarray(file.convert("L")))
        return images


def augment(batch: Batch, rng: np.random.Generator) -> Batch:
    """Cut every image to about nine tenths, somewhere, and mirror half of them. Runs in the workers."""
    share = rng.uniform(0.85, 1.0, len(batch["image"]))
    places = rng.random((len(share), 2))
    mirrored = rng.random(len(share)) < 0.5
    rows = zip(batch["image"], share, places, mirrored, strict=True)
    return {"image": np.stack([_fit(*row) for row in rows]), "label": batch["label"]}


def centre(batch: Batch) -> Batch:
    """The same without chance, for validation."""
    images = [_fit(image, 0.92, (0.5, 0.5), mirror=False) for image in batch["image"]]
    return {"image": np.stack(images), "label": batch["label"]}


def _fit(image: np.ndarray, share: float, place: tuple[float, float], mirror: bool) -> np.ndarray:
    """A square cut out of the image at `place`, at the size of the model, with mean 0 and spread 1."""
    side = int(min(image.shape) * share)
    top, left = (int(part * (whole - side)) for part, whole in zip(place, image.shape, strict=True))
    square = Image.fromarray(image[top : top + side, left : left + side])
    pixels = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.BOX), np.float32)
    pixels = pixels[:, ::-1] if mirror else pixels
    return (pixels - pixels.mean()) / (pixels.std() + 1.0)


@dataclass
class Model:
    """Logistic regression on pixels; label 1 is a dog."""

    rate: float = 0.02
    weights: np.ndarray = field(default_factory=lambda: np.zeros(SIZE * SIZE))
    bias: float = 0.0

    def probability(self, images: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-(images.reshape(len(images), -1) @ self.weights + self.bias)))

    def train(self, batch: Batch) -> float:
        """One step down the gradient; returns the loss."""
        probability, label = self.probability(batch["image"]), batch["label"]
        error = (probability - label) / len(label)
        self.weights -= self.rate * (batch["image"].reshape(len(label), -1).T @ error)
        self.bias -= self.rate * error.sum()
        return float(-np.log(np.where(label == 1, probability, 1 - probability) + 1e-9).mean())

    def accuracy(self, batch: Batch) -> float:
        return float(((self.probability(batch["image"]) > 0.5) == batch["label"]).mean())


def pipelines(folder: Path) -> tuple[infeed.Pipeline, infeed.Pipeline]:
    """Training and validation: the same images, shared out once."""
    paths = sorted(folder.glob("*.jpg"))
    labels = np.array([path.name.startswith("dog") for path in paths], np.int64)
    training, validation = infeed.arrays(image=Images(paths), label=labels).split(0.8, 0.2, seed=1)
    return (
        training.shuffle(seed=7).batch(BATCH, drop_last=True, collate="list").map_batch(augment),
        validation.batch(BATCH, collate="list").map_batch(centre),
    )


def train(folder: Path, mode: str, epochs: int) -> tuple[str, Model]:
    """Train with one pool of workers for training and validation; returns a digest of all bytes seen."""
    print(f"\n{WORKERS} {mode}")
    training, validation = pipelines(folder)
    digest = hashlib.sha256()
    with (
        infeed.Workers(WORKERS, mode=mode) as workers,
        # start=True: the buffer fills while everything below is still being set up
        infeed.Loader(training, workers=workers, prefetch=BUFFER, start=True) as loader,
        infeed.Loader(validation, workers=workers) as held_out,
    ):
        model = Model()
        print(f"  before training, accuracy {held_out.average(model.accuracy):.0%}")
        print(f"  batches ready before the first step: {loader.stats().ready} of {BUFFER}")
        for epoch in range(epochs):
            losses = []
            for batch in loader:
                digest.update(batch["image"].tobytes() + batch["label"].tobytes())
                losses.append(model.train(batch))
            accuracy = held_out.average(model.accuracy)
            print(f"  epoch {epoch}: loss {np.mean(losses):.3f}, accuracy {accuracy:.0%}")
        dogs = held_out.collect(lambda batch: model.probability(batch["image"]))
        stats = loader.stats()
        print(f"  {(dogs > 0.5).sum()} of {len(dogs)} validation images look like dogs")
        print(f"  the loop got {stats.batches} batches and waited {stats.waited:.2f} s for them")
    return digest.hexdigest(), model


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000, help="how many to draw")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder), options.images)
        print(f"{options.images} images drawn")
        by_threads, first = train(Path(folder), "threads", options.epochs)
        by_processes, second = train(Path(folder), "processes", options.epochs)
    same = by_threads == by_processes and np.array_equal(first.weights, second.weights)
    print(f"\nthreads and processes gave {'the same' if same else 'DIFFERENT'} bytes (sha256 {by_threads[:16]})")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
