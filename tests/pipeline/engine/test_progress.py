"""What the terminal shows of a run: a line a job with the time left, a summary, and the rest behind --verbose."""

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.commands.summary import retrieval_table, translation_table
from pipeline.engine.job import Job, topological_order
from pipeline.engine.progress import Costs, Progress
from pipeline.engine.runner import Runner
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.reporting.records import Result
from pipeline.retrieval.rows import Row
from pipeline.stages import all_jobs
from pipeline.training import trainer as training
from tests.pipeline.tiny import Tiny, ran

pytestmark = pytest.mark.whole


def job(name: str, stage: str = "mmt", corpus: str = "a", **settings) -> Job:
    made = Job("corpus", "prepare", 1, {"name": corpus}, {}, lambda *_: {})
    return Job(
        name, stage, 1, settings, {"corpus": made}, lambda *_: {"n": 3}, headline=lambda found: f"n {found['n']}"
    )


def manifest(of: Job, seconds: float, **changed) -> dict:
    return {
        "stage": of.stage, "job": of.name, "settings": of.settings, "wall_s": seconds, "resumed": False,
        "inputs": {"corpus": {"key": of.inputs["corpus"].key}}, **changed,
    }  # fmt: skip


def test_a_line_tells_name_figure_time_and_what_is_left() -> None:
    progress, jobs = Progress(), [job("mt-en-de", direction="en-de"), job("mt-de-en", direction="de-en")]
    progress.expect(jobs)
    line = progress.finish(jobs[0], manifest(jobs[0], 17.4), "BLEU 100.0")
    assert re.fullmatch(r"mt-en-de +BLEU 100\.0 +17 s · 1 of 2 jobs · about 17 s left", line)
    assert progress.finish(jobs[1], manifest(jobs[1], 5, resumed=True), "").endswith("5 s (continued) · 2 of 2 jobs")


def test_jobs_of_one_name_are_told_apart_by_their_keys() -> None:
    jobs = [job("vse-gxn-none-1", "vse", dim=8), job("vse-gxn-none-1", "vse", dim=9), job("mt-en-de")]
    progress = Progress()
    progress.line_up(jobs)
    progress.expect(jobs[:2])
    first = progress.finish(jobs[0], manifest(jobs[0], 2), "a")
    lines = [first, progress.skip(jobs[1], "b"), progress.skip(jobs[2], "c")]
    names = [f"vse-gxn-none-1 {jobs[0].key[:6]}", f"vse-gxn-none-1 {jobs[1].key[:6]}", "mt-en-de".ljust(21)]
    for line, name in zip(lines, names, strict=True):
        assert line.startswith(f"{name}  ")


def test_time_left_is_that_of_like_jobs_in_this_run_and_on_disk() -> None:
    jobs = [job(f"vse-san-none-{seed}", "vse", seed=seed, epochs=3) for seed in range(4)]
    other = job("vse-san-none-9", "vse", seed=9, epochs=30)
    far = job("vse-san-none-8", "vse", corpus="b", seed=8, epochs=3)
    progress = Progress()
    progress.expect(jobs[1:], [manifest(jobs[0], 20), manifest(other, 900), manifest(far, 700)])
    assert progress.left() == ["about 60 s left"]
    progress.finish(jobs[1], manifest(jobs[1], 40), "")
    assert progress.left() == ["about 60 s left"]


def test_time_of_another_corpus_is_scaled_by_captions_and_that_of_other_settings_by_steps() -> None:
    known, same, longer = (job("vse-san-none-1", "vse", model="san", epochs=2, dim=n) for n in (1, 1, 2))
    far = job("vse-san-none-1", "vse", corpus="b", model="san", epochs=4)
    unknown = job("vse-san-none-1", "vse", corpus="c", model="san", epochs=4)
    corpora = [
        {"stage": "prepare", "key": of.inputs["corpus"].key, "metrics": {"captions": count}}
        for of, count in ((known, 100), (far, 1000))
    ]
    costs = Costs([manifest(known, 50), *corpora])
    assert (costs.of(same).seconds, costs.of(same).alike) == (50, True)
    assert (costs.of(longer).seconds, costs.of(longer).alike) == (50, False)
    assert costs.of(far).seconds == pytest.approx(50 * 10 * 2)
    assert costs.of(unknown).seconds is None
    short, long = (job("nmt-en-de", phase={"steps": steps}, batch_tokens=8) for steps in (100, 300))
    assert Costs([manifest(short, 20)]).of(long).seconds == pytest.approx(60)


