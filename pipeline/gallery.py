"""A gallery on disk: pictures and captions as a model's vectors, indexed; updated while it is searched.

    gallery/gallery.json              which generation is the present one; replaced in one step
    gallery/generations/<n>/          pictures.parquet and the index pictures/, the same of captions-<language>
    gallery/models/<model>/           the exported model that made them, by its fingerprint
    gallery/parts/<model>/<kind>/     vectors (of pictures also regions and boxes) by the content they are of

An update computes what no part holds, a part at a time, then writes a new generation and points to it. Killed at any
moment, the old generation answers, and the next update finds the parts that were finished. The generation before the
present one stays, for whoever has just opened it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.markup import escape
from rich.progress import track
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from data.extractor import extract_readable
from data.pictures import pictures_in
from data.regions import RegionStore
from modules.errors import ModelError
from modules.index import VectorIndex
from pipeline.errors import RecipeError
from pipeline.files import rename_whole, write_whole
from pipeline.finder import Finder, digest_of
from pipeline.processes import lock, say

FORMAT = 1
LARGE = 200_000  # vectors from which an index is `ivf-pq`: a flat one takes a tenth of a second a query then
_PART = 256  # pictures or captions computed between two writes
_POINTER = "gallery.json"
_LOCK = ".gallery.lock"
_OURS = {_POINTER, "parts", "generations", "models", _LOCK}
Arrays = dict[str, NDArray[Any]]


class Hit(NamedTuple):
    """Something that was found.

    Attributes:
        name: of a picture, or the text of a caption.
        score: the model's, higher is nearer.
        path: the picture's file, None where it is not at hand or for a caption.
        language: of a caption, None for a picture.
    """

    name: str
    score: float
    path: Path | None = None
    language: str | None = None


@dataclass(frozen=True)
class Update:
    """What an update did.

    Attributes:
        pictures: in the gallery now.
        computed: of them, those that were not known before.
        gone: pictures that are no longer there.
        left: what was left out, by name, with the reason.
        captions: in the gallery now, by language.
    """

    pictures: int
    computed: int
    gone: int
    left: dict[str, str]
    captions: dict[str, int]


class Parts:
    """Arrays kept by the content they were computed from, several of them a file.

    Args:
        folder: of the files; made when something is added.
        mend: delete what is damaged, to be computed again; for whoever holds the gallery's lock.
    """

    def __init__(self, folder: Path, mend: bool = False) -> None:
        self.folder = folder
        self._place: dict[str, tuple[str, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(path, "numpy") as file:
                    digests = json.loads(file.metadata()["digests"])
            except FileNotFoundError:  # cleared away just now
                continue
            except (SafetensorError, ValueError, KeyError, TypeError):
                if mend:
                    path.unlink(missing_ok=True)
                continue
            self._place |= {digest: (path.name, row) for row, digest in enumerate(digests)}

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def add(self, digests: Sequence[str], arrays: Arrays) -> None:
        """Keep rows of arrays, a digest a row; whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256("".join(digests).encode()).hexdigest()[:16] + ".safetensors"
        half = self.folder / f"{name}.{os.getpid()}.tmp"
        with half.open("wb") as file:
            file.write(save(arrays, metadata={"digests": json.dumps(list(digests))}))
            file.flush()
            os.fsync(file.fileno())
        half.replace(self.folder / name)
        self._place |= {digest: (name, row) for row, digest in enumerate(digests)}

    def take(self, digests: Sequence[str], array: str) -> NDArray[Any]:
        """Rows of an array, in the order asked for.

        Raises:
            RecipeError: some are no longer there.
        """
        wanted: dict[str, list[tuple[int, int]]] = {}
        for place, digest in enumerate(digests):
            if digest not in self._place:
                raise RecipeError(f"{self.folder}: the gallery was updated since it was opened; open it again")
            name, row = self._place[digest]
            wanted.setdefault(name, []).append((place, row))
        found: NDArray[Any] | None = None
        for name, rows in wanted.items():
            with safe_open(self.folder / name, "numpy") as file:
                kept = file.get_tensor(array)
            if found is None:
                found = np.empty((len(digests), *kept.shape[1:]), kept.dtype)
            places, numbers = zip(*rows, strict=True)
            found[list(places)] = kept[list(numbers)]
        if found is None:
            raise ValueError("nothing to take")
        return found

    def keep(self, digests: set[str]) -> None:
        """Delete the files that hold none of these."""
        used = {name for digest, (name, _) in self._place.items() if digest in digests}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob("*.tmp")]:
            if path.name not in used:
                path.unlink(missing_ok=True)
        self._place = {digest: place for digest, place in self._place.items() if place[0] in used}


