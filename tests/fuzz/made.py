"""Small models, galleries and artifacts, made in seconds: weights are random or barely trained."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from data.pictures.extractor import EXTRACTOR_VERSION, Extractor, ExtractorSettings
from data.text.text_inputs import WordVocabulary
from data.text.tokenisation import JointBPE, tokenize
from modules.retrieval_models import build_model
from modules.translators.registry import build_translator
from pipeline.engine.files import digest_of
from pipeline.export.exported_files import ABOUT, FORMAT, RERANKER, TRANSLATORS
from pipeline.export.exported_model import ExportedModel
from pipeline.export.picture_reading import STANDARD
from pipeline.export.training_hashes import SEEN
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.training.model_files import save_model, save_weights
from pipeline.translation.translator_files import save_network
from tests.data.layouts import sentence

ENGLISH = [sentence(str(number), 1) for number in range(12)]
GERMAN = [f"Der Ball {number} ist auf dem Bild und die Katzen sind in dem Haus" for number in range(12)]
GXN = {"generate": ["i2t", "t2i"], "picture_size": 8, "picture_width": 2, "longest": 6}
TRANSLATOR = "mt-en-de"


def write_model(folder: Path, picture: Path, kind: str = "san") -> None:
    """An exported model of random weights; `san` has a reranker and a translator, `gxn` writes and draws."""
    dim = Extractor(ExtractorSettings(3, 64)).extract(picture)[0].shape[1]
    _write_network(folder, kind, dim, GXN if kind == "gxn" else {})
    save_file({"mean": np.zeros(dim, np.float32), "scale": np.ones(dim, np.float32)}, folder / STANDARD)
    test = {language: {"t2i_r1": 50.0, "rsum": 300.0} for language in ("en", "de")}
    about = {
        "format": FORMAT, "name": f"{kind}, en-de, made", "languages": ["en", "de"], "regions": {"regions": 3,
        "size": 64, "model": None, "version": EXTRACTOR_VERSION}, "row": "en-de", "seed": 1,
        "job": f"vse-{kind}-en-de-1", "key": "0123456789ab", "test": test, "translators": {},
        "without_regions": "text", "reranker": None,
    }  # fmt: skip
    if kind == "san":
        _write_network(folder / RERANKER, "scan-t2i-avg", dim, {})
        about["reranker"] = {
            "name": "scan-t2i-avg, en-de",
            "languages": ["en", "de"],
            "first_k": 5,
            "key": "abc",
            "test": test,
        }
        _write_translator(folder / TRANSLATORS / TRANSLATOR)
        about["translators"] = {TRANSLATOR: "0123456789ab"}
        hashes = np.arange(5, dtype=np.int64)
        save_file(
            {f"{split}.{one}": hashes for split in ("train", "val") for one in ("names", "files", "sentences")},
            folder / SEEN,
        )
    (folder / "recipe.yaml").write_text("base: own\nseed: 1\n")
    (folder / "README.md").write_text("# A model\n")
    sign(folder, about)


def sign(folder: Path, about: object) -> None:
    """Write `model.json` with the digests of all files that are there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ABOUT]
    names = {path.relative_to(folder).as_posix(): digest_of(path) for path in files}
    whole = about | {"files": names} if isinstance(about, dict) else about
    (folder / ABOUT).write_text(json.dumps(whole, indent=1), encoding="utf-8")


def write_gallery(folder: Path, model: Path, pictures: Path) -> None:
    """A gallery of a model that lies in a folder."""
    captions = {"en": ENGLISH, "de": GERMAN}
    update_gallery(folder, ExportedModel.load(model), PictureFolder(pictures), captions)


def _write_network(folder: Path, kind: str, dim: int, options: dict[str, object]) -> None:
    folder.mkdir(parents=True)
    words = WordVocabulary.build([*ENGLISH, *GERMAN], ["en"] * 12 + ["de"] * 12, 1)
    arguments = {
        "region_dim": dim,
        "vocabulary_size": len(words),
        "languages": ["en", "de"],
        "dim": 8,
        "word_dim": 8,
        **options,
    }
    torch.manual_seed(0)
    save_model(folder, kind, arguments, build_model(kind, **arguments))
    words.save(folder / "words.json")


def _write_translator(folder: Path) -> None:
    folder.mkdir(parents=True)
    bpe = JointBPE.train(
        [tokenize(text, language) for language, texts in (("en", ENGLISH), ("de", GERMAN)) for text in texts], 80
    )
    network = {
        "network": "bilstm",
        "vocabulary_size": len(bpe),
        "embedding_dim": 8,
        "hidden_dim": 8,
        "region_dim": None,
    }
    torch.manual_seed(0)
    save_weights(build_translator(**network), folder / "weights.safetensors")
    save_network(folder, network, bpe)