def test_the_work_of_a_job_is_that_of_the_longest_chain_that_needs_it() -> None:
    translator = job("mt-en-de", phase={"steps": 10}, batch_tokens=100)
    rows = [job(f"vse-san-{row}-1", "vse", row=row, model="san", epochs=3, steps=4) for row in ("none", "mt-f")]
    reranker = job("vse-scan-mt-f-1", "vse", model="scan", epochs=900, steps=4)
    reranker = replace(reranker, inputs={**reranker.inputs, "captions": translator})
    analysis = replace(
        job("retrieved-san-none-1", "vse"), inputs={"model": rows[0], "corpus": rows[0].inputs["corpus"]}
    )
    jobs = [translator, *rows, analysis, reranker]
    progress = Progress()
    assert [progress.work_from(jobs)[of.key] for of in jobs] == [4600.0, 12.0, 12.0, 0.0, 3600.0]
    known = [manifest(translator, 5), manifest(rows[0], 50), manifest(reranker, 20)]
    progress.expect(jobs, known)
    assert progress.work_from(jobs)[translator.key] == 4600.0, "the time of the analysis is not known"
    progress = Progress()
    progress.expect(jobs, [*known, manifest(analysis, 1)])
    assert [progress.work_from(jobs)[of.key] for of in jobs] == [25.0, 51.0, 50.0, 1.0, 20.0]


def test_a_continued_job_tells_nothing_of_the_time_of_others() -> None:
    first, second = job("mt-en-de"), job("mt2-en-de")
    progress = Progress()
    progress.expect([first, second], [manifest(first, 50, resumed=True), {"resumed": False, "stage": []}])
    assert progress.left() == ["time left unknown"]
    progress.finish(first, manifest(first, 2, resumed=True), "")
    assert progress.left() == ["time left unknown"]


def test_where_a_like_job_was_continued_others_tell_the_time() -> None:
    like, other, wanted = (job("vse-san-none-1", "vse", model="san", epochs=2, dim=n) for n in (1, 2, 1))
    corpus = {"stage": "prepare", "key": like.inputs["corpus"].key, "metrics": {"captions": 100}}
    found = Costs([manifest(like, 9, resumed=True, peak_memory_mb=7.0), manifest(other, 50), corpus]).of(wanted)
    assert (found.seconds, found.memory_mb, found.alike) == (50, 7.0, False)


def test_what_is_unknown_is_said() -> None:
    jobs = [job("nmt-en-de"), job("mmt-en-de"), job("vse-san-none-1", "vse")]
    progress = Progress()
    progress.expect(jobs)
    assert progress.left() == ["time left unknown"]
    progress.finish(jobs[0], manifest(jobs[0], 30), "")
    assert progress.left() == ["more than 30 s left"]  # of its stage there is one, of vse none
    progress.expect([job("vse-san-mt-f-1", "vse")])
    assert progress.left() == ["time left unknown"]  # of two of three


def test_a_training_is_guessed_from_trainings_of_its_stage_by_what_it_reads() -> None:
    text, long, short = job("text"), job("nmt-en-de", phase={"steps": 900}), job("mt-en-de", phase={"steps": 90})
    progress = Progress()
    progress.expect([text, long, short])
    progress.finish(text, manifest(text, 24), "")
    assert progress.left() == ["time left unknown"]
    progress.finish(long, manifest(long, 600), "")
    assert progress.left() == ["about 60 s left"]


def test_everything_that_a_job_needs_comes_once_and_before_it() -> None:
    text = job("text")
    start = Job("nmt", "mmt", 1, {}, {"corpus": text.inputs["corpus"], "text": text}, lambda *_: {})
    last = Job("vse", "vse", 1, {}, {"start": start, "text": text}, lambda *_: {})
    assert [one.name for one in topological_order([last, start])] == ["corpus", "text", "nmt", "vse"]


def test_a_workspace_counts_what_is_not_done(workspace: Workspace, capsys) -> None:
    work = [job(f"mt{number}-en-de", seed=number) for number in range(3)]
    for one in {one.inputs["corpus"].key: one.inputs["corpus"] for one in work}.values():
        ran(workspace, one)
    ran(workspace, work[0])
    capsys.readouterr()
    for force, counts in ((False, ["1 of 2", "2 of 2"]), (True, ["1 of 3", "2 of 3", "3 of 3"])):
        again = Runner(Workspace(workspace.root))
        again.expect(work, force)
        for one in work:
            again.run([one], force)
        lines = capsys.readouterr().out.splitlines()
        assert re.findall(r"\d of \d", " ".join(lines)) == counts
        assert len([line for line in lines if "n 3" in line]) == len(lines) == 3


@pytest.fixture(scope="module")
def run(tiny: Tiny, tmp_path_factory) -> tuple[Tiny, list[str]]:
    """`all` where nothing but synthetic captions and retrieval models is left to do, and the lines that it prints."""
    made = tiny.without(tmp_path_factory.mktemp("all"), "[sv]*-*")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert made.main("all", "--trainer.progress=true") == 0
    return made, said.getvalue().splitlines()


def test_each_job_of_a_run_has_one_line_and_those_of_all_stages_are_known_at_its_start(run) -> None:
    made, lines = run
    names = [one.name for one in all_jobs(Graph(made.recipe(), made.workspace))]
    assert len(names) == len(set(names)) == 15
    told = [line for line in lines if line.split()[0] in names]
    assert [line.split()[0] for line in told] == names
    assert all(line.endswith("is up to date") for line in told[:10])
    assert [re.findall(r"(\d) of 5 jobs", line) for line in told[10:]] == [["1"], ["2"], ["3"], ["4"], ["5"]]
    assert all(line.endswith("left") or "unknown" in line for line in told[10:14])
    assert told[14].endswith("5 of 5 jobs")
    others = lines[: lines.index(told[14])]
    assert len([line for line in others if line not in told]) == 2  # the data report's


