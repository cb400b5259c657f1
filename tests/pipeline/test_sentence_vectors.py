"""Sentence vectors in the pipeline: a job of their own, shared by rows and seeds, searched with; refusals."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from data.batches.taught import taught_texts
from data.captions.table import read_captions
from data.text.text_inputs import PretrainedTokens
from modules.pretrained.pretrained_text import SentenceVectors
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.graph import Graph
from pipeline.training.model_files import load_model
from tests.modules.text_models import save
from tests.pipeline.tiny import Tiny, relisted

pytestmark = pytest.mark.whole

ROWS = {"en": ["en/human"], "both": ["en/human + de/human"], "mt": ["en/human + de/mt:en-de"]}


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    return save("bert", tmp_path_factory.mktemp("bert"), ["a", "red", "ball", "bat", "ein", "roter"])


def arguments(bert: Path, *more: str, model: str = "embn", only: str = "both") -> list[str]:
    return [
        f"--vse.model={model}", f"--vse.pretrained={bert}", "--vse.pretrained_vectors=sentences",
        f"--vse.rows={json.dumps(ROWS)}", f"--vse.only=[{only}]", "--vse.warmup_epochs=0", "--vse.epochs=2",
        "--vse.reranker.model=null", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tiny: Tiny, bert: Path, tmp_path_factory) -> Tiny:
    made = tiny.without(tmp_path_factory.mktemp("sentences"), "vse-*")
    assert made.main("vse", *arguments(bert, only="both,mt")) == 0
    return made


def names(made: Tiny) -> dict[str, int]:
    """How many finished folders each job of sentence vectors has."""
    return {path.name: len([one for one in path.iterdir() if (one / "manifest.json").is_file()])
            for path in (made.workspace.root / "jobs").glob("sentences-*")}  # fmt: skip


def test_each_caption_table_is_read_once_for_all_rows_and_seeds(trained: Tiny, bert: Path) -> None:
    both = {"sentences-corpus": 1, "sentences-synthetic-mt-en-de": 1}
    assert names(trained) == both
    written = [(trained.job(name) / "vectors.npy").stat().st_mtime_ns for name in both]
    assert trained.main("vse", *arguments(bert, "--vse.seeds=[2]", only="en,both")) == 0
    assert trained.main("vse", *arguments(bert, model="mule")) == 0
    assert names(trained) == both
    assert [(trained.job(name) / "vectors.npy").stat().st_mtime_ns for name in both] == written
    assert not (trained.job("sentences-corpus") / "checkpoints").exists()
    captions = read_captions(trained.job("corpus") / "captions.parquet")
    assert trained.metrics("sentences-corpus") == {"sentences": len(set(captions["text"][:])), "dim": 8}


def test_vectors_are_those_of_the_text_model_alone(trained: Tiny, bert: Path) -> None:
    import pyarrow.parquet as pq

    folder = trained.job("sentences-corpus")
    texts, vectors = pq.read_table(folder / "sentences.parquet")["text"].to_pylist(), np.load(folder / "vectors.npy")
    tokens, model = PretrainedTokens(str(bert)), SentenceVectors(str(bert))
    assert len(texts) == len(set(texts)) == len(vectors)
    for text, vector in list(zip(texts, vectors, strict=True))[:: len(texts) // 9]:
        alone = model.encode(torch.tensor([tokens.encode(text, "en")]))[0].numpy()
        np.testing.assert_allclose(vector, alone, atol=1e-6)


def test_a_trained_model_has_no_weights_of_the_text_model_and_ranks_as_in_training(trained: Tiny, bert: Path) -> None:
    model, _ = load_model(trained.job("vse-embn-both-1"))
    assert not [name for name in model.state_dict() if name.startswith("words.")]
    folds = arguments(bert, "--vse.folds=2")
    assert trained.main("vse", *folds) == 0  # ranks the test by a loaded model, which reads each caption
    assert trained.metrics("folds-2-embn-both-1")["test"] == trained.metrics("vse-embn-both-1")["test"]


def test_it_is_exported_with_the_text_model_and_searches_new_sentences(trained: Tiny, bert: Path) -> None:
    assert trained.main("index", *arguments(bert)) == 0
    model, _ = load_model(trained.job("vse-embn-both-1"))
    tokens, queries = PretrainedTokens(str(bert)), ["a red bat", "ein roter ball"]
    alone = [model.encode_sentences([tokens.encode(query, "en")], "en")[0][0, 0].detach() for query in queries]
    moved = bert.rename(bert.with_name("moved"))  # an exported model brings the text model
    folder = trained.workspace.root / "tiny"
    found = ExportedModel.load(folder / "model").encode_captions(queries).single()
    hits = Gallery.open(folder / "gallery").search("a red bat", top=2)
    moved.rename(bert)
    torch.testing.assert_close(found, torch.stack(alone), atol=1e-6, rtol=0)
    assert len(hits) == 2


def test_the_key_is_of_the_text_model_the_layer_and_the_captions(tiny: Tiny, bert: Path, tmp_path: Path) -> None:
    def vectors(model: Path, *more: str) -> str:
        (row,) = Graph(tiny.recipe(*arguments(model, *more)), tiny.workspace).rows
        return row.job.inputs["sentences-corpus"].key

    plain = vectors(bert)
    shutil.copytree(bert, tmp_path / "moved")
    assert vectors(tmp_path / "moved") == plain  # where it lies is nothing to a result
    assert vectors(bert, "--vse.epochs=9", "--vse.dim=8") == plain
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    (tmp_path / "moved" / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-3}))
    others = [vectors(tmp_path / "moved"), vectors(bert, "--vse.pretrained_layer=-2")]
    others.append(vectors(bert, "--corpus.captions=2"))
    assert len({plain, *others}) == 4


def test_words_and_sentences_of_a_text_model_are_other_trainings(tiny: Tiny, bert: Path) -> None:
    sentences, words = (
        Graph(tiny.recipe(*arguments(bert, *more)), tiny.workspace).rows[0].job
        for more in ((), ("--vse.pretrained_vectors=words",))
    )
    assert sentences.key != words.key
    assert set(words.inputs) == {"corpus"}


def test_what_is_partly_written_is_not_used(trained: Tiny, bert: Path, tmp_path: Path, capsys) -> None:
    made = trained.without(tmp_path / "made", "vse-*")
    folder = made.job("sentences-corpus")
    whole = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(whole[:100])
    relisted(folder)
    assert made.main("vse", *arguments(bert)) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{folder}: no sentence vectors (" in error
    (folder / "manifest.json").unlink()  # as a killed run leaves it: not finished, so it is written again
    assert made.main("vse", *arguments(bert)) == 0
    assert (folder / "vectors.npy").read_bytes() == whole


def test_a_text_model_that_is_missing_is_one_line(tiny: Tiny, tmp_path: Path, capsys) -> None:
    made = tiny.without(tmp_path / "made", "vse-*")
    assert made.main("vse", *arguments(tmp_path / "nowhere")) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"error: vse.pretrained: no folder {tmp_path / 'nowhere'}; expected one with a network of")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--vse.pretrained=null"], "vse.pretrained_vectors is sentences, but vse.pretrained names no text model"),
        (["--vse.pretrained_rate=0.1"], "vse.pretrained_rate is 0.1, but sentence vectors are computed once"),
        (["--vse.drop_words=0.2"], "vse.drop_words is 0.2, but sentence vectors are computed once"),
        (["--vse.pretrained_layer=2"], "vse.pretrained_layer is 2; expected -1 (the last), -2"),
        (
            ["--vse.pretrained_vectors=words", "--vse.pretrained_layer=-2"],
            "only vse.pretrained_vectors=sentences",
        ),
        (["--vse.pretrained_vectors=captions"], "pretrained_vectors"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(tiny: Tiny, bert: Path, more: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        tiny.recipe(*arguments(bert, *more))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("source", ["text:scenes-text", "text:mt:en-de"])
def test_a_student_of_sentences_without_pictures_has_vectors_of_them_too(
    trained: Tiny, bert: Path, source: str, tmp_path: Path
) -> None:
    made = trained.without(tmp_path / "made", "vse-student-*")
    rows = {**ROWS, "student": [f"de/{source}", "en/human"]}
    reads = {
        "pretrained": str(bert),
        "pretrained_vectors": "sentences",
    }  # a row of another model has its own text model
    settings = {"student": {"model": "student", "teacher": {"row": "en"}, **reads}}
    taught = arguments(bert, f"--vse.rows={json.dumps(rows)}", f"--vse.row_settings={json.dumps(settings)}")
    assert made.main("vse", *taught, "--vse.only=[student]") == 0
    (folder,) = [job for job in names(made) if job.startswith("sentences-taught-")]
    pairs = made.job(folder.removeprefix("sentences-"))
    assert made.metrics(folder)["sentences"] == len(set(taught_texts(pairs)))
    assert 0 < made.metrics("vse-student-student-1")["test"]["de"]["rsum"] <= 600
