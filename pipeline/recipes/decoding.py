"""The decoding settings of a recipe, as the settings classes of modules."""

from modules.errors import ModelError
from modules.translators.beam import BeamSettings
from modules.translators.registry import Search
from modules.translators.sampling import SampleSettings
from pipeline.recipes.translator_settings import DecodingSettings

_OF_BEAM, _OF_SAMPLE = ("beam_size", "groups", "diversity"), ("temperature", "top_p")


def decoding_of(settings: DecodingSettings, seed: int) -> Search:
    """The search that settings describe.

    Raises:
        ModelError: they do not fit, or belong to the other method.
    """
    for name in _OF_SAMPLE if settings.method == "beam" else _OF_BEAM:
        if getattr(settings, name) != getattr(DecodingSettings(), name):
            raise ModelError(f"{name} is nothing to method {settings.method}; leave it out or take the other method")
    normalised = {"length_penalty": settings.length_penalty}
    if settings.method == "sample":
        return SampleSettings(settings.captions, settings.temperature, settings.top_p, seed=seed, **normalised)
    if not 1 <= settings.captions <= settings.beam_size:
        raise ModelError(f"captions is {settings.captions}; expected 1 to beam_size ({settings.beam_size})")
    return BeamSettings(settings.beam_size, groups=settings.groups, diversity=settings.diversity, **normalised)
