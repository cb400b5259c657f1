"""Beside MT and MMT: other seeds, ensembles, other searches; pairs of pictures without regions; averaged weights."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from data.captions.table import read_captions, read_pairs
from modules.training.translation import Translation
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes import typed
from pipeline.recipes.loading import load_recipe
from pipeline.training.model_files import load_best
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translator_files import load_translator
from tests.data.official import write_data
from tests.pipeline.tiny import Tiny, relisted

pytestmark = pytest.mark.whole

SYSTEMS = "--mmt.systems=[mt,mt2,mmt,mt+mt2,mt2+mmt,mt+channel,mt2+mmt+channel]"
SEARCHES = (
    '--augment.searches={"drawn":{"method":"sample","captions":7},"apart":{"beam_size":4,"groups":4,"captions":2}}',
    "--augment.paths=[mt2+mmt:en-de,mt2+mmt+channel:en-de,mt:en-de-en@drawn,mt:en-de@apart,mmt:en-de-en-de-en]",
)


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> Tiny:
    made = Tiny(tmp_path_factory.mktemp("several"))
    for stage in ("prepare", "mmt", "augment"):
        assert made.main(stage, SYSTEMS, *SEARCHES) == 0
    return made


def test_another_seed_has_an_nmt_of_its_own_and_changes_nothing_of_the_first(several: Tiny) -> None:
    jobs = Graph(several.recipe(SYSTEMS, *SEARCHES), several.workspace).translators
    assert jobs["mt-en-de"].inputs["start"] is jobs["mmt-en-de"].inputs["start"] is jobs["nmt-en-de"]
    assert jobs["mt2-en-de"].inputs["start"] is jobs["nmt2-en-de"]
    for name, job in Graph(several.recipe(), several.workspace).translators.items():
        assert job.key == jobs[name].key
    for one, other in (("nmt-en-de", "nmt2-en-de"), ("mt-en-de", "mt2-en-de")):
        first, second = (load_file(several.job(name) / "weights.safetensors") for name in (one, other))
        assert any(not torch.equal(first[name], second[name]) for name in first)


def test_a_second_seed_alone_trains_no_first(several: Tiny) -> None:
    recipe = load_recipe("scenes", ["--mmt.systems=[mt2]", "--mmt.directions=[en-de]", "--augment.paths=[]"])
    assert list(Graph(recipe, several.workspace).translators) == ["bpe-de-en", "nmt2-en-de", "mt2-en-de"]


def test_an_ensemble_is_tested_like_its_members_and_can_be_moved(several: Tiny, tmp_path: Path) -> None:
    figures = several.metrics("mt2+mmt-en-de")
    assert {"val_bleu", "test_bleu", "test_chrf", "test_ter", "ambiguous", "swapped_ambiguous"} <= figures.keys()
    assert [len(read_translations(several.job(name), "test")) for name in ("mt2+mmt-en-de", "mt-en-de")] == [4, 4]
    several.job("mt2+mmt-en-de").rename(tmp_path / "moved")
    try:
        ensemble, bpe = load_translator(tmp_path / "moved")
        assert len(bpe) == 120
        members = [load_translator(several.job(name))[0] for name in ("mt2-en-de", "mmt-en-de")]
        for part, member in zip(ensemble.members, members, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(part.parameters(), member.parameters(), strict=True))
    finally:
        (key,) = [path.stem for path in (several.workspace.root / "jobs" / "mt2+mmt-en-de").glob("*.lock")]
        (tmp_path / "moved").rename(several.workspace.root / "jobs" / "mt2+mmt-en-de" / key)


def test_a_channel_reranks_what_one_translator_or_several_find(several: Tiny) -> None:
    jobs = Graph(several.recipe(SYSTEMS, *SEARCHES), several.workspace).translators
    for system, direction, back in (("mt", "en-de", "mt-de-en"), ("mt2+mmt", "de-en", "mt-en-de")):
        job = jobs[f"{system}+channel-{direction}"]
        assert job.inputs["channel"] is jobs[back]
        assert list(jobs).index(job.name) > list(jobs).index(back)
        found, _ = load_translator(several.job(job.name))
        assert (found.weights, found.beam_size) == ({"logp": 1.0, "channel": 0.3}, 10)
        direct, channel = (load_translator(several.job(name))[0] for name in (f"{system}-{direction}", back))
        for part, whole in ((found.direct, direct), ((heard := found.features["channel"]).channel, channel)):
            assert all(torch.equal(a, b) for a, b in zip(part.parameters(), whole.parameters(), strict=True))
        for recode in (heard.recode_source, heard.recode_target):  # of one recipe, so of one vocabulary
            assert recode([[5, 3, 7], []]) == [[5, 3, 7], [3]]
        assert len(read_translations(several.job(job.name), "test")) == 4
    assert {row["source"] for row in several.captions("synthetic-mt2+mmt+channel-en-de")} == {"mt2+mmt+channel:en-de"}


def test_captions_by_an_ensemble_and_by_other_searches(several: Tiny) -> None:
    human = [row for row in several.captions("corpus") if row["split"] == "train" and row["language"] == "en"]
    (ensemble,) = {row["source"] for row in several.captions("synthetic-mt2+mmt-en-de")}
    assert ensemble == "mt2+mmt:en-de"
    for name, most, language in (("mt-en-de-en@drawn", 7, "en"), ("mt-en-de@apart", 2, "de")):
        rows = several.captions(f"synthetic-{name}")
        ids = [row["caption_id"] for row in rows]
        assert len(set(ids)) == len(ids)
        of_parent: dict[str, list[str]] = {}
        for row in rows:
            assert (row["language"], row["source"]) == (language, name.replace("-", ":", 1))
            of_parent.setdefault(row["parent"], []).append(row["text"])
        assert of_parent.keys() <= {row["caption_id"] for row in human}
        assert max(map(len, of_parent.values())) == most
        assert all(len(set(texts)) == len(texts) for texts in of_parent.values())
    assert several.job("synthetic-mt-en-de")  # the hop before is by beam search, for all paths the same


def test_captions_of_four_hops_keep_their_image_and_human_parent(several: Tiny) -> None:
    human = {row["caption_id"]: row["image_id"] for row in several.captions("corpus") if row["split"] == "train"}
    for hops, language in enumerate(("de", "en", "de", "en"), 1):
        path = "-".join(["en", "de", "en", "de", "en"][: hops + 1])
        rows = several.captions(f"synthetic-mmt-{path}")
        assert rows
        for row in rows:
            assert (row["language"], row["source"]) == (language, f"mmt:{path}")
            assert human[row["parent"]] == row["image_id"]


def test_the_report_shows_systems_searches_and_whether_they_look(several: Tiny, capsys) -> None:
    assert several.main("report", SYSTEMS, *SEARCHES) == 0
    folder = several.workspace.root / "tiny/report"
    text = (folder / "report.md").read_text()
    for words in (
        "| mt2+mmt-en-de |", "| mt+channel-de-en |", "chrF", "TER", "Incongruent-image test",
        "| mmt-de-en | tokenised BLEU |", "METEOR is not computed", "| mt+channel-en-de − mt |", "| zeros |", "dist-1",
        "pair BLEU", "| mt:en-de-en@drawn |",
    ):  # fmt: skip
        assert words in text
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {(row["system"], row["metric"]) for row in rows if row["split"] == "test"} >= {
        ("mt2+mmt", "chrf"), ("mt2", "ter"), ("mmt", "loglik")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mmt.systems=[mt,mt]"], "mmt.systems has 'mt'"),
        (["--mmt.systems=[mt,nmt]"], "mmt.systems has 'nmt'"),
        (["--mmt.systems=[mt,mt0]"], "mmt.systems has 'mt0'"),
        (["--mmt.systems=[mt,mt1]"], "mmt.systems has 'mt1'"),
        (["--mmt.systems=[mt,mmt,mt+mmt,mt+mmt]"], "mmt.systems has 'mt+mmt'"),
        (["--augment.paths=[mt:en-de@]"], "augment.searches and augment.filters have none"),
        (['--augment.searches={"a b":{"captions":1}}'], "augment.searches has 'a b'"),
        (['--augment.searches={"wide":{"captions":9}}'], "augment.searches.wide: captions is 9"),
        (['--augment.searches={"wide":{"groups":4}}'], "expected equal groups"),
        (['--augment.searches={"cold":{"temperature":0.5}}'], "temperature is nothing to method beam"),
        (['--augment.searches={"cold":{"method":"sample","groups":5}}'], "groups is nothing to method sample"),
        (['--augment.searches={"cold":{"method":"sample","top_p":2}}'], "top_p 2"),
        (["--mmt.systems=[mt,mt+mmt,mmt]"], "'mmt' is not once before it"),
        (["--mmt.systems=[mt,mt+mt]"], "'mt' is not once before it"),
        (["--mmt.systems=[mt,channel]"], "mmt.systems has 'channel'; a channel stands last, once, behind a translator"),
        (["--mmt.systems=[mt,mt+channel+channel]"], "a channel stands last, once, behind a translator"),
        (["--mmt.systems=[mt,channel+mt]"], "a channel stands last, once, behind a translator"),
        (["--mmt.systems=[mt,mmt2+channel]"], "'mmt2' is not once before it"),
        (["--mmt.systems=[mmt,mmt+channel]"], "but nothing translates de-en; expected it in mmt.directions and mt in"),
        (["--mmt.systems=[mt,mt+channel]", "--mmt.directions=[en-de]"], "nothing translates de-en"),
        (["--mmt.channel.weight=-1"], "mmt.channel.weight is -1.0"),
        (["--mmt.channel.weight=.inf"], "mmt.channel.weight is inf"),
        (["--mmt.channel.beam_size=0"], "mmt.channel.beam_size is 0"),
        (["--mmt.systems=[mt,mmt,mt+channel]", SEARCHES[0], "--augment.paths=[mt+channel:en-de@drawn]"], "drawn draws"),
        (["--mmt.systems=[mt]"], "augment.paths has 'mmt:en-de'"),
        (["--augment.paths=[mt:en-de@wide]"], "augment.searches and augment.filters have none"),
        (["--mmt.finetune.average=1.0"], "mmt.finetune.average is 1.0"),
        (["--mmt.pretrain.r_drop=-1"], "mmt.pretrain.r_drop is -1.0; expected 0"),
        (['--augment.searches={"wide":{"beam":9}}'], "beam"),
    ],
)
def test_systems_and_searches_that_do_not_exist_are_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("scenes", arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_averaged_weights_are_validated_and_kept(fresh: Tiny, monkeypatch) -> None:
    found = {}

    def load(module, checkpoint):
        found[len(found)] = torch.load(checkpoint, weights_only=True)
        load_best(module, checkpoint)

    validated, validate = [], Translation.validation_step

    def watch(module: Translation, *batch) -> None:
        validated.append({name: weights.clone() for name, weights in module.translator.state_dict().items()})
        validate(module, *batch)

    monkeypatch.setattr("pipeline.translation.mmt.load_best", load)
    monkeypatch.setattr(Translation, "validation_step", watch)
    arguments = ["--mmt.directions=[en-de]", "--mmt.systems=[mt]", "--augment.paths=[]", "--vse.only=[human]"]
    assert fresh.main("prepare", *arguments) == fresh.main("mmt", *arguments) == 0
    plain, averaged = found[0], found[1]  # NMT's checkpoint and MT's, in whose phase the recipe averages
    assert "current_model_state" not in plain
    kept = load_file(fresh.job("mt-en-de") / "weights.safetensors")
    assert all(torch.equal(kept[name], averaged["state_dict"][f"translator.{name}"]) for name in kept)
    assert any(not torch.equal(kept[name], averaged["current_model_state"][f"translator.{name}"]) for name in kept)
    assert any(all(torch.equal(kept[name], one[name]) for name in kept) for one in validated)


def test_a_training_that_diverges_is_one_line_and_keeps_no_checkpoint(fresh: Tiny, capsys, monkeypatch) -> None:
    monkeypatch.setattr(typed, "_check_number", lambda *_: None)  # such a rate is refused
    arguments = ["--mmt.directions=[en-de]", "--mmt.systems=[mt]", "--augment.paths=[]", "--vse.only=[human]"]
    assert fresh.main("prepare", *arguments) == 0
    capsys.readouterr()
    assert fresh.main("mmt", *arguments, "--mmt.pretrain.learning_rate=1e30", "-v") == 1
    line = " ".join("".join(capsys.readouterr()).split("starts")[-1].split())
    assert line.startswith("error: training diverged: validation loss is nan at step")
    assert "lower learning_rate" in line
    assert not list(fresh.workspace.root.glob("jobs/nmt-en-de/*/checkpoints/*"))


# Pictures without regions


@pytest.fixture
def official(tmp_path: Path, monkeypatch) -> Tiny:
    write_data(tmp_path)
    made = Tiny(tmp_path)
    made.yaml.write_text("""
