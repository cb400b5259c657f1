"""No test: does one part of the work on so many made-up captions, and says what it took.

`test_growth.py` runs each part in a process of its own, on one thread: only a new process knows the highest memory of
one part. What a part needs is made before it is measured. Seconds are CPU time, so that other work on the machine
hardly counts; memory is the most that the process holds beyond what it held before.
"""

import ctypes
import gc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from data.batches.mixing import MixedBatches
from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.captions.table import Caption, choose, listed_captions, read_captions, write_captions
from data.corpora import Corpus
from data.findings.report import data_report
from data.pictures.pixels import open_images
from data.pictures.regions import RegionStore
from data.text.text_inputs import WordVocabulary, tokens_of
from modules.search.encoded_test import GatheredTest
from modules.search.index import Kind, VectorIndex
from modules.search.ranking import ranks_by_index
from pipeline.engine.machine import Cost, peak_memory_mb
from pipeline.gallery.vector_cache import VectorCache
from tests.benchmarks.timing import BATCH

EACH, WORDS, KNOWN_WORDS, DIM = 5, 12, 20_000, 256  # captions an image, words a caption, different words, vectors
SAMPLE, QUERIES, ADDED = 2000, 100, 4096  # captions ranked, queries searched, vectors of a file of the cache
GROUP = "en/human"
Work = Callable[[], object]


