"""Pretrained translators in the pipeline: a tiny one that knows some sentences by heart is tested, writes captions, and
is re-ranked, searched with and refused like a trained one."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from data.captions.table import read_pairs
from data.errors import DataError
from modules.errors import ModelError
from modules.translators.beam import BeamSettings
from pipeline.engine.artifacts import read_rows
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.export.export import exported_translators
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.stages import all_jobs
from pipeline.translation.evaluation import read_translations
from pipeline.translation.leakage import lenders_of
from pipeline.translation.translator_files import load_translator
from tests.modules.text_models import save
from tests.modules.translation_models import save_nllb, teach
from tests.pipeline.tiny import Tiny, ran

pytestmark = pytest.mark.whole

ROWS = {"both": ["en/human + de/nllb:en-de"]}
SEARCHES = {"drawn": {"method": "sample", "captions": 2}, "apart": {"beam_size": 4, "groups": 2}}
PATHS = ["nllb:en-de", "nllb:en-de-en", "nllb:en-de@drawn", "nllb:en-es"]
DIRECTIONS = ["en-de", "de-en", "en-es"]


def arguments(model: Path | str, *more: str, systems: str = "nllb", **about: object) -> list[str]:
    pretrained = {"nllb": {"model": str(model), "directions": DIRECTIONS, **about}}
    return [
        f"--mmt.pretrained={json.dumps(pretrained)}", f"--mmt.systems=[{systems}]",
        f"--augment.searches={json.dumps(SEARCHES)}", f"--augment.paths={json.dumps(PATHS)}",
        f"--vse.rows={json.dumps(ROWS)}", "--vse.only=[both]", "--vse.epochs=2", "--vse.reranker.model=null", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Tiny:
    """A prepared corpus."""
    found = Tiny(tmp_path_factory.mktemp("pretrained"))
    assert found.main("prepare") == 0
    return found


@pytest.fixture(scope="module")
def nllb(made: Tiny, tmp_path_factory) -> Path:
    """It knows the German of the test sentences."""
    pairs = read_pairs(made.job("corpus") / "pairs.parquet").to_list()
    known = [(row["en"], row["de"]) for row in pairs if row["split"] == "test"]
    folder = save_nllb(tmp_path_factory.mktemp("nllb"), [text for pair in known for text in pair])
    teach(folder, known, steps=70)
    return folder


@pytest.fixture(scope="module")
def used(made: Tiny, nllb: Path) -> Tiny:
    """Tested, captions written, a model trained on them; nothing else."""
    for stage in ("mmt", "augment", "vse"):
        assert made.main(stage, *arguments(nllb)) == 0
    return made


def jobs(made: Tiny, *more: str) -> dict[str, Job]:
    return Graph(made.recipe(*more), made.workspace).translators


def test_it_is_tested_where_the_corpus_has_pairs_and_nothing_is_trained(used: Tiny, nllb: Path) -> None:
    names = {path.name for path in (used.workspace.root / "jobs").iterdir()}
    assert {one for one in names if not one.startswith(("synthetic", "vse"))} == {
        "corpus", "nllb-en-de", "nllb-de-en", "nllb-en-es"
    }  # fmt: skip
    figures = used.metrics("nllb-en-de")
    assert figures["test_bleu"] > 80
    assert figures["test_sentences"] == 4
    assert {"val_bleu", "test_chrf", "test_ter", "ambiguous"} <= figures.keys()
    assert used.metrics("nllb-en-es") == {"model": str(nllb), "commit": None}  # nobody wrote Spanish
    assert jobs(used, *arguments(nllb))["nllb-en-es"].headline({}) == "not tested: the corpus has no en-es pairs"
    assert [row["hypothesis"] == row["reference"] for row in read_translations(used.job("nllb-en-de"), "test")].count(
        True
    ) >= 3


def test_it_writes_captions_of_training_images_by_every_search(used: Tiny) -> None:
    human = [row for row in used.captions("corpus") if (row["split"], row["language"]) == ("train", "en")]
    for path in PATHS:
        written = used.captions(f"synthetic-{path.replace(':', '-')}")
        assert {row["source"] for row in written} == {path}
        assert {row["language"] for row in written} == {path.partition("@")[0][-2:]}
        assert {row["parent"] for row in written} <= {row["caption_id"] for row in human}
    text_of = {row["caption_id"]: row["text"] for row in human}
    translator, tokens = load_translator(used.job("nllb-en-de"))
    for row in used.captions("synthetic-nllb-en-de")[:3]:
        (ids,) = tokens.encode_all([text_of[row["parent"]]], "en")
        batch = {"source": torch.tensor([ids]), "source_lengths": torch.tensor([len(ids)])}
        ((best, *_),) = translator.eval().search(batch, BeamSettings(2))
        assert (row["text"], row["score"]) == (tokens.decode(best.tokens, "de"), pytest.approx(best.score, abs=1e-4))
    assert len(used.captions("synthetic-nllb-en-de@drawn")) > len(human)


def test_where_the_corpus_changes_only_new_sentences_are_translated(used: Tiny, nllb: Path, tmp_path: Path) -> None:
    made = used.without(tmp_path / "made", "vse-*")
    graph = Graph(made.recipe(*arguments(nllb)), made.workspace)
    first, translator = graph.synthesis["nllb:en-de"], graph.translators["nllb-en-de"]
    corpus = replace(first.inputs["corpus"], settings=first.inputs["corpus"].settings | {"edited": 1})
    tested = replace(translator, inputs={"corpus": corpus})
    changed = replace(first, inputs={"corpus": corpus, "translator": tested})
    before = read_rows(made.workspace.folder(first) / "captions.parquet").to_pylist()
    first_test = made.metrics("nllb-en-de")
    (memory,) = made.workspace.folder(first).glob("translations-*.parquet")
    rows = read_rows(memory)
    for unknown in (0, 2):  # sentences that the finished job did not translate
        pq.write_table(rows[unknown:], memory)
        after = read_rows(ran(made.workspace, changed, force=True) / "captions.parquet").to_pylist()
        assert [row["text"] for row in after] == [row["text"] for row in before]
        assert [row["score"] for row in after] == pytest.approx([row["score"] for row in before], abs=1e-5)
        recalled = made.workspace.manifest(changed)["metrics"]["recalled"]
        assert recalled == len(rows) - unknown > 0
    memory.write_bytes(memory.read_bytes()[:-1])  # damaged: nothing of it is taken
    ran(made.workspace, changed, force=True)
    assert made.workspace.manifest(changed)["metrics"]["recalled"] == 0
    assert made.workspace.manifest(tested)["metrics"]["test_bleu"] == first_test["test_bleu"]


def test_a_model_is_trained_on_its_captions_and_searched_by_its_translations(used: Tiny, nllb: Path) -> None:
    assert used.main("vse", *arguments(nllb, "--vse.translate=nllb:de-en")) == 0
    assert set(used.metrics("search-nllb-de-en-san-both-1")["test"]) == {"de"}


def test_the_report_shows_it(used: Tiny, nllb: Path) -> None:
    assert used.main("report", *arguments(nllb)) == 0
    report = (used.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "| nllb-en-de |" in report
    assert "| nllb:en-es |" in report
    results = [
        json.loads(line) for line in (used.workspace.root / "tiny/report/results.jsonl").read_text().splitlines()
    ]
    assert [one["value"] for one in results if (one["system"], one["metric"], one["split"]) == ("nllb", "bleu", "test")]


def test_it_translates_a_file(used: Tiny, nllb: Path, tmp_path: Path, capsys) -> None:
    rows = read_translations(used.job("nllb-en-de"), "test")
    (tmp_path / "in.txt").write_text("\n".join(["", *(row["source"] for row in rows), "a ball " * 150]) + "\n")
    command = ["--with", "nllb:en-de", "--input", str(tmp_path / "in.txt"), *arguments(nllb)]
    assert used.main("translate", *command, "--output", str(tmp_path / "out")) == 0
    assert (tmp_path / "out").read_text().splitlines()[:5] == ["", *(row["hypothesis"] for row in rows)]
    assert "1 empty line, left empty" in (told := capsys.readouterr().err)
    assert "1 line cut at 100 sub-words" in told
    assert used.main("translate", *command, "--n-best", "2", "--output", str(tmp_path / "lists")) == 0
    best = [json.loads(line)["translations"] for line in (tmp_path / "lists").read_text().splitlines()]
    assert [one[0]["text"] for one in best[1:5]] == [row["hypothesis"] for row in rows]
    assert used.main("translate", *command, "--with", "nllb:en-fr") == 1
    assert "its systems: nmt, nllb; directions: en-de, de-en, en-es" in capsys.readouterr().err


@pytest.mark.slow
def test_beside_a_trained_translator_its_lists_are_reranked(used: Tiny, nllb: Path, tmp_path: Path) -> None:
    both = Tiny(tmp_path)
    shutil.copytree(used.workspace.root, both.workspace.root)
    more = arguments(nllb, "--mmt.rerank.systems={short: [logp, length]}", "--mmt.rerank.list_size=4",
                     "--mmt.rerank.seeds=[1, 2]", "--mmt.directions=[en-de, de-en]", directions=[],
                     systems="mt, nllb, nllb+channel, nllb+short")  # fmt: skip
    more = [one for one in more if not one.startswith("--augment.paths")] + ["--augment.paths=[nllb:en-de]"]
    assert both.main("mmt", *more) == both.main("rerank", *more) == both.main("report", *more) == 0
    assert both.job("nllb-en-de").name == used.job("nllb-en-de").name  # whatever is trained beside it
    report = (both.workspace.root / "tiny" / "report" / "report.md").read_text()
    for row in (
        "nllb-en-de − mt",
        "nllb+channel-de-en",
        "nllb+short-en-de",
        "Re-ranking the 4-best lists of nllb-en-de",
    ):
        assert row in report
    translator, tokens = load_translator(both.job("nllb+channel-en-de"))
    channel = translator.features["channel"]
    text = read_translations(both.job("nllb-en-de"), "test")[0]["reference"]
    (german,) = tokens.encode_all([text], "de")
    assert channel.recode_target([german]) == load_translator(both.job("mt-de-en"))[1].encode_all([text], "de")
    (row,) = Graph(both.recipe(*more), both.workspace).rows
    assert [job.name for job in exported_translators(Graph(both.recipe(*more), both.workspace), row)] == [
        "mt-en-de", "mt-de-en"
    ]  # fmt: skip


def test_keys_of_trained_translators_stay_and_its_own_is_of_its_files(made: Tiny, nllb: Path, tmp_path: Path) -> None:
    plain = jobs(made, "--augment.paths=[]", "--vse.only=[human]")
    beside = jobs(made, *arguments(nllb, systems="mt, mmt, nllb"))
    assert plain.items() <= beside.items()
    moved = Path(shutil.copytree(nllb, tmp_path / "moved"))

    def key(model: Path | str, *more: str, **about: object) -> str:
        return jobs(made, *arguments(model, *more, **about))["nllb-en-de"].key

    same = key(nllb)
    assert key(moved) == same  # where it lies is nothing to a result
    assert key(nllb, "--mmt.vocabulary=99", "--mmt.finetune.steps=4") == same
    assert key(nllb, codes={"es": "spa_Latn"}) == same
    others = {key(nllb, codes={"de": "dik_Latn"}), key(nllb, "--mmt.trainer.precision=bf16-mixed"),
              key("a/b"), key("a/b", revision="v1"), key("a/{source}-{target}"), key("a/en-de")}  # fmt: skip
    assert same not in others
    assert len(others) == 5  # the last two are one
    (moved / "model.safetensors").write_bytes(b"")
    assert key(moved) != same


def test_what_it_was_tested_on_is_nothing_that_it_learned_from(made: Tiny, nllb: Path) -> None:
    found = jobs(made, *arguments(nllb, systems="mt, nllb"))
    corpus = Job("corpus", "prepare", 1, {}, {}, lambda folder, inputs: {})
    assert lenders_of([found["mt-en-de"]], corpus)
    assert lenders_of([found["nllb-en-de"]], corpus) == {}


def test_all_its_jobs_are_known_before_the_first_runs(made: Tiny, nllb: Path) -> None:
    names = [job.name for job in all_jobs(Graph(made.recipe(*arguments(nllb)), made.workspace))]
    assert names[:4] == ["corpus", "nllb-en-de", "nllb-de-en", "nllb-en-es"]
    assert "synthetic-nllb-en-de@drawn" in names


def test_a_name_on_the_hub_is_loaded_by_the_commit_that_was_tested(
    made: Tiny, nllb: Path, tmp_path: Path, monkeypatch
) -> None:
    repository, commits = tmp_path / "models--some--translator", ["1" * 40, "2" * 40]
    for commit in commits:  # as the hub's client leaves them
        shutil.copytree(nllb, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commits[0])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    settings = arguments("some/{source}lator", directions=["trans-de"], codes={"trans": "eng_Latn"})
    settings = [one.replace('"nllb:en-de", "nllb:en-de-en", "nllb:en-de@drawn", "nllb:en-es"', "") for one in settings]
    settings += ["--vse.rows={both: [en/human]}"]
    assert made.main("mmt", *settings) == 0
    assert made.metrics("nllb-trans-de") == {"model": "some/translator", "commit": commits[0]}
    (repository / "refs" / "main").write_text(commits[1])  # the hub goes on
    assert load_translator(made.job("nllb-trans-de"))[0].commit == commits[0]
    shutil.rmtree(repository / "snapshots" / commits[0])
    with pytest.raises((DataError, ModelError), match=r"mmt.pretrained 'some/translator': no translator"):
        load_translator(made.job("nllb-trans-de"))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"model": "/nowhere/opus"}, "mmt.pretrained.nllb.model: no folder /nowhere/opus; expected one with"),
        ({"model": "empty"}, "holds no config.json; expected a folder with a translator of transformers"),
        ({"model": "bert"}, "a bert model; expected a translator: OPUS-MT"),
        ({"model": "nobody/nothing"}, "mmt.pretrained 'nobody/nothing': no translator of transformers found"),
        ({"directions": ["en-xx"]}, "does not know the language 'xx' (as xx); name one of its codes in `codes`"),
        ({"codes": {"de": "german"}}, "does not know the language 'de' (as german)"),
    ],
)
def test_what_cannot_translate_is_one_line(made: Tiny, nllb: Path, tmp_path: Path, capsys, about, message) -> None:
    (tmp_path / "empty").mkdir()
    save("bert", tmp_path / "bert")
    model = about.get("model", str(nllb))
    model = str(tmp_path / model) if model in ("empty", "bert") else model
    more = {"directions": ["en-de"], **about} | {"model": model}
    settings = [one for one in arguments(**more) if not one.startswith(("--augment.paths", "--vse"))]
    capsys.readouterr()
    assert made.main("mmt", *settings, "--augment.paths=[]", "--vse.rows={n: [en/human]}", "--vse.only=[n]") == 1
    lines = "".join(capsys.readouterr()).splitlines()
    assert message in lines[-1]
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--augment.paths=[hub:Helsinki-NLP/opus-mt-en-de:en-de]"], "name the model as mmt.pretrained.NAME.model"),
        (["--augment.paths=[nllb:en-fr]"], "mmt.pretrained.nllb.directions lacks 'en-fr'"),
        (["--augment.paths=[nllb:en-de@apart]"], "a pretrained translator has no diverse beam search"),
        (["--augment.paths=[opus:en-de]"], "a SYSTEM of mmt.systems (nllb)"),
        (["--mmt.systems=[nllb, nllb]"], "mmt.systems has 'nllb'"),
        (["--mmt.systems=[nllb, mt, mt+nllb]"], "mmt.systems has 'mt+nllb'"),
        (["--mmt.systems=[nllb, mt, nllb+mt]"], "mmt.systems has 'nllb+mt'"),
        (["--mmt.systems=[nllb, nllb+channel]"], "nothing translates"),
        (["--mmt.pretrained.mt2.model=a/b"], "mmt.pretrained has 'mt2'"),
        (["--mmt.pretrained.caption.model=a/b"], "mmt.pretrained has 'caption'"),
        (["--mmt.pretrained.opus-mt.model=a/b"], "mmt.pretrained has 'opus-mt'"),
        (["--mmt.pretrained.nllb.model="], "model"),
        (["--mmt.pretrained.nllb.model=' '"], "mmt.pretrained.nllb.model is empty"),
        (["--mmt.pretrained.nllb.directions=[en]"], "mmt.pretrained.nllb.directions has 'en'"),
        (["--mmt.pretrained.nllb.directions=[en-de, en-de]"], "has an entry twice"),
        (["--mmt.pretrained.nllb.modle=a/b"], "did you mean mmt.pretrained.nllb.model?"),
        (["--vse.translate=nllb:fr-en"], "vse.translate is 'nllb:fr-en'"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(more: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("scenes", [*arguments("a/b"), *more])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_two_processes_write_the_captions_of_one(used: Tiny, nllb: Path, tmp_path: Path) -> None:
    two = used.without(tmp_path / "two", "synthetic-*")
    process = two.start("augment", "--trainer.devices=2", "--trainer.accelerator=cpu", *arguments(nllb))
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0, printed
    for path in PATHS:
        tables = [pq.read_table(one.job(f"synthetic-{path.replace(':', '-')}") / "captions.parquet").to_pylist()
                  for one in (used, two)]  # fmt: skip
        assert [(row["caption_id"], row["text"]) for row in tables[0]] == [
            (row["caption_id"], row["text"]) for row in tables[1]
        ]