class PictureFolder:
    """Pictures of a folder, read by the model's extractor.

    Args:
        folder: with pictures, in folders of their own or not.
        workers: processes that extract regions.
    """

    def __init__(self, folder: Path, workers: int = 1) -> None:
        self.paths, self.left = pictures_in(folder)
        self.workers = workers
        self.stores_regions = True

    def state(self, name: str) -> str:
        """What changes when the file does: size and date."""
        stat = self.paths[name].stat()
        return f"{stat.st_size}:{stat.st_mtime_ns}"

    def digest(self, name: str) -> str:
        """Of the file's contents."""
        return digest_of(self.paths[name])

    def arrays(self, finder: Finder, names: Sequence[str]) -> Iterator[Arrays | str]:
        """Regions and boxes of each picture, or why it cannot be read."""
        if finder.extractor is None:
            finder.regions_of(self.paths[names[0]])  # raises: the model reads no pixels
        assert finder.extractor is not None
        paths = [self.paths[name] for name in names]
        for path, found in zip(paths, extract_readable(paths, finder.extractor, self.workers), strict=True):
            if isinstance(found, str):
                yield found.removeprefix(f"{path}: ")
            else:
                yield {"regions": finder.standardised(found[0]), "boxes": found[1].astype(np.float32)}


class StoredRegions:
    """Images of a region store, as a prepared corpus has them.

    Args:
        store: the regions.
        paths: picture files of some of them.
    """

    stores_regions = False  # they lie in the store already

    def __init__(self, store: RegionStore, paths: Mapping[str, Path]) -> None:
        self.store, self.left = store, dict[str, str]()
        self.standard = read_npz_standard(store)
        self.paths: dict[str, Path | None] = {name: paths.get(name) for name in store.ids}
        self._state = f"{store.file('regions.npy').stat().st_size}:{store.file('regions.npy').stat().st_mtime_ns}"

    def state(self, name: str) -> str:
        """What changes when the store does."""
        return self._state

    def digest(self, name: str) -> str:
        """Of the image's regions."""
        return hashlib.sha256(self.store.regions[self.store.rows([name])[0]].tobytes()).hexdigest()

    def arrays(self, finder: Finder, names: Sequence[str]) -> Iterator[Arrays | str]:
        """Regions and boxes of each image."""
        for row in self.store.rows(names):
            yield {"regions": self.store.regions[row], "boxes": self.store.boxes[row]}


Pictures = PictureFolder | StoredRegions