def captions_of(count: int) -> list[Caption]:
    """Captions of made-up words as frequent as real ones (Zipf), five an image; ten images are of split `val`."""
    rng = np.random.default_rng(0)
    words = np.array(["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(KNOWN_WORDS)])
    shares = 1 / np.arange(1, KNOWN_WORDS + 1)
    drawn = rng.choice(KNOWN_WORDS, (count, WORDS), p=shares / shares.sum()).astype(np.int32)
    captions = []
    for number, row in enumerate(drawn):
        image = number // EACH
        split = "val" if image < 10 else "train"
        captions.append(Caption(f"{image}.jpg", f"{image}.jpg#{number}", "en", " ".join(words[row]) + " .", split))
    return captions


def write(folder: Path, count: int) -> Work:
    """The caption table, with tokens, as stage prepare writes it; beside it small regions, which are not measured."""
    captions, images = captions_of(count), -(-count // EACH)
    np.save(folder / "regions.npy", np.ones((images, 1, 8), np.float16))
    np.save(folder / "boxes.npy", np.zeros((images, 1, 4), np.float32))
    (folder / "ids.txt").write_text("".join(f"{number}.jpg\n" for number in range(images)))
    return lambda: write_captions(captions, folder / "captions.parquet")


def report(folder: Path, count: int) -> Work:
    """Counts and findings of all captions, as stage prepare reports them."""
    corpus, store = Corpus(captions_of(count), [], {}, folder, "task", "made up"), RegionStore(folder)
    return lambda: data_report(corpus, store)


def objects(folder: Path, count: int) -> Work:
    """All captions as objects, as stage augment reads them."""
    return lambda: listed_captions(folder / "captions.parquet")


def encode(folder: Path, count: int) -> Work:
    """The vocabulary of all captions, and all captions as its numbers."""
    captions = read_captions(folder / "captions.parquet", tokens=True)
    return lambda: WordVocabulary.count(tokens_of(captions), captions["language"][:]).encode_all(captions)


def first_batch(folder: Path, count: int) -> Work:
    """From the files to the first batch of a training."""

    def work() -> object:
        """Open, count words, encode, draw, collate."""
        captions, store = read_captions(folder / "captions.parquet", tokens=True), open_images(folder)
        training = choose(captions, "train", [GROUP])
        words = WordVocabulary.count(tokens_of(training), training["language"][:])
        data = RetrievalData(captions, store, words, [parse_group(GROUP)], ["en"], {"val": ["en"]}, BATCH)
        return next(iter(data.train_dataloader()))

    return work


def sample(folder: Path, count: int) -> Work:
    """All batches of an epoch, drawn and not collated."""
    training = choose(read_captions(folder / "captions.parquet"), "train", [GROUP])

    def work() -> None:
        """Draw them."""
        for _ in MixedBatches(training, [parse_group(GROUP)], BATCH, 0):
            pass

    return work


def vectors_of(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors of images (I, 256), of captions near to them (N, 256), and each caption's image (N,)."""
    generator, links = torch.Generator().manual_seed(0), torch.arange(count) // EACH
    images = F.normalize(torch.randn(int(links[-1]) + 1, DIM, generator=generator), dim=1)
    captions = torch.empty(count, DIM)
    for start in range(0, count, ADDED):
        of_image = images[links[start : start + ADDED]]
        noise = torch.randn(of_image.shape, generator=generator) / DIM**0.5
        captions[start : start + ADDED] = F.normalize(of_image + noise, dim=1)
    return images, captions, links


def gather(folder: Path, count: int) -> Work:
    """All encodings of a validation in the metric, batch by batch, then in one piece; ranks are not computed."""
    images, captions, links = vectors_of(count)

    def work() -> None:
        """Add batches as a validation does."""
        metric = GatheredTest(lambda one, other: one[0][:, 0] @ other[0][:, 0].t())
        for start in range(0, len(images), BATCH):
            some, rows = images[start : start + BATCH, None], slice(start * EACH, (start + BATCH) * EACH)
            of_batch, keys = captions[rows, None], torch.arange(start, start + len(some))
            numbers = torch.arange(rows.start, rows.start + len(of_batch))
            masks = (torch.ones(part.shape[:2], dtype=torch.bool) for part in (some, of_batch))
            metric.update((some, next(masks)), keys, (of_batch, next(masks)), numbers, links[rows])
        test = metric.compute()
        test.images.single(), test.captions.single()

    return work


def rank(folder: Path, count: int, whole: bool = False) -> Work:
    """Ranks of all captions and images, or of some captions among all images and of their images among them."""
    images, captions, links = vectors_of(count)
    rows = torch.arange(count) if whole else torch.arange(0, count, max(1, count // SAMPLE))[:SAMPLE]
    return lambda: ranks_by_index(images, captions[rows], links[rows], gpu=-1)


def cache(folder: Path, count: int) -> Work:
    """Vectors into the gallery's cache, and all of them back in one piece, as an index is made of them."""
    vectors, place = vectors_of(count)[1].numpy(), folder / f"cache-{count}"
    digests = [f"{number:064x}" for number in range(count)]

    def work() -> None:
        """Add some at a time, open it again, take all."""
        kept = VectorCache(place)
        for start in range(0, count, ADDED):
            kept.add(digests[start : start + ADDED], {"vectors": vectors[start : start + ADDED]})
        VectorCache(place).take(digests, "vectors")

    return work


def build(folder: Path, count: int, kind: Kind) -> Work:
    """An index of all captions' vectors, written."""
    vectors = vectors_of(count)[1]
    return lambda: VectorIndex(vectors, kind, gpu=-1).save(folder / f"{kind}-{count}", "growth")


def search(folder: Path, count: int, kind: Kind) -> Work:
    """Some queries, one by one, in the index that `build` has written."""
    queries = F.normalize(torch.randn(QUERIES, DIM, generator=torch.Generator().manual_seed(1)), dim=1)
    index = VectorIndex.load(folder / f"{kind}-{count}", "growth", gpu=-1)
    index.search(queries[:1], 10)
    return lambda: [index.search(query, 10) for query in queries.split(1)]


@dataclass(frozen=True)
class Part:
    """Something that is measured.

    Attributes:
        what: it is, for the table.
        ready: makes what it needs, in a folder, for so many captions; gives the work itself.
        linear: time and memory a caption are not to grow.
        most: captions, beyond which it would take too long.
    """

    what: str
    ready: Callable[[Path, int], Work]
    linear: bool = True
    most: int | None = None


PARTS = {
    "write": Part("caption table with tokens, written", write),
    "report": Part("data report", report),
    "objects": Part("captions as objects (`listed_captions`)", objects),
    "encode": Part("vocabulary and encoding", encode),
    "first": Part("from the files to the first batch", first_batch),
    "sample": Part("a pass of the sampler", sample),
    "gather": Part("encodings gathered for ranking", gather),
    "rank": Part(f"ranking {SAMPLE:,} of the captions among all images", rank),
    "rank-all": Part("ranking all, both ways", partial(rank, whole=True), linear=False, most=100_000),
    "cache": Part("the gallery's vector cache, filled and read", cache),
    "build": Part("flat index, built and written", partial(build, kind="flat")),
    "search": Part(f"flat index, {QUERIES} queries one by one", partial(search, kind="flat")),
    "build-lists": Part("IVF-PQ index, built and written", partial(build, kind="ivf-pq"), linear=False),
    "search-lists": Part(f"IVF-PQ index, {QUERIES} queries one by one", partial(search, kind="ivf-pq")),
}
"""In this order: some read what one before them has written."""


def measure(name: str, folder: Path, count: int) -> tuple[float, float]:
    """Do a part; its seconds and megabytes."""
    torch.set_num_threads(1)
    work = PARTS[name].ready(folder, count)
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another system, another library
        ctypes.CDLL(None).malloc_trim(0)  # what is free would be taken again, and not count
    Cost()  # forgets the highest memory so far
    held, began = peak_memory_mb(), time.process_time()
    result = work()
    spent, more = time.process_time() - began, peak_memory_mb() - held
    del result
    return spent, more
