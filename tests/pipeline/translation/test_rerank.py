"""Stage rerank: n-best lists with features, tuned re-rankers as translators, and the comparison of features."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data.errors import DataError
from data.translators.nbest import read_nbest
from modules.metrics.translation import translation_scores
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.translation.evaluation import read_translations
from pipeline.translation.reranked import CHOICES, read_lists
from pipeline.translation.translator_files import load_translator
from tests.pipeline.tiny import RERANK, RERANK_SYSTEMS, RERANKED, Tiny

pytestmark = pytest.mark.whole


def test_lists_have_all_features_of_each_candidate(reranked: Tiny) -> None:
    folder = reranked.job("nbest-mt-en-de")
    rows = pq.read_table(folder / "test.parquet").to_pylist()
    lists = read_nbest(folder / "test.lists", len(rows))
    direct = read_translations(reranked.job("mt-en-de"), "test")
    for row, some, best in zip(rows, lists, direct, strict=True):
        assert (row["source"], row["reference"]) == (best["source"], best["reference"])
        assert 1 < len(some) <= 6
        assert list(some[0].features) == ["logp", "length", "channel", "image", "other-image", "source"]
        values = [one.features["logp"] for one in some]
        assert values == sorted(values, reverse=True)  # in the order of the search
        assert all(one.features["length"] == len(one.text.split()) for one in some if one.text.isalpha())
    values = np.array([list(one.features.values()) for some in lists for one in some])
    assert (np.abs(values[:, 3:]) <= 1 + 1e-5).all()
    assert not np.allclose(values[:, 3], values[:, 4])


def test_a_tuned_system_is_a_translator_like_the_others(reranked: Tiny, tmp_path: Path) -> None:
    for system in ("mt+short", "mt+picture"):
        folder = reranked.job(f"{system}-en-de")
        tuning = json.loads((folder / "tuning.json").read_text())
        best = tuning["weights"][int(np.argmax(tuning["val_bleu"]))]
        found, _ = load_translator(folder)
        assert list(found.weights.values()) == pytest.approx(best)
        assert (found.beam_size, found.length_penalty) == (6, 1.0)
        figures = reranked.metrics(f"{system}-en-de")
        assert {"val_bleu", "test_bleu", "test_chrf", "test_ter", "ambiguous"} <= figures.keys()
        lists, _ = read_lists(reranked.job("nbest-mt-en-de"), "test", "de")
        (chosen,) = lists.only(list(found.weights)).chosen(np.array([best]))
        rows = read_translations(folder, "test")
        assert [" ".join(row["hypothesis"].split()) for row in rows] == chosen
        assert figures["test_ter"] == pytest.approx(
            translation_scores(chosen, [row["reference"] for row in rows], chosen, chosen).ter
        )


@pytest.mark.parametrize("system", ["mt+channel", "mt+picture"])
def test_translate_and_augment_use_it(reranked: Tiny, tmp_path: Path, capsys, system: str) -> None:
    rows = read_translations(reranked.job(f"{system}-en-de"), "test")
    for name, lines in (("in", [row["source"] for row in rows]), ("images", [row["image_id"] for row in rows])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    arguments = [f"--with={system}:en-de", f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}", "--force"]
    assert reranked.main("translate", *RERANKED, *arguments) == (system == "mt+picture")  # it looks at pictures
    for alpha in (1.0, 0.0):  # whatever the search asks for, the weights belong to mmt.length_penalty
        penalty = f"--augment.length_penalty={alpha}"
        assert reranked.main("translate", *RERANKED, *arguments, penalty, f"--images={tmp_path / 'images'}") == 0
        assert (tmp_path / "out").read_text().splitlines() == [row["hypothesis"] for row in rows]
    assert reranked.main("augment", *RERANKED, f"--augment.paths=[{system}:en-de]") == 0
    captions = reranked.captions(f"synthetic-{system}-en-de")
    assert {row["source"] for row in captions} == {f"{system}:en-de"}


def test_a_recipe_can_borrow_one_of_several(reranked: Tiny, tmp_path: Path) -> None:
    lender, systems = tmp_path / "lender.yaml", RERANK_SYSTEMS.partition("=")[2]
    rerank = {key.removeprefix("--mmt.rerank."): value for key, _, value in (one.partition("=") for one in RERANK[:5])}
    lender.write_text(
        f"base: {reranked.yaml}\nvse: {{rows: {{both: [en/human, de/human]}}, only: [both]}}\n"
        f"mmt: {{systems: {systems}, rerank: {{{', '.join(f'{key}: {value}' for key, value in rerank.items())}}}}}\n"
    )
    paths = [f"--augment.translators={lender}", "--augment.paths=[mt+channel:en-de]"]
    assert reranked.main("augment", "--mmt.systems=[mt,mmt,mt+channel]", *paths) == 0
    assert {row["source"] for row in reranked.captions("synthetic-mt+channel-en-de")} == {"mt+channel:en-de"}


def test_features_are_compared_and_reported(reranked: Tiny, capsys) -> None:
    about = json.loads((reranked.job("ablation-mt-en-de") / "ablation.json").read_text())
    assert list(about) == list(CHOICES)
    assert all(len(one["weights"]) == 2 for one in about.values())
    published = "--mmt.rerank.published={en-de: {NMT: {BLEU: 30.9}, NMT + VSE: {BLEU: 35.2, TER: 44.8}}}"
    assert reranked.main("rerank", *RERANKED, published) == 0
    printed = capsys.readouterr().out
    for words in ("log p", *CHOICES, "oracle", "own image − another", "6-best lists of mt-en-de",
                  "NMT + VSE, published", "35.2", "+4.3", "44.8"):  # fmt: skip
        assert words in printed
    assert reranked.main("report", *RERANKED) == 0
    text = (reranked.workspace.root / "tiny" / "report" / "report.md").read_text()
    for words in ("| mt+picture-en-de |", "| mt+picture-en-de − mt |", "| + another image |"):
        assert words in text
    rows = [json.loads(line) for line in (reranked.workspace.root / "tiny/report/results.jsonl").open()]
    gains = [row for row in rows if row["metric"] == "bleu-gain" and row["source"] == "en-de, + length"]
    assert [row["seeds"] for row in gains] == [2]
    assert gains[0]["low"] <= gains[0]["value"] <= gains[0]["high"]


def test_a_translators_lists_do_not_depend_on_the_systems_that_use_them(reranked: Tiny) -> None:
    jobs = Graph(reranked.recipe(*RERANKED), reranked.workspace).translators
    assert jobs["mt+short-en-de"].inputs["lists"].key == jobs["mt+picture-en-de"].inputs["lists"].key
    assert "retrieval" not in jobs["mt+short-en-de"].inputs
    assert jobs["mt+picture-en-de"].inputs["retrieval"].name == "vse-san-both-1"
    other = [*RERANKED[:-1], "--mmt.directions=[en-de]", "--mmt.systems=[mt,mt+only]", "--augment.paths=[]"]
    without = reranked.recipe(*other, "--mmt.rerank.systems.only=[logp,image]")
    assert "channel" not in Graph(without, reranked.workspace).translators["mt+only-en-de"].inputs["lists"].inputs


def test_damaged_artifacts_are_one_line(reranked: Tiny, tmp_path: Path) -> None:
    lists, system = (tmp_path / name for name in ("lists", "system"))
    for folder, name in ((lists, "nbest-mt-en-de"), (system, "mt+picture-en-de")):
        shutil.copytree(reranked.job(name), folder)
    (lists / "test.lists").write_text("0 ||| a ||| logp= nan\n")
    with pytest.raises(DataError, match=r"test.lists:1: feature logp is 'nan'"):
        read_lists(lists, "test", "de")
    (lists / "test.parquet").write_bytes(b"cut short")
    with pytest.raises(RecipeError, match=r"test.parquet: not readable .* run"):
        read_lists(lists, "test", "de")
    network = json.loads((system / "network.json").read_text())
    for wrong, words in (
        ({"direction": "en-de", "beam_size": 6}, "its re-ranking is not of this code"),
        ({"direction": "en-de", "beam_size": 6, "weights": {"taste": 1}}, "no feature 'taste' of re-ranking"),
        ({"direction": "en-fr", "beam_size": 6, "weights": {"image": 1}}, "scores translations in 'fr'"),
    ):
        (system / "network.json").write_text(json.dumps(network | {"reranking": wrong}))
        with pytest.raises(RecipeError, match=words):
            load_translator(system)


def test_a_model_without_the_language_has_no_features(reranked: Tiny) -> None:
    recipe = reranked.recipe(*RERANKED, "--vse.rows={both: [en/human]}")
    with pytest.raises(RecipeError, match=r"picture has 'image', but for en-de there is no retrieval"):
        Graph(recipe, reranked.workspace).translators


def test_what_is_missing_is_said_before_anything_runs(fresh: Tiny, capsys) -> None:
    assert fresh.main("prepare") == 0
    assert fresh.main("rerank", *RERANKED) == 1
    assert "text: not done yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mmt.systems=[mt,mmt,mt+fine]"], "mmt.systems has 'mt+fine'; expected mt, mmt, mt2"),
        (["--mmt.rerank.systems={channel: [logp]}"], "mmt.rerank.systems has 'channel'; expected letters, and not"),
        (["--mmt.rerank.systems={a-b: [logp]}"], "mmt.rerank.systems has 'a-b'"),
        (["--mmt.rerank.systems={a: []}"], "mmt.rerank.systems.a has the features none"),
        (["--mmt.rerank.systems={a: [logp, logp]}"], "logp, logp; expected one or more features, each once"),
        (["--mmt.rerank.systems={a: [logp, other-image]}"], "mmt"),
        (["--mmt.rerank.systems={a: [image]}"], "set mmt.rerank.retrieval.row to a row of vse.rows"),
        (["--mmt.rerank.retrieval={row: nobody}"], "mmt.rerank.retrieval.row is 'nobody'; expected one of vse.rows"),
        (["--mmt.rerank.retrieval={row: none, modle: san}"], "did you mean mmt.rerank.retrieval.model?"),
        (["--mmt.rerank.list_size=1"], "mmt.rerank.list_size is 1; expected 2 or more"),
        (["--mmt.rerank.passes=0"], "mmt.rerank.passes is 0"),
        (["--mmt.rerank.seeds=[1,1]"], "mmt.rerank.seeds is 1, 1; expected one or more, each once"),
        (["--mmt.rerank.published={en-fr: {a: {BLEU: 1}}}"], "mmt.rerank.published has 'en-fr'; expected one of"),
        (["--mmt.rerank.published={en-de: {a: {METEOR: 1}}}"], "published.en-de.a has METEOR; expected BLEU, chrF"),
        (["--mmt.rerank.seeds=[]"], "mmt.rerank.seeds is empty"),
        (["--mmt.rerank.systems={a: [channel]}", "--mmt.systems=[mmt,mmt+a]", "--augment.paths=[]"], "nothing transl"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("scenes", arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
