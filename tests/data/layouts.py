"""Made-up files in the layouts of others: Karpathy's JSON with a region store, SCAN's precomputed features, XTD10."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from data.pictures.regions import write_regions
from tests.data.official import pack

SIZES = {"train": 6, "restval": 2, "val": 4, "test": 10}


_WORDS = [("big", "small"), ("red", "blue"), ("old", "new"), ("wet", "dry"), ("sad", "glad"), ("dog", "cat")]


def sentence(image: str, number: int) -> str:
    """No two images have the same, not even if their names are unknown words."""
    bits = zlib.crc32(image.encode())
    words = " ".join(pair[bits >> place & 1] for place, pair in enumerate(_WORDS))
    return f"The {words} of {image} is in the park with ball {number}"


def entries(sizes: Mapping[str, int] = SIZES, each: int = 2) -> list[dict]:
    """Images as in `dataset_coco.json`: a folder, a number and tokens, which nobody reads."""
    found = []
    for split, size in sizes.items():
        for number in range(size):
            name, coco = f"{split}{number}", 100 + len(found)
            below = "train2014" if split == "train" else "val2014"
            sentences = [
                {"tokens": ["a", "dog"], "raw": sentence(name, k), "imgid": len(found), "sentid": k}
                for k in range(each)
            ]
            found.append({"filepath": below, "sentids": [1], "filename": f"{name}.jpg", "imgid": len(found),
                          "split": split, "sentences": sentences, "cocoid": coco})  # fmt: skip
    return found


def write_json(path: Path, images: object) -> None:
    path.write_text(json.dumps({"images": images, "dataset": "made up"}), encoding="utf-8")


def write_karpathy(root: Path, sizes: Mapping[str, int] = SIZES) -> None:
    """`dataset.json`, a region store `regions` of images named without `.jpg`, and Japanese for some in `ja.tsv`."""
    found = entries(sizes)
    write_json(root / "dataset.json", found)
    names = [image["filename"].removesuffix(".jpg") for image in found]
    rng = np.random.default_rng(0)
    box = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.6, 0.9]])
    write_regions(root / "regions", names, [(rng.normal(size=(2, 5)), box) for _ in names])
    pack(root / "ja.tsv", [f"{image['cocoid']}\t犬が公園の{image['imgid']}にいる" for image in reversed(found)])


def write_folder(root: Path, size: int = 40, languages: tuple[str, ...] = ("en", "de")) -> None:
    """A folder `pictures`, and `captions.tsv` with a caption of each in each language; splits are drawn."""
    (root / "pictures").mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(size):
        image = Image.new("RGB", (40, 30), (6 * number, 90, 250 - 6 * number))
        image.paste((250, 250, 6 * number), (number % 20, 5, number % 20 + 10, 20))
        image.save(root / "pictures" / f"{number}.png")
        german = f"Der Ball {number} ist auf dem Bild und die {10 * number} Katzen sind in dem Haus"
        texts = {"en": sentence(str(number), 1), "de": german}
        lines += [f"{number}.png\t{language}\t{texts[language]}" for language in languages]
    pack(root / "captions.tsv", lines)


def write_precomputed(
    folder: Path, sizes: Mapping[str, int], each: int = 5, copies: int = 1, shape: tuple[int, ...] = (2, 5)
) -> None:
    """`<split>_ims.npy`, with `copies` rows an image, and `<split>_caps.txt`, with `each` lines an image."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for split, size in sizes.items():
        images = rng.normal(size=(size, *shape)).astype(np.float32)
        np.save(folder / f"{split}_ims.npy", images.repeat(copies, axis=0))
        pack(folder / f"{split}_caps.txt", [sentence(f"{split}{i}", k) for i in range(size) for k in range(each)])


XTD10 = [
    f"COCO_{split}_{number:012}.jpg" for number, split in enumerate(("train2014", "train2014", "val2014", "val2014"), 1)
]
"""Images of a made-up XTD10."""
XTD10_TEXTS = {
    "en": "the dog with number {} is in the park", "es": "el perro número {} está en el parque",
    "zh": "公园里有第{}只狗", "de": "Der Hund mit Nummer {} ist in dem Park", "jp": "{}番目の犬が公園にいる",
}  # fmt: skip
"""Code in the name of a file → the captions in it, from the image's number."""


def write_xtd10(root: Path) -> None:
    """A folder `xtd10` as the official repository has it, and the pictures in `coco`."""
    pack(root / "xtd10" / "XTD10" / "test_image_names.txt", XTD10)
    for code, text in XTD10_TEXTS.items():
        below = {"de": "MIC", "jp": "STAIR"}.get(code, "XTD10")
        lines = [text.format(number) for number in range(len(XTD10))]
        pack(root / "xtd10" / below / f"test_1kcaptions_{code}.txt", lines)
    for number, name in enumerate(XTD10):
        path = root / "coco" / name.split("_")[1] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (64, 64), (255, 255, 255))
        image.paste((60 * number, 40, 200 - 60 * number), (8 + 8 * number, 20, 28 + 8 * number, 44))
        image.save(path)
