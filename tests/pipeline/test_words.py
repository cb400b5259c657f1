"""What a retrieval model's words start from: published vectors in keys, refused in one line, and in a training."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from tests.modules.text_models import save
from tests.pipeline.tiny import Tiny

ROWS = "--vse.rows={en: [en/human], de: [de/human], both: [en/human, de/human]}"
APART = "--vse.share_words=false"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("wiki.en.vec", "wiki.de.vec", "wiki.all.vec"):
        (tmp_path / name).write_text(f"{name} 1\n")
    return tmp_path


def keys(root: Path, *arguments: str, only: str = "en,de,both") -> dict[str, str]:
    settings = [ROWS, "--augment.paths=[]", "--vse.reranker.model=null", f"--corpus.root={root}", *arguments]
    recipe = load_recipe("scenes", [*settings, f"--vse.only=[{only}]", "--vse.seeds=[1]"])
    return {row.name: row.job.key for row in Graph(recipe, Workspace(root / "artifacts")).rows}


def test_a_row_stands_for_the_contents_of_the_files_of_its_languages(files: Path) -> None:
    plain, both = keys(files, APART), "--vse.word_vectors={en: wiki.en.vec, de: wiki.de.vec}"
    assert keys(files, APART, "--vse.word_vectors={}") == plain
    first = keys(files, APART, both)
    assert all(first[row] != plain[row] for row in plain)
    german = keys(files, APART, "--vse.word_vectors.de=wiki.de.vec")
    assert german["en"] == plain["en"]  # reads no German
    assert german["de"] == first["de"]
    assert german["both"] not in (plain["both"], first["both"])
    whole = f"--vse.word_vectors={{en: {files}/wiki.en.vec, de: {files}/wiki.de.vec}}"
    assert keys(files, APART, whole) == first  # where they lie is nothing to a result
    (files / "wiki.de.vec").write_text("other 1\n")
    changed = keys(files, APART, both)
    assert [row for row in changed if changed[row] != first[row]] == ["de", "both"]


def test_rows_that_share_words_need_one_file(files: Path) -> None:
    assert keys(files, "--vse.word_vectors={en: wiki.all.vec, de: wiki.all.vec}")
    assert keys(files, "--vse.word_vectors={en: wiki.en.vec, de: wiki.de.vec}", only="en,de")
    for vectors in ("{en: wiki.en.vec, de: wiki.de.vec}", "{en: wiki.en.vec}"):
        with pytest.raises(RecipeError, match=r"vse\.rows\.both reads de, en, .*; set vse\.share_words=false$"):
            keys(files, f"--vse.word_vectors={vectors}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vse.word_vectors.fr=wiki.en.vec"], "vse.word_vectors names 'fr', but vse.rows reads de, en alone"),
        (["--vse.word_vectors.en=wiki.fr.vec"], "wiki.fr.vec: no such file; expected word vectors (.vec, .vec.gz"),
        (["--vse.word_vectors.en=wiki.en.vec.zip"], "vse.word_vectors.en is 'wiki.en.vec.zip'; expected a file .vec"),
        (["--vse.word_vectors.en=wiki.en.vec", "--vse.words=fasttext"], "vse.words is fasttext, but vse.word_vectors"),
        (["--vse.word_vectors.en=wiki.en.vec", "--vse.pretrained=bert"], "vse.pretrained is set, but vse.word_vectors"),
        (["--vse.word_vectors.en=3"], "vse.word_vectors"),
        (["--vse.word_vectors=wiki.en.vec"], "vse.word_vectors"),
    ],
)
def test_files_that_make_no_sense_are_one_line(files: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        keys(files, APART, *arguments)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_relative_file_needs_a_data_root(files: Path, monkeypatch) -> None:
    monkeypatch.delenv("BILDWORT_DATA", raising=False)
    recipe = load_recipe("scenes", ["--augment.paths=[]", "--vse.rows={en: [en/human]}", "--vse.only=[en]",
                                    "--vse.reranker.model=null", "--vse.word_vectors.en=wiki.en.vec"])  # fmt: skip
    with pytest.raises(RecipeError, match=r"vse.word_vectors.en is wiki.en.vec, but there is no data root; set BILD"):
        Graph(recipe, Workspace(files)).rows


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Tiny:
    return Tiny(tmp_path_factory.mktemp("words"))


def start(made: Tiny, *arguments: str) -> tuple[dict, list[str], torch.Tensor]:
    """Figures, words and word vectors of a model that hardly learns."""
    rows = ["--vse.rows={human: [en/human, de/human]}", "--vse.only=[human]", "--vse.word_dim=2"]
    assert made.main("vse", *rows, "--vse.epochs=1", "--vse.decay_epoch=1", "--vse.learning_rate=1e-9", *arguments) == 0
    manifests = (made.workspace.root / "jobs" / "vse-san-human-1").glob("*/manifest.json")
    newest = max(manifests, key=lambda path: path.stat().st_mtime_ns)
    table = load_file(newest.parent / "weights.safetensors")["captions.words.weight"]
    words = json.loads((newest.parent / "words.json").read_text())["words"]
    return json.loads(newest.read_text())["metrics"], words, table


def test_words_of_each_language_start_from_its_file_and_the_others_at_random(made: Tiny, capsys) -> None:
    plain, words, random = start(made, APART)
    assert "word_vectors" not in plain
    noun = next(word for word in words if word.startswith("de:") and word[3:].isalpha() and len(word) > 7)
    english, german = made.folder / "en.vec", made.folder / "de.vec"
    english.write_text("2 2\na 1 2\na 9 9\n")
    german.write_text(f"{noun[3:].capitalize()} 5 6\nein 7 8\n")
    capsys.readouterr()
    figures, again, table = start(made, APART, f"--vse.word_vectors={{en: {english}, de: {german}}}")
    assert again == words
    expected = {"en:a": [1.0, 2.0], noun: [5.0, 6.0], "de:ein": [7.0, 8.0]}
    assert expected.keys() <= set(words)
    for number, word in enumerate(words):
        torch.testing.assert_close(table[number], torch.tensor(expected.get(word, random[number].tolist())))
    counts = {language: sum(word.startswith(f"{language}:") for word in words) for language in ("en", "de")}
    assert figures["word_vectors"] == {
        "en": {"words": counts["en"], "found": 1}, "de": {"words": counts["de"], "found": 2},
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert (
        f"warning: only 2 of {counts['de']} words of the vocabulary are in {german}; is it a file of 'de'?" in printed
    )
    assert f"warning: {english}:3: a word that has a row before, as 1 rows" in printed


def test_a_language_without_a_file_is_named(made: Tiny, capsys) -> None:
    path = made.folder / "german.vec"
    path.write_text("ein 7 8\n")
    figures, _, _ = start(made, APART, f"--vse.word_vectors={{de: {path}}}")
    assert figures["word_vectors"].keys() == {"de"}
    assert "warning: vse.word_vectors names no file of en; these words start at random" in capsys.readouterr().out


def test_a_file_of_another_width_ends_the_stage_in_one_line(made: Tiny, capsys) -> None:
    path = made.folder / "wide.vec"
    path.write_text("a 1 2 3\n")
    rows = ["--vse.rows={human: [en/human]}", "--vse.only=[human]"]
    assert made.main("vse", *rows, f"--vse.word_vectors.en={path}") == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error == (
        f"error: {path}:1: vectors of 3 numbers, but vse.word_dim is 16; set vse.word_dim=3 or name another file"
    )


def test_languages_that_share_words_start_from_one_file(made: Tiny) -> None:
    path = made.folder / "all.vec"
    path.write_text("a 1 2\nein 3 4\n")
    figures, words, table = start(made, f"--vse.word_vectors={{en: {path}, de: {path}}}")
    assert figures["word_vectors"] == {"en, de": {"words": len(words) - 2, "found": 2}}
    for word, vector in (("a", [1.0, 2.0]), ("ein", [3.0, 4.0])):
        torch.testing.assert_close(table[words.index(word)], torch.tensor(vector))


@pytest.mark.slow
def test_diverse_attention_on_a_text_model_is_trained_and_exported(made: Tiny, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = save("bert", tmp_path, ["a", "red", "ball", "ein", "roter"])
    arguments = ["--vse.model=diverse-attention", "--vse.only=[human]", "--vse.rows={human: [en/human + de/human]}",
                 "--vse.caption_loss=0.6", f"--vse.pretrained={model}", "--vse.pretrained_rate=0.1",
                 "--vse.epochs=2"]  # fmt: skip
    assert made.main("vse", *arguments) == 0
    assert made.main("export", *arguments) == 0
    for path in tmp_path.iterdir():
        path.unlink()
    exported = ExportedModel.load(made.workspace.root / "tiny" / "model")
    assert exported.encode_captions(["a red ball", "ein roter Ball"]).single().isfinite().all()