class Gallery:
    """One generation of a gallery, opened to be searched.

    Args:
        folder: of the gallery.
        finder: the model that made its vectors.
        generation: which.
        languages: of its captions.
    """

    def __init__(self, folder: Path, finder: Finder, generation: str, languages: Sequence[str]) -> None:
        self.folder, self.finder = folder, finder
        place = folder / "generations" / generation
        self.pictures = pq.read_table(place / "pictures.parquet").to_pylist()
        self._index = _load_index(place / "pictures", finder) if self.pictures else None
        self._captions: dict[str, tuple[list[str], VectorIndex]] = {}
        for language in languages:
            texts = pq.read_table(place / f"captions-{language}.parquet")["text"].to_pylist()
            self._captions[language] = texts, _load_index(place / f"captions-{language}", finder)

    @classmethod
    def open(cls, folder: str | Path, finder: Finder | None = None) -> "Gallery":
        """Open the present generation.

        Args:
            folder: of the gallery.
            finder: its model, if that is loaded already; None: it is loaded from the gallery.

        Raises:
            RecipeError: there is none, it is damaged, or another model made it.
        """
        folder = Path(folder)
        while True:
            about = _read_pointer(folder)
            if about is None:
                raise RecipeError(f"{folder}: no gallery here; run `make index`")
            if finder is not None and about["made_of"] != finder.fingerprint:
                raise RecipeError(f"{folder}: made by another model ({about['model']}); run `make index` with this one")
            try:
                made_by = finder or Finder.load(folder / "models" / about["made_of"])
                return cls(folder, made_by, about["generation"], about["languages"])
            except (OSError, pa.ArrowException, KeyError, RecipeError) as error:
                if _read_pointer(folder) == about:  # else it was updated while we read
                    reason = " ".join(str(error).split())
                    raise RecipeError(f"{folder}: not readable ({reason}); run `make index` again") from None

    def __len__(self) -> int:
        return len(self.pictures)

    def search(
        self, query: str, top: int = 10, language: str | None = None, reranker: Finder | None = None, first: int = 100
    ) -> list[Hit]:
        """Find the pictures nearest to a sentence.

        Args:
            query: the sentence; cut at 100 tokens.
            top: pictures wanted.
            language: of the query; None: told apart.
            reranker: a model of sets (SCAN) that puts the first ones in its own order and gives their scores.
            first: how many it orders, at least `top`.

        Raises:
            RecipeError: the query is empty, or in a language that the model does not know.
        """
        if not query.strip():
            raise RecipeError("search: the query is empty; give a few words")
        if top < 1:
            raise RecipeError(f"search: {top} pictures are wanted; expected 1 or more")
        vector = self.finder.encode_captions([query], language).single()
        places = self._near(vector, max(top, first if reranker else 0))
        if reranker is not None and places:
            places = self._reranked(reranker, query, language, [place for place, _ in places])
        return [self._hit(place, score) for place, score in places[:top]]

    def describe(self, picture: str | Path | Image.Image, top: int = 5) -> dict[str, list[Hit]]:
        """Find the captions nearest to a picture, in every language of the gallery.

        Raises:
            DataError: the picture cannot be read.
            RecipeError: the model reads no pixels.
        """
        vector = self.finder.encode_pictures([picture]).single()
        return {language: self._nearest(vector, language, top) for language in self._captions}

    def like(self, picture: str | Path | Image.Image, top: int = 10) -> list[Hit]:
        """Find the pictures nearest to a picture; raises as `describe` does."""
        vector = self.finder.encode_pictures([picture]).single()
        return [self._hit(place, score) for place, score in self._near(vector, top)]

    def describe_known(self, name: str, top: int = 5) -> dict[str, list[Hit]]:
        """The same for a picture of the gallery, by its name.

        Raises:
            RecipeError: there is no such picture.
        """
        places = [place for place, row in enumerate(self.pictures) if row["name"] == name]
        if not places or self._index is None:
            raise RecipeError(f"{self.folder}: no picture {name!r} in the gallery")
        vector = torch.from_numpy(self._parts.take([self.pictures[places[0]]["digest"]], "vectors"))
        return {language: self._nearest(vector, language, top) for language in self._captions}

    def boxes(self, name: str) -> NDArray[np.floating]:
        """Boxes (R, 4) of the regions of a picture of the gallery."""
        digest = next(row["digest"] for row in self.pictures if row["name"] == name)
        return self._parts.take([digest], "boxes")[0]

    @property
    def _parts(self) -> Parts:
        return Parts(self.folder / "parts" / self.finder.fingerprint / "pictures")

    def _near(self, vector: torch.Tensor, top: int) -> list[tuple[int, float]]:
        """Rows of the pictures nearest to a vector (1, H), with their scores."""
        if self._index is None:
            return []
        scores, rows = (part[0].tolist() for part in self._index.search(vector, top))
        return [(row, score) for score, row in zip(scores, rows, strict=True) if row >= 0]

    def _nearest(self, vector: torch.Tensor, language: str, top: int) -> list[Hit]:
        texts, index = self._captions[language]
        scores, rows = (part[0].tolist() for part in index.search(vector, top))
        return [Hit(texts[row], score, None, language) for score, row in zip(scores, rows, strict=True) if row >= 0]

    def _hit(self, place: int, score: float) -> Hit:
        row = self.pictures[place]
        return Hit(row["name"], score, Path(row["path"]) if row["path"] else None)

    def _reranked(
        self, reranker: Finder, query: str, language: str | None, places: Sequence[int]
    ) -> list[tuple[int, float]]:
        """The same places in the order of a second model, with its scores."""
        if reranker.reads != self.finder.reads:
            raise RecipeError(
                f"{reranker.folder}: it reads other regions than {self.finder.name}; a second model must be trained on "
                "the same corpus with the same `regions`"
            )
        rows = [self.pictures[place] for place in places]
        stores = {row["store"] for row in rows}
        if stores == {None}:
            regions = self._parts.take([row["digest"] for row in rows], "regions")
        else:
            store = RegionStore(Path(next(iter(stores))), check_values=False)
            regions = store.take(store.rows([row["name"] for row in rows]))
        images = reranker.encode_regions(regions)
        spoken = reranker.encode_captions([query], language)
        with torch.inference_mode():
            scores = reranker.model.similarity(images[:], spoken[:])[:, 0]
        order = scores.argsort(descending=True, stable=True).tolist()
        return [(places[place], float(scores[place])) for place in order]