base: multi30k-official
trainer: {accelerator: cpu, threads: 1, progress: false, precision: 32-true}
mmt:
  directions: [en-de, en-fr]
  vocabulary: 150
  embedding_dim: 16
  hidden_dim: 16
  batch_tokens: 60
  pretrain: {steps: 2, eval_every: 2}
  finetune: {steps: 4, eval_every: 2}
  beam_size: 2
report: {record: false}
""")
    monkeypatch.setattr("pipeline.training.trainer.LOGS", tmp_path / "logs")
    made.root = f"--corpus.root={tmp_path}"  # type: ignore[attr-defined]
    return made


@pytest.mark.slow
def test_pairs_of_pictures_without_regions_are_captions_with_zeros_for_regions(official: Tiny) -> None:
    for stage in ("prepare", "mmt", "report"):
        assert official.main(stage, official.root) == 0  # type: ignore[attr-defined]
    corpus = official.job("corpus")
    pictured = {row["image_id"] for row in read_captions(corpus / "captions.parquet")}
    assert pictured == {"t1.jpg", "t2.jpg", "t3.jpg", "t4.jpg", "t5.jpg", "v1.jpg", "v2.jpg", "e1.jpg", "e2.jpg"}
    images = {row["image_id"] for row in read_pairs(corpus / "pairs.parquet") if row["split"] == "test"}
    assert images == {"e1.jpg", "e2.jpg", "e3.jpg"}  # the last has no regions, and is tested all the same
    for system in ("mt", "mmt"):
        figures = official.metrics(f"{system}-en-de")
        assert (figures["train_pairs"], figures["test_sentences"]) == (6, 3)
    assert official.metrics("nmt-en-de")["train_pairs"] == 37 + 5 * 6  # Tatoeba's once, the captions' five times
    assert official.metrics("nmt-en-fr")["train_pairs"] == 5 * 6  # no other French: all there is
    seen = pq.read_table(official.job("incongruent-mmt-en-de") / "incongruent.parquet").to_pylist()
    assert {row["own_image"] for row in seen} == {"e1.jpg", "e2.jpg"}


@pytest.mark.slow
def test_sentences_that_nobody_translated_teach_by_back_translation(official: Tiny, capsys) -> None:
    other = official.folder / "other.yaml"
    other.write_text(official.yaml.read_text().replace("[en-de, en-fr]", "[de-en]").replace("150", "140"))
    plain = [official.root, "--mmt.systems=[mt]", "--mmt.repeat={task1: 5, task2: 2}"]  # type: ignore[attr-defined]
    arguments = [*plain, "--corpus.monolingual=[de]", "--mmt.directions=[en-de]"]
    wanted = f"--mmt.back_translate={{en-de: {other}}}"
    assert official.main("mmt", *arguments, wanted) == 1
    line = "".join(capsys.readouterr()).splitlines()[-1]
    overrides = "'--mmt.directions=[de-en]' '--mmt.systems=[mt]' '--augment.paths=[]'"
    assert f"`bildwort mmt {other} {overrides} {official.root}` first" in line
    assert not list((official.workspace.root / "jobs").glob("*en-de"))  # said before the first training
    for stage in ("prepare", "mmt"):
        assert official.main(stage, f"--recipe={other}", *plain[:2]) == 0
    before = official.job("mt-de-en")
    assert official.main("mmt", *arguments, wanted) == 0
    assert official.job("mt-de-en") == before
    assert official.metrics("back-en-de") == {"sentences": 30, "empty": 0}  # six training images, five each
    rows = pq.read_table(official.job("back-en-de") / "back.parquet").to_pylist()
    assert {row["pair_id"].split("#")[1] for row in rows} == {f"t{k}.jpg" for k in range(1, 7)}
    assert all(row["text"] and row["tokens"] for row in rows)
    assert official.metrics("nmt-en-de")["train_pairs"] == 37 + 5 * 6 + 2 * 30
    found = {
        precision: Graph(
            official.recipe(*arguments, wanted, f"--mmt.trainer.precision={precision}"), official.workspace
        )
        .translators["back-en-de"]
        .key
        for precision in ("32-true", "bf16-mixed")
    }
    assert official.job("back-en-de").name == found["32-true"] != found["bf16-mixed"]
    assert official.metrics("mt-en-de")["train_pairs"] == 6
    several = [*arguments, wanted, "--mmt.systems=[mt,mt+channel]"]
    assert official.main("mmt", *several) == 0
    job = Graph(official.recipe(*several), official.workspace).translators["mt+channel-en-de"]
    assert official.workspace.folder(job.inputs["channel"]) == before  # of who lends the back-translation
    assert official.metrics("mt+channel-en-de")["test_sentences"] == 3
    found, bpe = load_translator(official.job("mt+channel-en-de"))
    its_bpe = load_translator(before)[1]
    heard = found.features["channel"]
    for recode, language in ((heard.recode_source, "en"), (heard.recode_target, "de")):
        ids = [one.encode_all(["a man and a dog"], language) for one in (bpe, its_bpe)]
        assert recode(ids[0]) == ids[1] != ids[0]
        assert recode.args == (language,)  # Moses cuts by language
    assert official.main("report", *arguments, wanted) == 0
    scores, costs = (official.workspace.root / "tiny" / "report" / "report.md").read_text().split("Cost")
    assert "back-en-de" in costs
    assert "back-en-de" not in scores
    assert "mt-en-de" in scores
    (official.job("back-en-de") / "back.parquet").write_bytes(b"cut short")
    relisted(official.job("back-en-de"))
    for more, message in (
        ([f"--mmt.back_translate={{de-en: {other}}}"], "has 'de-en'; expected one of mmt.directions (en-de)"),
        ([wanted.replace("en-de", "en-fr"), "--mmt.directions=[en-fr]"], "which trains no mt-fr-en"),
        (["--mmt.back_translate={en-de: tiny}"], "mmt.back_translate borrows from itself"),
        ([wanted, "--corpus.monolingual=[]"], "no training sentence in 'de' lacks its 'en'"),
        ([wanted, "--mmt.pretrain.warmup=7"], "back.parquet: not readable"),
        ([wanted, "--corpus.splits=flickr8k_overlap/splits"], "the borrowed translators learned from sentences about"),
    ):
        assert official.main("mmt", *arguments, *more) == 1
        assert message in "".join(capsys.readouterr())


@pytest.mark.slow
def test_two_passes_that_must_agree_are_another_training(fresh: Tiny) -> None:
    """R-Drop reaches training: another loss from the same start on, and other weights."""
    weights = []
    for alpha in ("0", "5"):
        more = [f"--mmt.finetune.r_drop={alpha}", "--mmt.dropout=0.3", "--mmt.systems=[mt]", "--mmt.directions=[en-de]",
                "--augment.paths=[]"]  # fmt: skip
        assert fresh.main("mmt", *more) == 0
        job = Graph(fresh.recipe(*more), fresh.workspace).translators["mt-en-de"]
        weights.append(load_file(fresh.workspace.folder(job) / "weights.safetensors"))
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_direction_has_the_vocabulary_of_its_two_languages(tmp_path: Path) -> None:
    """So that what other directions a recipe names does not change it, and two ways share one."""

    def jobs(directions: str) -> dict[str, str]:
        recipe = load_recipe("scenes", [f"--mmt.directions={directions}", "--augment.paths=[]"])
        return {name: job.key for name, job in Graph(recipe, Workspace(tmp_path)).translators.items()}

    alone, both, many = jobs("[en-de]"), jobs("[en-de,de-en]"), jobs("[en-fr,en-de]")
    assert alone.items() <= both.items() & many.items()
    assert "bpe-en-fr" in many
