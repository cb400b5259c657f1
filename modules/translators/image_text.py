"""Vision-language models of `transformers` that answer a prompt about a picture: with a translation, or a caption."""

import copy
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from modules.errors import ModelError, one_line
from modules.pretrained.quiet import quiet
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.pretrained import PLAIN_SEARCH, configuration, load_network
from modules.translators.sampling import SampleSettings

_NETWORK = "vision-language model"
_FILES = "processor_config.json or preprocessor_config.json, and tokenizer.json"
_TOGETHER = 8  # prompts that are read together: bounds memory


class ImageTextTranslator(nn.Module):
    """A vision-language model with a decoder alone: LLaVA, Qwen2.5-VL, Idefics3, SmolVLM, PaliGemma …

    Token ids are those of its tokenizer plus 1; 0 is padding.

    Args:
        name: a folder, or a name on the Hugging Face hub.
        prompt: what it is asked; `{text}` stands for the source sentence.
        longest: tokens of an answer, at most.
        revision: branch, tag or commit of a name on the hub.
        setting: of a recipe that names it, for messages.

    Attributes:
        commit: what the revision was when it was loaded; None for a folder.
        processor: of the library; makes its inputs of pictures and text.

    Raises:
        ModelError: there is no such network, it has no processor, or its weights are not in safetensors.
    """

    regions = None
    """It reads pictures instead."""

    def __init__(
        self, name: str, prompt: str, longest: int, revision: str | None = None, setting: str = "mmt.pretrained"
    ) -> None:
        from transformers import AutoModelForImageTextToText  # takes seconds to import

        super().__init__()
        self.prompt, self.longest, self._where = prompt, longest, f"{setting} {name!r}"
        self.commit = self._require(name, revision)
        self.processor = self._load_processor(name, self.commit or revision)
        self.model = load_network(AutoModelForImageTextToText, name, self.commit or revision, self._where, _NETWORK)
        settings, pad = copy.deepcopy(self.model.generation_config), self.processor.tokenizer.pad_token_id
        settings.update(
            **PLAIN_SEARCH | {"max_new_tokens": longest}, do_sample=False, temperature=None, top_p=None, top_k=None,
            min_length=0, pad_token_id=pad, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        self._settings = self.model.generation_config = settings  # `generate` fills in the model's own for None
        end = self._settings.eos_token_id
        self._ends = {*(end if isinstance(end, list) else [end])}

    def search(self, batch: Mapping[str, Tensor], search: BeamSettings | SampleSettings) -> list[list[Hypothesis]]:
        """Answer the prompt for each sentence of a batch; best first.

        Scores are log p / length^α, including the end token.

        Args:
            batch: `source` (B, N), and `pictures`, a list of B pictures (PIL, RGB), None for a sentence without one:
                then the prompt is read alone. Without the key none has one.
            search: a plain beam; of size 1 it is greedy.

        Raises:
            ModelError: the search is another one.
        """
        if isinstance(search, SampleSettings) or search.groups > 1:
            raise ModelError("a vision-language model is searched by a plain beam; leave `method` and `groups` out")
        tokenizer = self.processor.tokenizer
        texts = [tokenizer.decode([token - 1 for token in row if token], skip_special_tokens=True).strip()
                 for row in batch["source"].tolist()]  # fmt: skip
        prompts = [self.prompt.replace("{text}", text) for text in texts]
        pictures: Any = batch.get("pictures", [None] * len(prompts))
        found: dict[int, list[Hypothesis]] = {}
        for seen in (True, False):
            places = [place for place, picture in enumerate(pictures) if (picture is not None) == seen]
            for start in range(0, len(places), _TOGETHER):
                some = places[start : start + _TOGETHER]
                answers = self._answer([prompts[place] for place in some], [pictures[place] for place in some], search)
                found |= zip(some, answers, strict=True)
        return [found[place] for place in range(len(prompts))]

    def _answer(
        self, prompts: Sequence[str], pictures: Sequence[Any], search: BeamSettings
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """The answers to prompts that have a picture each, or that have none."""
        inputs = self._inputs(prompts, pictures).to(self.model.device)
        settings, width = copy.deepcopy(self._settings), search.beam_size
        settings.update(num_beams=width, num_return_sequences=width)
        if width > 1:
            settings.update(length_penalty=search.length_penalty, early_stopping=True)
        with torch.no_grad():
            made = self.model.generate(**inputs, generation_config=settings)
        ids = made.sequences[:, inputs["input_ids"].shape[1] :]
        words = [list(takewhile(lambda number: number not in self._ends, row)) for row in ids.tolist()]
        if width > 1:
            scores = made.sequences_scores
        else:
            lengths = torch.tensor([min(len(row) + 1, ids.shape[1]) for row in words], device=ids.device)
            logs = self.model.compute_transition_scores(made.sequences, made.scores, normalize_logits=True)
            counted = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
            scores = logs.masked_fill(~counted, 0.0).sum(1) / lengths**search.length_penalty
        pairs = zip(words, scores.tolist(), strict=True)
        answers = [Hypothesis([number + 1 for number in row], score) for row, score in pairs]
        return [answers[start : start + width] for start in range(0, len(answers), width)]

    def _inputs(self, prompts: Sequence[str], pictures: Sequence[Any]) -> Any:
        """What the network reads: padded on the left, so that answers begin at one place."""
        padded = {"padding": True, "padding_side": "left", "return_tensors": "pt"}
        seen = pictures[0] is not None
        if self.processor.chat_template:
            images: list[list[dict[str, Any]]] = [[{"type": "image", "image": one}] if seen else [] for one in pictures]
            asked = [
                [{"role": "user", "content": [*image, {"type": "text", "text": prompt}]}]
                for image, prompt in zip(images, prompts, strict=True)
            ]
            return self.processor.apply_chat_template(
                asked, add_generation_prompt=True, tokenize=True, return_dict=True, processor_kwargs=padded
            )
        if not seen:
            return self.processor.tokenizer(list(prompts), **padded)
        marked = [f"{self.processor.image_token}{prompt}" for prompt in prompts]
        return self.processor(text=marked, images=[[picture] for picture in pictures], **padded)

    def _require(self, name: str, revision: str | None) -> str | None:
        """The commit of a network that reads pictures with text and has a decoder alone; ModelError for another one."""
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as KNOWN

        config, commit = configuration(name, revision, self._where, _NETWORK)
        if config.model_type not in KNOWN or getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"{self._where}: a {config.model_type} model; expected a vision-language model with a "
                             "decoder alone: LLaVA, Qwen2.5-VL, Idefics3, SmolVLM, PaliGemma …")  # fmt: skip
        return commit

    def _load_processor(self, name: str, revision: str | None) -> Any:
        """What reads pictures and text for the network; ModelError if it has none."""
        from transformers import AutoImageProcessor, AutoProcessor  # takes seconds to import

        where: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
        try:
            with quiet():
                processor = AutoProcessor.from_pretrained(name, **where)
                if hasattr(processor, "image_processor"):  # by Pillow, so that answers do not depend on torchvision
                    processor.image_processor = AutoImageProcessor.from_pretrained(name, backend="pil", **where)
        except Exception as error:  # of many kinds, ImportError of a package among them
            reason = one_line(error)
            package = "orchvision" in reason  # of processors that read videos too
            advice = "install it (`pip install torchvision`)" if package else f"expected {_FILES} of the network"
            raise ModelError(f"{self._where}: its processor cannot be loaded ({reason}); {advice}") from None
        whole = all(hasattr(processor, part) for part in ("image_processor", "tokenizer"))
        if not whole or not (processor.chat_template or getattr(processor, "image_token", None)):
            raise ModelError(
                f"{self._where}: no processor of pictures and text there; expected {_FILES} of the network"
            )
        if processor.tokenizer.pad_token is None:
            processor.tokenizer.pad_token = processor.tokenizer.eos_token
        return processor
