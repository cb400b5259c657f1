"""Vision-language models in the pipeline: a tiny one writes captions of pictures, and translates captions with them."""

import json
import shutil
from pathlib import Path

import pytest

from data.pictures.images import open_picture
from data.text.padding import pad
from modules.translators.beam import BeamSettings
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.stages import all_jobs
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translator_files import load_translator
from tests.modules.image_text_models import save_llava
from tests.modules.text_models import save
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

DESCRIBE = "describe this picture in one {language} sentence ."
TRANSLATE = "translate this from {source} to {target} : {text}"
ROWS = {"captioned": ["en/human", "de/caption:de"], "seen": ["en/human", "de/tiny:en-de"], "human": ["en/human"]}


def arguments(model: Path | str, *more: str, only: str = "captioned, seen", **about: object) -> list[str]:
    """Of a recipe whose captioner and translator are one network; `about` is of both."""
    named = {"kind": "image-text-to-text", "model": str(model), "longest": 6, **about}
    translator = {"tiny": {"prompt": TRANSLATE, "directions": ["en-de"], **named}}
    return [
        f"--augment.captioner={json.dumps({'prompt': DESCRIBE, **named})}",
        f"--mmt.pretrained={json.dumps(translator)}", "--mmt.systems=[tiny]",
        "--augment.paths=[caption:de, tiny:en-de]", f"--vse.rows={json.dumps(ROWS)}", f"--vse.only=[{only}]",
        "--vse.epochs=1", "--vse.warmup_epochs=0", "--vse.reranker.model=null", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Tiny:
    """A prepared corpus."""
    found = Tiny(tmp_path_factory.mktemp("image-text"))
    assert found.main("prepare") == 0
    return found


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    return save_llava(tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def used(made: Tiny, network: Path) -> Tiny:
    """Tested, captions written, a model trained on each kind; nothing else."""
    for stage in ("mmt", "augment", "vse"):
        assert made.main(stage, *arguments(network)) == 0
    return made


def answers(folder: Path, texts: list[str], pictures: list) -> list[str]:
    """Of the translator in a folder, searched as the tiny recipe does."""
    translator, tokens = load_translator(folder)
    found = translator.eval().search({"source": pad(tokens.encode_all(texts, "en")), "pictures": pictures},
                                     BeamSettings(2))  # fmt: skip
    return [tokens.decode(best.tokens, "de") for best, *_ in found]


def test_captions_of_training_images_are_its_answers(used: Tiny, network: Path, tmp_path: Path) -> None:
    rows = used.captions("synthetic-caption-de")
    human = [row for row in used.captions("corpus") if row["split"] == "train"]
    assert {(row["language"], row["split"], row["source"], row["parent"]) for row in rows} == {
        ("de", "train", "caption:de", None)
    }
    pictures = pictures_of(used.job("corpus"))
    images = list(dict.fromkeys(row["image_id"] for row in human))
    prompt = "describe this picture in one German sentence ."
    about = {"name": str(network), "direction": "en-de", "codes": {}, "revision": None, "prompt": prompt, "longest": 6}
    (tmp_path / "network.json").write_text(json.dumps({"pretrained": about}))
    expected = dict(zip(images, answers(tmp_path, [""] * len(images), [open_picture(pictures[one]) for one in images]),
                        strict=True))  # fmt: skip
    assert {row["image_id"]: row["text"] for row in rows} == {one: text for one, text in expected.items() if text}
    assert len({row["text"] for row in rows}) > 1
    figures = used.metrics("synthetic-caption-de")
    assert (figures["captions"], figures["empty"]) == (len(rows), len(images) - len(rows))
    assert (figures["model"], figures["commit"]) == (str(network), None)


def test_translations_are_its_answers_to_caption_and_picture(used: Tiny) -> None:
    written = used.captions("synthetic-tiny-en-de")
    text_of = {row["caption_id"]: row["text"] for row in used.captions("corpus")}
    pictures = pictures_of(used.job("corpus"))
    about = json.loads((used.job("tiny-en-de") / "network.json").read_text())["pretrained"]
    assert about["prompt"] == "translate this from English to German : {text}"
    texts, images = [text_of[row["parent"]] for row in written], [row["image_id"] for row in written]
    own = [open_picture(pictures[one]) for one in images]
    assert answers(used.job("tiny-en-de"), texts, own) == [row["text"] for row in written]
    assert answers(used.job("tiny-en-de"), texts, own[1:] + own[:1]) != [row["text"] for row in written]
    assert answers(used.job("tiny-en-de"), texts, [None] * len(texts)) != [row["text"] for row in written]


def test_it_is_tested_with_its_own_and_the_twins_picture(used: Tiny) -> None:
    figures = used.metrics("tiny-en-de")
    assert {"test_bleu", "val_chrf", "ambiguous", "swapped_ambiguous"} <= figures.keys()
    rows = read_translations(used.job("tiny-en-de"), "test")
    pictures = pictures_of(used.job("corpus"))
    seen = [open_picture(pictures[row["image_id"]]) for row in rows]
    assert answers(used.job("tiny-en-de"), [row["source"] for row in rows], seen) == [row["hypothesis"] for row in rows]


def test_models_are_trained_on_its_captions(used: Tiny, network: Path) -> None:
    for row in ("captioned", "seen"):
        assert used.metrics(f"vse-san-{row}-1")["test"]["de"]["mean_recall"] >= 0
    graph = Graph(used.recipe(*arguments(network)), used.workspace)
    assert [job.stage for job in graph.synthesis.values()] == ["augment", "augment"]
    names = [job.name for job in all_jobs(graph)]
    assert names[:4] == ["corpus", "tiny-en-de", "synthetic-caption-de", "synthetic-tiny-en-de"]
    assert used.main("report", *arguments(network)) == 0
    report = (used.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "caption:de" in report
    assert "| tiny-en-de |" in report


def test_a_sentence_without_a_picture_is_translated_by_itself(used: Tiny, network: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a red ball\n\na dog\n")
    command = ["--with", "tiny:en-de", "--input", str(tmp_path / "in.txt"), *arguments(network)]
    assert used.main("translate", *command, "--output", str(tmp_path / "out")) == 0
    ball, dog = answers(used.job("tiny-en-de"), ["a red ball", "a dog"], [None, None])
    assert (tmp_path / "out").read_text().splitlines() == [ball, "", dog]


def test_lines_are_translated_with_their_pictures(used: Tiny, network: Path, tmp_path: Path) -> None:
    rows = read_translations(used.job("tiny-en-de"), "test")
    for name, key in (("in.txt", "source"), ("images.txt", "image_id")):
        (tmp_path / name).write_text("".join(f"{row[key]}\n" for row in rows))
    command = ["--with", "tiny:en-de", "--input", str(tmp_path / "in.txt"), *arguments(network)]
    command += ["--output", str(tmp_path / "out"), "--images"]
    assert used.main("translate", *command, str(tmp_path / "images.txt")) == 0
    assert (tmp_path / "out").read_text().splitlines() == [row["hypothesis"] for row in rows]
    assert used.main("translate", *command, str(tmp_path / "in.txt")) == 1  # no such images


def test_keys_are_of_files_and_prompt(made: Tiny, network: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(network, tmp_path / "moved"))

    def keys(model: Path | str, *more: str, **about: object) -> tuple[str, str]:
        graph = Graph(made.recipe(*arguments(model, *more, **about)), made.workspace)
        return graph.translators["tiny-en-de"].key, graph.synthesis["caption:de"].key

    same = keys(network)
    assert keys(moved) == same  # where it lies is nothing to a result
    assert keys(network, "--augment.batch_tokens=99", "--vse.epochs=2") == same
    prompts = "--mmt.pretrained.tiny.prompt='{text} ?'", "--augment.captioner.prompt=describe"
    others = [keys("a/b"), keys("a/b", revision="v1"), keys(network, longest=5), keys(network, *prompts),
              keys(network, "--mmt.beam_size=3", "--augment.beam_size=3")]  # fmt: skip
    (moved / "chat_template.jinja").write_text("{{ messages }}")
    others.append(keys(moved))
    for place in range(2):
        assert len({same[place], *(other[place] for other in others)}) == 7
    plain = Graph(made.recipe("--augment.paths=[mt:en-de]"), made.workspace).synthesis["mt:en-de"].key
    beside = made.recipe(*arguments(network, "--mmt.systems=[mt, tiny]", "--augment.paths=[mt:en-de, tiny:en-de]"))
    assert Graph(beside, made.workspace).synthesis["mt:en-de"].key == plain


def without_pictures(made: Tiny, folder: Path) -> dict[str, Path]:
    """The input of a job whose corpus has no pictures."""
    corpus = Path(shutil.copytree(made.job("corpus"), folder / "corpus"))
    about = json.loads((corpus / "about.json").read_text())
    (corpus / "about.json").write_text(json.dumps(about | {"pictures": {}}))
    return {"corpus": corpus}


@pytest.mark.parametrize("name", ["synthetic-caption-de", "tiny-en-de"])
def test_a_corpus_without_pictures_is_one_line(made: Tiny, network: Path, tmp_path: Path, name: str) -> None:
    graph = Graph(made.recipe(*arguments(network)), made.workspace)
    jobs: dict[str, Job] = {job.name: job for job in all_jobs(graph)}
    (tmp_path / "job").mkdir()
    with pytest.raises(Exception, match=r"images have no picture, first .*; give the corpus its pictures \(corpus\."):
        jobs[name].run(tmp_path / "job", without_pictures(made, tmp_path))


def test_captions_that_are_all_empty_are_one_line(made: Tiny, network: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("data.translators.answer_tokens.AnswerTokens.decode", lambda self, tokens, language: " ")
    job = Graph(made.recipe(*arguments(network)), made.workspace).synthesis["caption:de"]
    with pytest.raises(RecipeError, match=r"caption:de: every caption is empty; change its prompt \(augment\.capt"):
        job.run(tmp_path, {"corpus": made.job("corpus")})


@pytest.mark.parametrize(("about", "message"), [
    ({"model": "/nowhere/llava"}, "augment.captioner.model: no folder /nowhere/llava; expected one with a vision-lang"),
    ({"model": "empty"}, "holds no config.json; expected a folder with a vision-language model of transformers"),
    ({"model": "bert"}, "a bert model; expected a vision-language model with a decoder alone"),
    ({"model": "bare"}, "its processor cannot be loaded"),
    ({"model": "nobody/nothing"}, "augment.captioner 'nobody/nothing': no vision-language model of transformers found"),
])  # fmt: skip
def test_what_writes_no_captions_is_one_line(made: Tiny, tmp_path: Path, capsys, about, message) -> None:
    (tmp_path / "empty").mkdir()
    save("bert", tmp_path / "bert")
    (save_llava(tmp_path / "bare") / "processor_config.json").unlink()
    model = str(tmp_path / about["model"]) if about["model"] in ("empty", "bert", "bare") else about["model"]
    capsys.readouterr()
    settings = [*arguments(model, only="human"), "--mmt.pretrained={}", "--mmt.systems=[mt]",
                "--augment.paths=[caption:de]", "--vse.rows={human: [en/human]}"]  # fmt: skip
    assert made.main("augment", *settings) == 1
    lines = "".join(capsys.readouterr()).splitlines()
    assert message in lines[-1]
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize(("more", "words"), [
    (["--mmt.pretrained.tiny.prompt=translate this"], "mmt.pretrained.tiny.prompt is 'translate this'; expected a"),
    (["--mmt.pretrained.tiny.prompt=null"], "mmt.pretrained.tiny.prompt is None; expected a text with {text}"),
    (["--mmt.pretrained.tiny.codes={de: deu}"], "mmt.pretrained.tiny.codes is {'de': 'deu'}, which kind: image-text"),
    (["--mmt.pretrained.tiny.kind=translator"], "tiny.prompt is 'translate this from {source}"),
    (["--mmt.pretrained.tiny.longest=0"], "mmt.pretrained.tiny.longest is 0"),
    (["--augment.searches={drawn: {method: sample}}", "--augment.paths=[tiny:en-de@drawn]"], "searched by a beam"),
    (["--vse.translate=tiny:en-de", "--vse.test=[en, de]"], "a query has no picture"),
    (["--augment.captioner.prompt=null"], "augment.captioner.prompt is missing; expected the prompt of a vision-"),
    (["--augment.captioner.model="], "augment.captioner.model is missing"),
    (["--augment.captioner.longest=0"], "augment.captioner.longest is 0"),
    (["--augment.captioner.row=human"], "unknown key augment.captioner.row"),
    (["--augment.captioner.kind=gxn"], "augment.captioner.kind is 'gxn'"),
    (["--augment.paths=[caption:de@wide]"], "expected caption:de, with one language and no search"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_one_line(more: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("scenes", [*arguments("a/b", only="human"), *more])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_two_processes_write_the_captions_of_one(used: Tiny, network: Path, tmp_path: Path) -> None:
    two = used.without(tmp_path / "two", "synthetic-*")
    process = two.start("augment", "--trainer.devices=2", "--trainer.accelerator=cpu", *arguments(network))
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0, printed
    for name in ("synthetic-caption-de", "synthetic-tiny-en-de"):
        one, other = ([(row["caption_id"], row["text"]) for row in it.captions(name)] for it in (used, two))
        assert one == other


@pytest.mark.slow
def test_the_model_card_says_who_wrote_them(used: Tiny, network: Path) -> None:
    assert used.main("export", *arguments(network, only="captioned"), "--output", str(used.folder / "model")) == 0
    assert "de captions by a vision-language model (caption:de), en captions by people" in (
        (used.folder / "model" / "README.md").read_text()
    )
