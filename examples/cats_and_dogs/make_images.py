"""Draws cats and dogs into a folder: JPEG files of many sizes, the same ones every time."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

Box = tuple[float, float, float, float]


def make_images(folder: Path, count: int, seed: int = 1) -> None:
    """Draw `count` images, cats and dogs in turn; image i depends on the seed and i alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind = ("cat", "dog")[number % 2]
        draw_animal(kind, rng).save(folder / f"{kind}_{number:05}.jpg", quality=90)


def draw_animal(kind: str, rng: np.random.Generator) -> Image.Image:
    """One animal, somewhere near the middle of a picture of its own size."""
    width, height = (rng.integers(64, 200) * rng.uniform(1.0, 1.3, size=2)).astype(int).tolist()
    image = Image.new("RGB", (width, height), _colour(rng, 150, 256))
    pen = ImageDraw.Draw(image)
    radius = min(width, height) * rng.uniform(0.26, 0.32)
    x, y = width / 2 + rng.normal() * radius * 0.1, height / 2 + rng.normal() * radius * 0.1
    fur = _colour(rng, 20, 130)
    (draw_cat if kind == "cat" else draw_dog)(pen, x, y, radius, fur)
    for side in (-1, 1):
        pen.ellipse(_box(x + side * 0.4 * radius, y - 0.2 * radius, 0.14 * radius), fill=(250, 250, 210))
        pen.ellipse(_box(x + side * 0.4 * radius, y - 0.2 * radius, 0.06 * radius), fill=(0, 0, 0))
    return image


def draw_cat(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, fur: tuple[int, ...]) -> None:
    """A round face, ears that stand up, whiskers."""
    for side in (-1, 1):
        ear = [(0.95, -0.3), (0.85, -1.5), (0.2, -0.9)]
        pen.polygon([(x + side * dx * radius, y + dy * radius) for dx, dy in ear], fill=fur)
    pen.ellipse(_box(x, y, radius), fill=fur)
    for side in (-1, 1):
        for slope in (-0.15, 0.0, 0.15):
            start = (x + side * 0.2 * radius, y + 0.35 * radius)
            end = (x + side * 1.3 * radius, y + (0.35 + slope) * radius)
            pen.line([start, end], fill=(255, 255, 255))
    pen.ellipse(_box(x, y + 0.3 * radius, 0.1 * radius), fill=(230, 140, 150))


def draw_dog(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, fur: tuple[int, ...]) -> None:
    """A long face, ears that hang, a tongue."""
    pen.ellipse((x - 0.8 * radius, y - radius, x + 0.8 * radius, y + 1.2 * radius), fill=fur)
    for side in (-1, 1):
        low, high = sorted((x + side * 0.6 * radius, x + side * 1.15 * radius))
        pen.ellipse((low, y - 0.9 * radius, high, y + 0.9 * radius), fill=fur)
    pen.ellipse((x - 0.2 * radius, y + 0.7 * radius, x + 0.2 * radius, y + 1.35 * radius), fill=(235, 90, 110))
    pen.ellipse(_box(x, y + 0.5 * radius, 0.25 * radius), fill=(10, 10, 10))


def _colour(rng: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.integers(low, high, size=3).tolist())


def _box(x: float, y: float, radius: float) -> Box:
    return x - radius, y - radius, x + radius, y + radius


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=200)
    arguments = parser.parse_args()
    make_images(arguments.folder, arguments.images)
