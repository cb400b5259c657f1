"""What a new stage is made of: here one that evaluates trained retrieval models by their captions alone."""

from pathlib import Path

import numpy as np
import torch

from data.captions.table import read_captions
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.job import Job
from pipeline.graph import Graph
from pipeline.reporting.records import finished_records
from pipeline.reporting.results import Figures, Subject
from pipeline.retrieval.rows import Row
from pipeline.training.model_files import load_model
from tests.pipeline.tiny import Tiny, ran


def nearest_captions(row: Row, corpus: Job) -> Job:
    """How often the German caption nearest to an English one is of the same image, by the model of a row."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict:
        table = read_captions(inputs["corpus"] / "captions.parquet").to_list()
        model, text = load_model(inputs["model"])
        vectors, images = {}, {}
        for language in ("de", "en"):
            rows = [one for one in table if one["split"] == "test" and one["language"] == language]
            ids = [torch.tensor(text.encode(one["text"], language)) for one in rows]
            places = torch.full((len(rows),), model.languages.index(language))
            with torch.no_grad():
                tokens = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
                encoded, _ = model.encode_captions(tokens, torch.tensor([len(one) for one in ids]), places)
            vectors[language], images[language] = encoded[:, 0], np.array([one["image_id"] for one in rows])
        nearest = (vectors["en"] @ vectors["de"].T).argmax(1).numpy()
        np.save(folder / "nearest.npy", nearest)
        same = images["de"][nearest] == images["en"]
        return {"nearest": {"en": {"same_image": 100 * same.mean(), "count": float(len(same))}}}

    (trained,) = row.trained
    name = trained.name.replace("vse-", "nearest-")
    return Job(name, "nearest", 1, {}, {"corpus": corpus, "model": trained}, run)


def test_a_stage_that_evaluates_trained_models_otherwise(tiny: Tiny, tmp_path: Path, capsys) -> None:
    recipe, workspace = tiny.recipe(), tiny.without(tmp_path, "nearest-*").workspace
    corpus = corpus_job(recipe, workspace)
    jobs = {row.name: nearest_captions(row, corpus) for row in Graph(recipe, workspace).rows}
    for job in jobs.values():
        assert [one.name for one in job.inputs.values()] == ["corpus", job.name.replace("nearest", "vse")]
        ran(workspace, job)
    capsys.readouterr()
    for job in jobs.values():
        ran(workspace, job)
    assert capsys.readouterr().out.count("is up to date") == 2
    figures = Figures(Graph(recipe, workspace), [])
    for name, job in jobs.items():
        nearest = np.load(workspace.folder(job) / "nearest.npy")
        scores = figures.scores(job)
        assert scores["en", "nearest_count"] == len(nearest) > 3
        assert 0 <= scores["en", "nearest_same_image"] <= 100
        value = scores["en", "nearest_same_image"]
        figures.add(Subject("test", "san", name, "en", len(nearest)), "same_image", value)
    assert [result.source for result in figures.results] == ["human", "mmt-fb"]
    (run, *_) = finished_records(workspace, list(jobs.values()), recipe, {})
    assert (run.job, run.language, run.metric) == ("nearest-san-human-1", "en", "nearest_same_image")