def update_gallery(
    folder: Path, finder: Finder, pictures: Pictures, captions: Mapping[str, Sequence[str]] | None = None
) -> Update:
    """Bring a gallery up to date with pictures and captions; what is known is not computed again.

    Args:
        folder: of the gallery; made if it is not there.
        finder: the model; of one vector an item.
        pictures: all that it should hold; others leave it.
        captions: sentences by language; None: those that it has.

    Raises:
        RecipeError: the model has no single vectors, or the folder holds something else.
    """
    if finder.model.score != "inner product":
        raise RecipeError(f"{finder.folder}: {finder.name} has no single vectors to index; index an inner-product "
                          "model (san, dan, vse-inf …) and give this one to `search` as --rerank")  # fmt: skip
    _require_ours(folder)
    if isinstance(pictures, StoredRegions):
        _require_same_regions(finder, pictures)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise RecipeError(f"{folder}: cannot be written; allow it, or choose another gallery")
    with lock(folder / _LOCK, f"gallery {folder}"):
        pointer = _read_pointer(folder)
        same = pointer is not None and pointer["made_of"] == finder.fingerprint
        before = folder / "generations" / pointer["generation"] if pointer and same else None
        rows, computed, left = _take_in(folder, finder, pictures, before)
        known = _old_rows(before).keys()
        if captions is None:
            captions = _captions_of(before)
        spoken = {language: list(dict.fromkeys(texts)) for language, texts in captions.items() if texts}
        _write_generation(folder, finder, rows, spoken, left, pointer)
        counts = {language: len(texts) for language, texts in spoken.items()}
        gone = len(known - {row["name"] for row in rows} - left.keys())
        return Update(len(rows), computed, gone, left, counts)


def _take_in(
    folder: Path, finder: Finder, pictures: Pictures, before: Path | None
) -> tuple[list[dict[str, Any]], int, dict[str, str]]:
    """Rows of all pictures that can be read, how many were computed now, and why others were left out."""
    parts = Parts(folder / "parts" / finder.fingerprint / "pictures", mend=True)
    left, states, digests = dict(pictures.left), dict[str, str](), dict[str, str]()
    old = _old_rows(before)
    for name in pictures.paths:
        try:
            states[name] = pictures.state(name)
            known = old.get(name)
            digests[name] = known["digest"] if known and known["state"] == states[name] else pictures.digest(name)
        except OSError as error:  # gone or locked since the folder was listed
            left[name] = f"cannot be read ({error.strerror})"
    unread: dict[str, str] = {}  # why, by content
    first: dict[str, str] = {}  # a name for each content that has to be computed
    for name, digest in digests.items():
        if digest not in parts:
            first.setdefault(digest, name)
    todo, done = list(first.items()), 0
    read = pictures.arrays(finder, [name for _, name in todo]) if todo else iter(())
    batch: list[tuple[str, Arrays]] = []
    changed = set()  # pictures that were not what they had been when they were told apart
    for (digest, name), found in zip(
        todo, track(read, "encoding pictures", len(todo), disable=len(todo) < _PART), strict=True
    ):
        if not _is_still(pictures, name, states[name]):
            changed.add(digest)
        elif isinstance(found, str):
            unread[digest] = found
        else:
            batch.append((digest, found))
        if len(batch) == _PART:
            _add_pictures(parts, finder, batch, pictures.stores_regions)
            done, batch = done + len(batch), []
    if batch:
        _add_pictures(parts, finder, batch, pictures.stores_regions)
        done += len(batch)
    store = None if pictures.stores_regions else str(pictures.store.folder.absolute())  # type: ignore[union-attr]
    rows = []
    for name, digest in digests.items():
        path = pictures.paths[name]
        row = {"name": name, "path": str(path.absolute()) if path else None, "digest": digest, "state": states[name]}
        if digest in unread:
            left[name] = unread[digest]
        elif digest in changed:
            left[name] = "changed while it was read; run it again"
        else:
            rows.append(row | {"store": store})
    return rows, done, left


