"""The graph of a recipe's jobs.

Translators may be re-ranked by a retrieval model, and retrieval models are trained on captions by translators: neither
room knows the other, so the graph gives each what it needs of the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

from modules.retrieval_models import model_class
from pipeline.analyses.registry import analyses_of
from pipeline.corpus.prepare import corpus_job, pictures_digest
from pipeline.engine.console import command
from pipeline.engine.job import Job, topological_order
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.loading import lender, translator_recipe
from pipeline.recipes.overlays import ALONE, beside_settings, captioner_network, rerank_settings
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CAPTION, CHANNEL, members_of, parse_path
from pipeline.retrieval.fusion import in_folds
from pipeline.retrieval.reranking import can_rerank, reranked_row
from pipeline.retrieval.rows import Row, Trained, languages_of
from pipeline.retrieval.training import Training
from pipeline.retrieval.vse import as_trained, captions_job, evaluation_of
from pipeline.retrieval.words import require_read
from pipeline.translation.augment import reads_pictures, synthesis_job
from pipeline.translation.incongruent_images import incongruent_job
from pipeline.translation.mmt import translator_jobs
from pipeline.translation.pretrained import captioner_job
from pipeline.translation.reranked import ablation_job, lists_job
from pipeline.vectors.filtering import filter_job


class Graph:
    """The jobs of a recipe, each made when it is first asked for."""

    def __init__(self, recipe: Recipe, workspace: Workspace) -> None:
        self.recipe, self.workspace = recipe, workspace

    @cached_property
    def corpus(self) -> Job:
        """What prepares its data."""
        return corpus_job(self.recipe, self.workspace)

    @cached_property
    def pictures(self) -> str | None:
        """A digest of its pictures, for jobs that read them beside regions which the corpus brings."""
        return pictures_digest(self.recipe, self.workspace)

    @cached_property
    def of_translators(self) -> "Graph":
        """The graph of the recipe that trains its translators: this one, or another's."""
        recipe = translator_recipe(self.recipe)
        return self if recipe is self.recipe else Graph(recipe, self.workspace)

    @cached_property
    def translators(self) -> dict[str, Job]:
        """The translators that it uses, its own or those that it borrows, by `system-direction`; see `translator_jobs`.

        Raises:
            RecipeError: a system lacks a part.
        """
        if self.of_translators is not self:
            return self.of_translators.translators
        return translator_jobs(
            self.recipe,
            self.workspace,
            lambda: self.retrieval_model,
            lambda recipe: Graph(recipe, self.workspace).translators,
        )

    @cached_property
    def incongruent(self) -> dict[str, Job]:
        """The incongruent-image tests of its MMTs."""
        recipe, jobs = self.of_translators.recipe, self.translators
        return {name: incongruent_job(recipe, job) for name, job in jobs.items() if job.settings.get("system") == "mmt"}

    @cached_property
    def comparisons(self) -> dict[str, Job]:
        """Comparisons of features: of the translators of each re-ranked system, else of the first, in each direction.

        There are none where `mmt.rerank` names neither a system nor a retrieval model.
        """
        recipe, jobs = self.of_translators.recipe, {}
        mmt = recipe.mmt
        tuned = [name for name in mmt.systems if members_of(name)[1] not in (None, CHANNEL)]
        plain = [name for name in mmt.systems if members_of(name)[1] is None][:1] if mmt.rerank.retrieval else []
        for system in dict.fromkeys("+".join(members_of(name)[0]) for name in tuned or plain):
            for direction in mmt.directions_of(system):
                lists = lists_job(
                    recipe, system, direction, self.translators, lambda: self.of_translators.retrieval_model
                )
                job = ablation_job(recipe, lists)
                jobs[job.name] = job
        return jobs

    @cached_property
    def synthesis(self) -> dict[str, Job]:
        """Path → the job that writes its synthetic captions, of each path and each shorter path that it goes through.

        Those of stage `augment` translate; captions of pictures, `caption:de`, are written in stage `vse` by a
        retrieval model, and captions are filtered there by how they fit their images.

        Raises:
            RecipeError: a translator is missing.
        """
        augment, jobs = self.recipe.augment, dict[str, Job]()
        if augment.captions:
            return Graph(lender(self.recipe, augment.captions), self.workspace).synthesis
        for path in sorted(augment.paths, key=lambda path: path.count("-")):
            whole = path.partition("@")[0] if parse_path(path)[2] in augment.filters else path
            if parse_path(path)[0] != CAPTION:
                self._add_path(jobs, whole)
            elif whole not in jobs:
                jobs[whole] = self._written(whole)
            if whole != path:
                jobs[path] = self._filtered(path, jobs[whole])
        return jobs

    def _add_path(self, jobs: dict[str, Job], path: str) -> None:
        """Add the job that translates along a path, after those of shorter paths."""
        if path in jobs:
            return
        system, languages, _ = parse_path(path)
        before, wanted = None, f"{system}-{languages[-2]}-{languages[-1]}"
        if len(languages) > 2:
            shorter = f"{system}:{'-'.join(languages[:-1])}"
            self._add_path(jobs, shorter)
            before = jobs[shorter]
        if wanted not in self.translators:
            lending = self.recipe.augment.translators
            raise RecipeError(f"augment.paths has {path!r}, but {lending} trains no {wanted}")
        translator = self.translators[wanted]
        read = {"pictures": self.pictures} if reads_pictures(translator) else {}
        jobs[path] = synthesis_job(self.recipe, path, self.corpus, translator, before, read)

    def _written(self, path: str) -> Job:
        """The job that writes captions of pictures, `caption:de`, with a retrieval model or a vision-language model."""
        if (network := captioner_network(self.recipe.augment)) is not None:
            return captioner_job(self.recipe, self.workspace, self.corpus, network, path)
        return captions_job(self.recipe, self.corpus, self.captioner, path)

    def _filtered(self, path: str, captions: Job) -> Job:
        """The job that keeps the best captions of a path, with what it scores them by."""
        system, languages, name = parse_path(path)
        settings, back, model = self.recipe.augment.filters[str(name)], None, None
        if settings.by == "back-translation":
            if (wanted := f"{system}-{languages[-1]}-{languages[0]}") not in self.translators:
                lending = self.recipe.augment.translators
                raise RecipeError(f"augment.filters.{name} translates back, but {lending} trains no {wanted}")
            back = self.translators[wanted]
        elif settings.by == "image":
            model = self._beside_rows(settings.retrieval).trained[0]
        return filter_job(self.recipe, self.corpus, path, captions, back, model)

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of its table, seed by seed, whether they have been trained or not.

        Raises:
            RecipeError: a row can not be trained, or is tested in a language that it was not trained on.
        """
        recipe, settings, evaluation = self.recipe, self.recipe.vse, evaluation_of(self.recipe.vse)
        require_read(settings)
        rows, shared = [], dict[str, Any]()
        for seed, name in product(settings.seeds, settings.only or settings.rows):
            training = Training(
                recipe, self.workspace, self.corpus, self.synthesis, lambda: self.translators, lambda: self.pictures,
                name, seed,
            )  # fmt: skip
            languages, row = training.languages, evaluation(training)
            if evaluation in (as_trained, in_folds):
                (trained,) = row.trained
                own = replace(recipe, vse=training.settings)
                about = Trained(trained, self.corpus, own, languages, self.workspace, shared)
                row = replace(row, analyses=analyses_of(about))
            if row.unseen and settings.unseen == "error":
                first = min(row.unseen)
                raise RecipeError(
                    f"vse.rows.{name} is tested in {first!r}, but reads only {', '.join(sorted(languages))}; leave "
                    f"{first!r} out of vse.test, the row out of vse.only, or set vse.unseen=mark"
                )
            rows.append(row)
        return rows

    @cached_property
    def single_rows(self) -> list[Row]:
        """Rows of one model each, which can be exported."""
        return [row for row in self.with_vse(replace(self.recipe.vse, folds=1)).rows if row.trained == (row.job,)]

    @property
    def best_row(self) -> Row | None:
        """What is exported: the best on validation of those that know the most languages; None: none is done."""

        def merit(row: Row) -> tuple[int, float]:
            """How many languages it knows, and its validation."""
            languages = languages_of(self.recipe.vse, row.name)
            validated = self.workspace.manifest(row.job)["metrics"].get("val", {})
            scores = [scores["rsum"] for language, scores in validated.items() if language in languages]
            return len(languages), sum(scores) / max(1, len(scores))

        self.workspace.require_settled(row.job for row in self.single_rows)
        return max((row for row in self.single_rows if self.workspace.done(row.job)), key=merit, default=None)

    @cached_property
    def reranker(self) -> Row | None:
        """`vse.reranker`, trained with its own settings and tested on the first results of `vse.model`.

        None if there is none, its row is not among those trained, or `vse.model` is not one that it can rerank.
        """
        settings = self.recipe.vse
        if not can_rerank(settings):
            return None
        second = beside_settings(settings, settings.reranker)
        first = replace(settings.of_row(second.only[0]), **ALONE, only=second.only, seeds=second.seeds)
        (first_row,), (row,) = (self.with_vse(vse).rows for vse in (first, second))
        return reranked_row(row, first_row, self.corpus, first, second)

    @cached_property
    def all_rows(self) -> list[Row]:
        """All that stage vse trains and tests: the reranker's row, then those of the table."""
        return ([] if self.reranker is None else [self.reranker]) + self.rows

    @cached_property
    def tables(self) -> dict[str, list[Row]]:
        """Name → the lines of each table that can be made with these settings."""
        return {name: rows for name, rows in self._tables.items() if not isinstance(rows, str)}

    @property
    def refused_tables(self) -> dict[str, str]:
        """Name → why it cannot be made with these settings, of each other table."""
        return self.recipe.refused | {name: why for name, why in self._tables.items() if isinstance(why, str)}

    @cached_property
    def _tables(self) -> dict[str, list[Row] | str]:
        """Name → the lines of each table of the recipe, or why it has none."""
        made: dict[str, list[Row] | str] = {}
        for name in self.recipe.tables:
            try:
                made[name] = self.table_rows(name)
            except RecipeError as error:
                made[name] = str(error)
        return made

    def table_rows(self, name: str) -> list[Row]:
        """The lines of a table, system by system and seed by seed.

        Raises:
            RecipeError: the table cannot be made with these settings; or the recipe has no such table.
        """
        recipe = self.recipe
        if name in recipe.refused:
            raise RecipeError(recipe.refused[name])
        if name not in recipe.tables:
            if not recipe.tables:
                another = "multi30k-flickr8k"
                wanted = command("table", "--table=1", another, target=["table", "TABLE=1", f"RECIPE={another}"])
                raise RecipeError(f"recipe {recipe.name} has no tables; try `{wanted}`")
            reason = f"no table {name!r}" if name else "no table is named"
            known = ", ".join(recipe.tables)
            here = recipe.file or recipe.name
            wanted = command("table", here, "--table=NAME", target=["table", "TABLE=NAME", f"RECIPE={here}"])
            raise RecipeError(f"{reason}: recipe {recipe.name} has {known}; use `{wanted}`")
        systems = recipe.tables[name].systems
        return [
            replace(row, system=system)
            for system, settings in systems.items()
            for row in self.with_vse(settings.vse).rows
        ]

    def with_vse(self, settings: VseSettings) -> "Graph":
        """The graph of the same recipe with other retrieval models.

        It has the same corpus, and the same translators and captions where no retrieval model takes part in them.
        """
        recipe = self.recipe
        by_image = any(kept.by == "image" for kept in recipe.augment.filters.values())
        of_vse = by_image or recipe.augment.captioner or (self.of_translators is self and recipe.mmt.rerank.retrieval)
        return self._beside(replace(recipe, vse=settings), () if of_vse else ("translators", "synthesis"))

    def _beside(self, recipe: Recipe, shared: Sequence[str] = ()) -> "Graph":
        """The graph of a recipe on the same corpus, with the `shared` parts of this one."""
        graph = Graph(recipe, self.workspace)
        vars(graph).update({name: getattr(self, name) for name in ("corpus", *shared)})  # as if made there
        return graph

    def retrieval_jobs(self, rows: list[Row]) -> list[Job]:
        """Jobs of stage vse, each after what it needs: captions of pictures with what writes them, then the rows'."""
        written = [job for job in self.synthesis.values() if job.stage == "vse"]
        return topological_order([*written, *(job for row in rows for job in row.jobs)], "vse")

    @cached_property
    def retrieval_model(self) -> Job:
        """The model of `mmt.rerank.retrieval`: a row of `vse.rows`, and what else differs from `vse`.

        Its captions cannot be by translators that it re-ranks.
        """
        recipe = self.recipe
        settings = rerank_settings(recipe.vse, recipe.mmt.rerank.retrieval)
        if model_class(settings.model).given_vectors:
            raise RecipeError(
                f"mmt.rerank.retrieval: {settings.model} does not read regions of images, by which translations are "
                "re-ranked; set mmt.rerank.retrieval.model to one that does (san …)"
            )
        systems = [system for system in recipe.mmt.systems if members_of(system)[1] in (None, CHANNEL)]
        paths = [path for path in recipe.augment.paths if parse_path(path)[0] in [*systems, CAPTION]]
        mmt, augment = replace(recipe.mmt, systems=systems), replace(recipe.augment, paths=paths)
        return self._beside(replace(recipe, vse=settings, mmt=mmt, augment=augment)).rows[0].job

    @cached_property
    def captioner(self) -> Job:
        """The model of `augment.captioner`, which writes the captions of `caption:de`; it reads none of them itself."""
        return self._beside_rows(self.recipe.augment.captioner, written=False).trained[0]

    def _beside_rows(self, overlay: Mapping[str, Any], written: bool = True) -> Row:
        """The row of a model that is trained beside those of the table; it reads no captions that a filter kept.

        Args:
            overlay: its row, and what else differs from `vse`.
            written: may it read captions of `augment.captioner`?
        """
        recipe = self.recipe
        settings, filters = beside_settings(recipe.vse, overlay), recipe.augment.filters
        paths = [path.partition("@")[0] if parse_path(path)[2] in filters else path for path in recipe.augment.paths]
        paths = [path for path in dict.fromkeys(paths) if written or parse_path(path)[0] != CAPTION]
        return self._beside(replace(recipe, vse=settings, augment=replace(recipe.augment, paths=paths))).rows[0]