def test_a_run_ends_with_a_summary_in_a_few_lines(run) -> None:
    _, lines = run
    summary = lines[next(number for number, line in enumerate(lines) if "5 of 5" in line) + 1 :]
    assert [re.split(r" {2,}", line)[0] for line in summary[:6]] == [
        "translation, test", "mt", "mmt", "mean recall, test; * without captions of that language", "human", "mmt-fb",
    ]  # fmt: skip
    *said, report, following, cost = summary[6:]
    assert " ".join(said).startswith("English: human (san) is the best of 2 rows on validation; ")
    assert "Read with care: " in " ".join(said)
    assert str(Path("tiny") / "report" / "report.html") in report
    recipe = "tiny.yaml --trainer.progress=true"
    assert report.endswith(f"{recipe}`)")
    assert following.startswith("next: `bildwort index ")
    index, app = following.split("`")[1].split(" && ")
    assert index.endswith(recipe)
    assert re.fullmatch(r"bildwort app .*artifacts/tiny/gallery", app)
    assert following.endswith(", `bildwort tensorboard` (training curves)")
    assert re.fullmatch(r"in all \d+ (s|min) \(\d+ (s|min) of CPU time\)", cost)


def test_called_by_make_it_names_targets_of_make(run, monkeypatch, capsys) -> None:
    """They install what a command needs."""
    made, _ = run
    monkeypatch.setenv("MAKELEVEL", "1")
    assert made.main("all", "--vse.trainer.progress=true") == 0
    report, following, _ = capsys.readouterr().out.splitlines()[-3:]
    recipe = f"RECIPE={made.yaml} ARGS=--vse.trainer.progress=true"
    assert report.endswith(f"(tables: report.md, or `make report {recipe}`)")
    page = f"`make index {recipe} && make app RECIPE={made.yaml}` (search page)"
    assert following == f"next: {page}, `make tensorboard` (training curves)"


def test_verbose_shows_all_tables_and_what_each_job_came_to(run, capsys) -> None:
    made, quiet = run
    assert made.main("all", "--verbose") == 0
    long = capsys.readouterr().out
    for title in ("Retrieval, san, en", "Incongruent-image test", "Lexical diversity", "R@1/5/10"):
        assert title in long
        assert title not in "\n".join(quiet)
    assert made.main("report") == 0
    assert "Lexical diversity" in capsys.readouterr().out


def result(system: str, source: str, language: str, metric: str, value: float, split: str = "test") -> Result:
    return Result("r", "label", split, system, source, language, "task", metric, value, None, None, 1, 9)


def test_the_summary_shows_translators_by_direction_and_rows_by_language() -> None:
    results = [
        result("nmt", "en-de", "de", "bleu", 1), result("mt", "en-de", "de", "bleu", 38.71),
        result("mt", "en-de", "de", "ambiguous", 50, "twins"), result("mt", "en-de", "de", "bleu", 37, "val"),
        result("mmt", "en-de", "de", "bleu", 39.5), result("mmt", "de-en", "en", "bleu", 40),
        result("nmt2", "en-de", "de", "bleu", 2), result("nmt_opus", "de-en", "en", "bleu", 41),
        result("mmt", "en-de, own regions", "de", "bleu", 99),
        result("san", "none", "en", "mean_recall", 51.7), result("scan", "none", "en", "mean_recall", 60),
        result("san", "none (not trained on de)", "de", "mean_recall", 2),
        result("san", "mt-f", "en", "mean_recall", 52),
    ]  # fmt: skip
    shown = translation_table(results)
    assert shown.heads[1:] == ["en-de BLEU", "en-de ambiguous words %", "de-en BLEU"]
    assert shown.rows == [["mt", "38.7", "50.0", "–"], ["mmt", "39.5", "–", "40.0"], ["nmt_opus", "–", "–", "41.0"]]
    job = Job("vse-san", "vse", 1, {}, {}, lambda folder, inputs: {})
    none, both = (
        Row(name, 1, job, (), "san", frozenset({"de", "en"}), frozenset(unseen))
        for name, unseen in (("none", {"de"}), ("mt-f", ()))
    )
    own = {("san", row.title(language)): row for row in (none, both) for language in ("de", "en")}
    shown = retrieval_table(results, own)
    assert shown.heads[1:] == ["en", "de"]
    assert shown.rows == [["none", "51.7", "2.0*"], ["mt-f", "52.0", "–"]]
    assert "*" in shown.heads[0]
    assert retrieval_table([], {}).rows == translation_table([]).rows == []


def test_bars_are_drawn_in_a_terminal_alone(monkeypatch) -> None:
    for terminal in (True, False):
        monkeypatch.setattr(training.sys.stdout, "isatty", lambda terminal=terminal: terminal)
        made = training.make_trainer(TrainerSettings(accelerator="cpu"))
        assert bool(made.progress_bar_callback) == terminal
    made = training.make_trainer(TrainerSettings(accelerator="cpu", progress=False))
    assert made.progress_bar_callback is None