def _is_still(pictures: Pictures, name: str, state: str) -> bool:
    try:
        return pictures.state(name) == state
    except OSError:
        return False


def _add_pictures(parts: Parts, finder: Finder, batch: Sequence[tuple[str, Arrays]], with_regions: bool) -> None:
    arrays = {name: np.stack([found[name] for _, found in batch]) for name in ("regions", "boxes")}
    arrays["vectors"] = finder.encode_regions(arrays["regions"]).single().numpy()
    if not with_regions:
        del arrays["regions"]
    parts.add([digest for digest, _ in batch], arrays)


def _write_generation(
    folder: Path, finder: Finder, rows: Sequence[dict[str, Any]], captions: Mapping[str, Sequence[str]],
    left: Mapping[str, str], pointer: Mapping[str, Any] | None,
) -> None:  # fmt: skip
    """Write a generation, point to it, and clear away what neither it nor the one before needs."""
    number = 1 + (int(pointer["generation"]) if pointer else 0)
    place = folder / "generations" / str(number)
    half = place.with_name(f"{number}.partial")
    for stale in (half, place):
        shutil.rmtree(stale, ignore_errors=True)
    half.mkdir(parents=True)
    kept = folder / "parts" / finder.fingerprint
    kept.mkdir(parents=True, exist_ok=True)
    _keep_model(folder / "models", finder)
    parts = Parts(kept / "pictures", mend=True)
    columns = ("name", "path", "digest", "state", "store")
    schema = pa.schema([(name, pa.string()) for name in columns])
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), half / "pictures.parquet")
    (half / "left.json").write_text(json.dumps(left, indent=1, ensure_ascii=False), encoding="utf-8")
    if rows:
        _index(parts.take([row["digest"] for row in rows], "vectors")).save(half / "pictures", finder.fingerprint)
    spoken = Parts(kept / "captions", mend=True)
    digests = {language: [_digest(language, text) for text in texts] for language, texts in captions.items()}
    for language, texts in captions.items():
        name = f"captions-{language}"
        _add_captions(spoken, finder, language, texts, digests[language])
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), half / f"{name}.parquet")
        _index(spoken.take(digests[language], "vectors")).save(half / name, finder.fingerprint)
    rename_whole(half, place)
    about = {"format": FORMAT, "generation": str(number), "made_of": finder.fingerprint, "model": finder.name}
    write_whole(folder / _POINTER, json.dumps(about | {"languages": list(captions)}, indent=1))
    previous = pointer["generation"] if pointer else None
    for stale in folder.glob(f"{_POINTER}.*.tmp"):  # of an update that was killed
        stale.unlink(missing_ok=True)
    for other in (folder / "generations").iterdir():
        if other.name not in (str(number), previous):
            shutil.rmtree(other, ignore_errors=True)
    parts.keep({row["digest"] for row in [*rows, *_old_rows(place.with_name(previous or "-")).values()]})
    spoken.keep({digest for some in digests.values() for digest in some})
    for other in [*(folder / "parts").iterdir(), *(folder / "models").iterdir()]:
        if other.name not in (finder.fingerprint, pointer and pointer["made_of"]):
            shutil.rmtree(other, ignore_errors=True)


def _keep_model(models: Path, finder: Finder) -> None:
    """Copy the model into the gallery, if it is not there."""
    place = models / finder.fingerprint
    if place.is_dir() or finder.folder == place:
        return
    half = models / f"{finder.fingerprint}.partial"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(finder.folder, half, ignore=shutil.ignore_patterns(".*"))
    rename_whole(half, place)


