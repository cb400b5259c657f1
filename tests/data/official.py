"""Made-up Multi30K files in the official layout, and all that the recipe `multi30k-flickr8k` reads beside them."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from data.pictures.regions import write_regions

# task → the list of images and the stem of the raw files of each split
FILES = {
    "task1": [("train.txt", "train"), ("val.txt", "val"), ("test_2016_flickr.txt", "test_2016_flickr")],
    "task2": [("train_images.txt", "train"), ("val_images.txt", "val"), ("test_2016_images.txt", "test_2016")],
}
LANGUAGES = {"task1": ["en", "de", "fr", "cs"], "task2": ["en", "de"]}
Sentence = Callable[[str, str, str, str], str]  # from task, language, number and image
NUMBERS = {"task1": [""], "task2": [".1", ".2", ".3", ".4", ".5"]}

OFFICIAL = {
    "train": ["t1.jpg", "t2.jpg", "t3.jpg", "t4.jpg", "t5.jpg", "t6.jpg"],
    "val": ["v1.jpg", "v2.jpg", "v3.jpg"],
    "test": ["e1.jpg", "e2.jpg", "e3.jpg"],
}
OWN = {
    "train": ["t1.jpg", "t2.jpg", "t3.jpg", "v1.jpg"],
    "val": ["t4.jpg", "v2.jpg"],
    "test": ["e1.jpg", "e2.jpg", "t5.jpg"],
}
_SENTENCES = {
    "en": "The dog of {} is in the park with ball {}",
    "de": "Der Hund von {} ist mit Ball {} in dem Park",
    "fr": "Le chien de {} est dans le parc avec balle {}",
    "cs": "Pes {} je v parku na trávě s míčem {}",
}


def pack(path: Path, lines: Sequence[str]) -> None:
    """Write lines, as a gzip file if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(raw, 1, mtime=0) if path.suffix == ".gz" else raw)


def write_text(
    root: Path, images_of: Mapping[str, Sequence[str]], sentence: Callable[[str, str, str, str], str]
) -> None:
    """Both tasks in `root/multi30k`; `sentence` makes a text from task, language, number and image."""
    for task, files in FILES.items():
        folder = root / "multi30k" / task
        for (listed, stem), images in zip(files, images_of.values(), strict=True):
            pack(folder / "image_splits" / listed, images)
            for language, number in product(LANGUAGES[task], NUMBERS[task]):
                lines = [sentence(task, language, number[1:], image) for image in images]
                pack(folder / "raw" / f"{stem}{number}.{language}.gz", lines)


def write_data(root: Path) -> None:
    """A whole data root in small: text, own lists, region store, pictures and parallel text, without a fault."""
    write_text(root, OFFICIAL, lambda task, language, number, image: _SENTENCES[language].format(
        f"{image[:-4]} {task}", number or "0"
    ))  # fmt: skip
    overlap = root / "flickr8k_overlap"
    for split, images in OWN.items():
        pack(overlap / "splits" / f"{split}.txt", images)
    images = [image for of_split in OWN.values() for image in of_split]
    rng = np.random.default_rng(0)
    box = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.6, 0.9]])
    write_regions(overlap / "features", images, [(rng.normal(size=(2, 5)), box) for _ in images])
    (overlap / "images").mkdir()
    for number, image in enumerate(images):
        Image.new("RGB", (4, 4), (20 * number, 0, 0)).save(overlap / "images" / image)
    pairs = [f"This is one of the {k} houses.\tDas ist eines der {k} Häuser." for k in range(3, 40)]
    pack(root / "tatoeba" / "deu-eng.tsv.gz", pairs)
