"""A part of a corpus: fewer training images or captions of an image, or no pictures that cannot be read."""

import hashlib
from collections import defaultdict
from dataclasses import replace

from data.captions.table import Caption
from data.corpora import Corpus
from data.errors import DataError
from data.pictures.images import unreadable

_TRAIN = "train"


def training_subset(corpus: Corpus, images: int | None, captions_per_image: int | None, seed: int) -> Corpus:
    """Draw training images and captions by their ids and a seed; what is held out stays as it is.

    Subsets are nested: a smaller one is part of a larger one of the same seed, in images and in captions.

    Args:
        corpus: as it was read.
        images: training images that stay; None: all.
        captions_per_image: captions of a training image that stay in each language, at most; None: all.
        seed: another one draws others.

    Returns:
        the corpus without the other training captions, and without pairs and pictures of images that are left out.

    Raises:
        DataError: the corpus has fewer training images.
    """
    training = {caption.image_id for caption in corpus.captions if caption.split == _TRAIN}
    if images is not None and images > len(training):
        raise DataError(f"corpus.images is {images:,}, but the corpus has {len(training):,} training images")
    kept = set(sorted(training, key=lambda name: _place(name, seed))[:images])
    of_image: dict[tuple[str, str], list[Caption]] = defaultdict(list)
    for caption in corpus.captions:
        if caption.split == _TRAIN and caption.image_id in kept:
            of_image[caption.image_id, caption.language].append(caption)
    chosen = {
        caption.caption_id
        for captions in of_image.values()
        for caption in sorted(captions, key=lambda caption: _place(caption.caption_id, seed))[:captions_per_image]
    }
    left_out = training - kept - {caption.image_id for caption in corpus.captions if caption.split != _TRAIN}
    return replace(
        corpus,
        captions=[row for row in corpus.captions if row.split != _TRAIN or row.caption_id in chosen],
        pairs=[pair for pair in corpus.pairs if pair.image_id not in left_out],
        pictures={name: path for name, path in corpus.pictures.items() if name not in left_out},
    )


def without_unreadable(corpus: Corpus) -> Corpus:
    """A corpus without the images whose picture is not there or cannot be read, in any split; it says which they were.

    Images without a picture are left out where others have one.
    """
    broken = unreadable(corpus.pictures, corpus.regions is None)
    if corpus.pictures:
        without = dict.fromkeys(it.image_id for it in corpus.captions if it.image_id not in corpus.pictures)
        broken |= {name: f"{name}: no picture" for name in without}
    return replace(
        corpus,
        captions=[caption for caption in corpus.captions if caption.image_id not in broken],
        pairs=[pair for pair in corpus.pairs if pair.image_id not in broken],
        pictures={name: path for name, path in corpus.pictures.items() if name not in broken},
        unreadable=[*broken.values()],
    )


def _place(name: str, seed: int) -> bytes:
    """Where an id stands in the order of a seed."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()