def _require_ours(folder: Path) -> None:
    """Refuse a folder that holds anything else than a gallery."""
    if not folder.exists():
        return
    names = {one.name for one in folder.iterdir()} if folder.is_dir() else {folder.name}
    foreign = {name for name in names - _OURS if not (name.startswith(f"{_POINTER}.") and name.endswith(".tmp"))}
    if foreign or (names and _LOCK not in names):
        raise RecipeError(f"{folder}: is there already and holds something else; choose another folder")


def _require_same_regions(finder: Finder, pictures: StoredRegions) -> None:
    """Refuse a corpus whose regions are not made as those that the model was trained on."""
    ours, theirs = finder.standard, pictures.standard
    if (ours is None) != (theirs is None) or (
        ours is not None and theirs is not None
        and not all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))
    ):  # fmt: skip
        raise RecipeError(
            f"{pictures.store.folder}: its regions are not made as those that {finder.name} was trained on; index the "
            "corpus of the model's own recipe, or a folder of pictures"
        )


def read_npz_standard(store: RegionStore) -> tuple[NDArray[np.floating], NDArray[np.floating]] | None:
    """Mean and scale (D,) by which a corpus's regions were standardised; None where they are as they came."""
    path = store.file("standard.npz")
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["mean"].astype(np.float32), arrays["scale"].astype(np.float32)


def _add_captions(parts: Parts, finder: Finder, language: str, texts: Sequence[str], digests: Sequence[str]) -> None:
    todo = [(digest, text) for digest, text in zip(digests, texts, strict=True) if digest not in parts]
    for start in range(0, len(todo), 16 * _PART):
        some = todo[start : start + 16 * _PART]
        vectors = finder.encode_captions([text for _, text in some], language).single().numpy()
        parts.add([digest for digest, _ in some], {"vectors": vectors})


def _index(vectors: NDArray[np.floating]) -> VectorIndex:
    return VectorIndex(torch.from_numpy(vectors), "ivf-pq" if len(vectors) >= LARGE else "flat", gpu=-1)


def _load_index(folder: Path, finder: Finder) -> VectorIndex:
    try:
        return VectorIndex.load(folder, finder.fingerprint)
    except ModelError as error:
        raise RecipeError(f"{error}: run `make index` again") from None


def _old_rows(generation: Path | None) -> dict[str, dict[str, Any]]:
    """What a generation knows of its pictures, by name; nothing where it cannot be read."""
    if generation is None:
        return {}
    with suppress(OSError, pa.ArrowException):
        return {row["name"]: row for row in pq.read_table(generation / "pictures.parquet").to_pylist()}
    return {}


def _captions_of(generation: Path | None) -> dict[str, list[str]]:
    """The captions of a generation, by language."""
    found: dict[str, list[str]] = {}
    for path in sorted(generation.glob("captions-*.parquet")) if generation is not None else ():
        try:
            found[path.stem.partition("-")[2]] = pq.read_table(path)["text"].to_pylist()
        except (OSError, pa.ArrowException, KeyError):
            say(f"[yellow]{escape(str(path))} cannot be read; its captions are left out[/]")
    return found


def _digest(language: str, text: str) -> str:
    return hashlib.sha256(f"{language}\n{text}".encode()).hexdigest()


def _read_pointer(folder: Path) -> dict[str, Any] | None:
    """Which generation is the present one; None where there is no gallery.

    Raises:
        RecipeError: the file is damaged, or of another format.
    """
    path = folder / _POINTER
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(about["generation"], str) and about["generation"].isdigit()):
            raise ValueError("it names no generation")
        if about["format"] != FORMAT:
            raise RecipeError(f"{path}: format {about['format']}, this code reads {FORMAT}; delete {folder}")
        languages = about["languages"]
        if not all(isinstance(one, str) and one.isalpha() for one in [*languages]):
            raise ValueError("its languages are none")
        if Path(str(about["made_of"])).name != about["made_of"]:
            raise ValueError("it names no model")
        return {name: about[name] for name in ("generation", "made_of", "model", "languages")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path}: not readable ({error!r}); delete {folder} and run `make index`") from None
