"""Words of languages that are written without spaces: Chinese by jieba, Japanese by MeCab with UniDic."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from data.errors import DataError

PACKAGES = {"zh": ("rjieba",), "ja": ("fugashi", "unidic_lite")}
"""Language → the modules that find its words; they are the extra `asian` of `pyproject.toml`."""
INSTALL = "`make setup EXTRA=asian` or `pip install rjieba fugashi unidic-lite`"


def require_segmenter(language: str) -> None:
    """Refuse a language whose words cannot be found here; one that needs no segmenter passes.

    Raises:
        DataError: what finds them is not installed.
    """
    try:
        _require(language)
    except DataError as error:
        raise DataError(f"{error}, or set vse.segment=characters") from None


def _require(language: str) -> None:
    for module in PACKAGES.get(language, ()):
        if find_spec(module) is None:
            name = module.replace("_", "-")
            raise DataError(f"vse.segment is words, but {name}, which finds the words of {language!r}, is not "
                            f"installed: run {INSTALL}")  # fmt: skip


def segment(text: str, language: str) -> list[str]:
    """The words of a sentence in a language of `PACKAGES`, without the spaces between them.

    Raises:
        DataError: what finds them is not installed.
    """
    return [word for word in _segmenter(language)(text) if not word.isspace()]


@cache
def _segmenter(language: str) -> Callable[[str], list[str]]:
    _require(language)  # a model that was trained so reads words, whatever vse.segment is now
    if language == "zh":
        import rjieba

        return rjieba.cut
    from fugashi import Tagger

    tagger = Tagger("-Owakati")
    return lambda text: tagger.parse(text).split()
