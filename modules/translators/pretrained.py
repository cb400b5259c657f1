"""Pretrained translators of `transformers` (OPUS-MT/Marian, M2M100, NLLB), searched by the library's `generate`."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from modules.errors import ModelError, one_line
from modules.layers.recurrent import widen
from modules.pretrained.hub import commit_of
from modules.pretrained.quiet import quiet, refuse_adapters, require_weights
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.sampling import SampleSettings, random_numbers, sampled

KINDS = ("marian", "m2m_100")
"""`model_type` of what is read here; NLLB is an `m2m_100`."""
PLAIN_SEARCH: dict[str, None] = dict.fromkeys((
    "stop_strings", "penalty_alpha", "dola_layers", "constraints", "force_words_ids", "num_beam_groups",
    "diversity_penalty", "prompt_lookup_num_tokens", "watermarking_config", "max_time", "max_length", "max_new_tokens",
    "min_new_tokens",
))  # fmt: skip
"""A model's own generation settings that would make `generate` search in another way, or end at other lengths."""
_TRANSLATOR = "translator"
_SCORES, _SCORES_ON_GPU = 2**24, 2**26  # word scores computed at a time


class PretrainedTranslator(nn.Module):
    """A translator of `transformers` with an encoder and a decoder, which sees no picture.

    Token ids are those of the model plus 1; 0 is padding.

    Args:
        name: a folder, or a name on the Hugging Face hub.
        first: the model's id of the mark that every translation begins with (its language); None if there is none.
        revision: branch, tag or commit of a name on the hub.

    Attributes:
        commit: what the revision was when it was loaded; None for a folder.

    Raises:
        ModelError: there is no such translator, or its weights are not in safetensors.
    """

    regions = None
    """It reads none."""

    def __init__(self, name: str, first: int | None = None, revision: str | None = None) -> None:
        super().__init__()
        self.commit = require_translator(name, revision)
        self.model, self.first = self._load(name, self.commit or revision), first
        settings = copy.deepcopy(self.model.generation_config)
        settings.update(
            **PLAIN_SEARCH, do_sample=False, min_length=0, early_stopping=False, return_dict_in_generate=False
        )
        settings.forced_bos_token_id = first
        self._settings = self.model.generation_config = settings  # `generate` fills in the model's own for None

    @staticmethod
    def _load(name: str, revision: str | None) -> Any:
        from transformers import AutoModelForSeq2SeqLM  # takes seconds to import

        return load_network(AutoModelForSeq2SeqLM, name, revision, f"mmt.pretrained {name!r}", _TRANSLATOR)

    def search(self, batch: Mapping[str, Tensor], search: BeamSettings | SampleSettings) -> list[list[Hypothesis]]:
        """Translate a batch (`source` (B, N), `source_lengths` (B,), for sampling also `index` (B,)); best first.

        A translation is at most max_ratio · N + 10 tokens long, its language mark not counted; longer ones end there.
        Scores are log p / length^α of the model itself, including the end token.

        Raises:
            ModelError: the search is diverse beam search, which `generate` does not have.
        """
        if isinstance(search, BeamSettings) and search.groups > 1:
            raise ModelError("a pretrained translator has no diverse beam search; leave `groups` out, or sample")
        width = search.beam_size if isinstance(search, BeamSettings) else search.samples
        source = batch["source"]
        seen = (source > 0).long()
        with torch.no_grad():
            ids = (source - 1).masked_fill(source == 0, self.model.config.pad_token_id)
            states = self.model.get_encoder()(input_ids=ids, attention_mask=seen).last_hidden_state
            limits = (search.max_ratio * batch["source_lengths"]).long().cpu() + 10
            limits = limits.clamp(max=self.model.config.max_position_embeddings - self._prompt)
            every_state, every_seen = (tensor.repeat_interleave(width, 0) for tensor in (states, seen))
            if isinstance(search, SampleSettings):
                translations = self._sample(every_state, every_seen, search, limits, batch["index"].tolist())
            else:
                translations = self._beam(states, seen, search, limits)
            hypotheses = self._scored(every_state, every_seen, translations, search.length_penalty)
        rows = (hypotheses[start : start + width] for start in range(0, len(hypotheses), width))
        return [sorted(row, key=lambda hypothesis: -hypothesis.score) for row in rows]

    @property
    def _prompt(self) -> int:
        """Tokens of a translation before its words: the start, and the language mark if there is one."""
        return 1 + (self.first is not None)

    def _beam(self, states: Tensor, seen: Tensor, search: BeamSettings, limits: Tensor) -> Tensor:
        """The translations (B · S, L) of encoder states (B, N, E), S for each sentence, with start and end marks."""
        width = search.beam_size
        more: dict[str, Any] = {"num_beams": width, "num_return_sequences": width}
        if width > 1:
            more |= {"length_penalty": search.length_penalty, "early_stopping": True}
        return self._generate(states, seen, limits, [self._end(limits, width, states.device)], more)

    def _sample(
        self, states: Tensor, seen: Tensor, search: SampleSettings, limits: Tensor, numbers: list[int]
    ) -> Tensor:
        """The same of states (B · S, N, E), drawn by the random numbers of `modules.translators.sampling`."""
        draws = random_numbers(numbers, limits, search.samples, search.seed).to(states.device)  # (B, L, S)
        prompt = self._prompt

        def draw(tokens: Tensor, scores: Tensor) -> Tensor:
            """Leave of the scores (B · S, V) of each row's next word only that of the word that is drawn."""
            place = tokens.shape[1] - prompt
            if place < 0:
                return scores
            of_sentence = scores.unflatten(0, (-1, search.samples))
            words = sampled(of_sentence, draws[:, place], search).flatten()[:, None]
            return torch.full_like(scores, -torch.inf).scatter(1, words, 0.0)

        end = self._end(limits, search.samples, states.device)
        return self._generate(states, seen, limits, [end, draw], {"num_beams": 1, "num_return_sequences": 1})

    def _end(self, limits: Tensor, width: int, device: torch.device) -> Any:
        """What ends the translations of each sentence at its own limit (B,), whatever else is in the batch."""
        limits, end, prompt = limits.repeat_interleave(width).to(device), self._eos, self._prompt

        def ending(tokens: Tensor, scores: Tensor) -> Tensor:
            """Leave only the end token to rows that are at their limit."""
            not_end = torch.arange(scores.shape[1], device=scores.device) != end
            full = limits - 1 <= tokens.shape[1] - prompt
            return scores.masked_fill(full[:, None] & not_end, -torch.inf)

        return ending

    def _generate(
        self, states: Tensor, seen: Tensor, limits: Tensor, processors: list[Any], more: dict[str, Any]
    ) -> Tensor:
        """Token ids (rows, L) by the library's search."""
        from transformers import LogitsProcessorList
        from transformers.modeling_outputs import BaseModelOutput

        settings = copy.deepcopy(self._settings)
        settings.update(max_length=self._prompt + int(limits.max()), **more)
        ids: Tensor = self.model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=seen,
            generation_config=settings, logits_processor=LogitsProcessorList(processors),
        )  # fmt: skip
        return ids

    def _scored(self, states: Tensor, seen: Tensor, ids: Tensor, penalty: float) -> list[Hypothesis]:
        """Hypotheses of token ids (rows, L) with scores by the model, given the encoder states (rows, N, E)."""
        words = ids[:, self._prompt :]
        is_end = words == self._eos
        lengths = torch.where(is_end.any(1), is_end.long().argmax(1) + 1, words.shape[1])  # with the end token
        counted = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
        most = _SCORES_ON_GPU if states.is_cuda else _SCORES
        several = max(1, most // (ids.shape[1] * self.model.config.vocab_size))
        totals = []
        for start in range(0, len(ids), several):
            some = slice(start, start + several)
            logits = self.model(
                encoder_outputs=(states[some],), attention_mask=seen[some], decoder_input_ids=ids[some, :-1],
                use_cache=False,
            ).logits  # fmt: skip
            logs = widen(logits[:, self._prompt - 1 :]).log_softmax(-1).gather(-1, words[some, :, None])[..., 0]
            totals.append((logs * counted[some]).sum(1))
        scores = (torch.cat(totals) / lengths**penalty).tolist()
        tokens = (words + 1).tolist()
        ends = (lengths - is_end.any(1).long()).tolist()
        return [Hypothesis(row[:end], score) for row, end, score in zip(tokens, ends, scores, strict=True)]

    @property
    def _eos(self) -> int:
        return int(self.model.config.eos_token_id)


def require_translator(name: str, revision: str | None = None) -> str | None:
    """Check that a folder or a name on the hub has a translator of `KINDS`, by its configuration alone.

    Returns:
        the commit of a name on the hub; None for a folder.

    Raises:
        ModelError: it has none.
    """
    where = f"mmt.pretrained {name!r}"
    config, commit = configuration(name, revision, where, _TRANSLATOR)
    if config.model_type not in KINDS:
        raise ModelError(f"{where}: a {config.model_type} model; expected a translator: OPUS-MT (marian), M2M100 or "
                         "NLLB (m2m_100)")  # fmt: skip
    return commit


def configuration(name: str, revision: str | None, where: str, what: str) -> tuple[Any, str | None]:
    """The configuration of a network of transformers, and its commit; None for a folder.

    Args:
        name: a folder, or a name on the hub.
        revision: of a name on the hub.
        where: what a message begins with.
        what: is expected there, for messages.

    Raises:
        ModelError: there is none.
    """
    from transformers import AutoConfig  # takes seconds to import

    try:
        commit = commit_of(name, revision or "main")
        return AutoConfig.from_pretrained(name, revision=revision or "main", trust_remote_code=False), commit
    except Exception as error:  # a damaged configuration can raise anything
        raise not_found(where, what, error) from None


def load_network(kind: Any, name: str, revision: str | None, where: str, what: str) -> Any:
    """A network in float32 by one of transformers' Auto classes; arguments and errors as those of `configuration`."""
    try:
        with quiet():
            refuse_adapters(name, revision)
            network, read = kind.from_pretrained(
                name, revision=revision or "main", dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
                output_loading_info=True,
            )  # fmt: skip
    except Exception as error:  # a damaged file can raise anything
        if "safetensors" in str(error) and not isinstance(error, SafetensorError):
            raise ModelError(
                f"{where}: no weights in safetensors; other weights are pickles, which are not read: name a revision "
                "that has them (`revision: refs/pr/…`), or save the model with transformers and name its folder"
            ) from None
        raise not_found(where, what, error) from None
    random = {key for key, parameter in network.named_parameters() if parameter.requires_grad}
    require_weights(random.intersection(read["missing_keys"]), where)
    return network


def not_found(where: str, what: str, error: Exception) -> ModelError:
    """The error that there is no such network; arguments as those of `configuration`, and why it was not found."""
    reason = one_line(error)
    return ModelError(f"{where}: no {what} of transformers found ({reason}); expected a folder, or a name on the hub; "
                      "without internet, copy the model into a folder (`hf download NAME --local-dir FOLDER`) and name "
                      "that")  # fmt: skip
