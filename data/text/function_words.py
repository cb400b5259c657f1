"""Words that name nothing in a picture: articles, prepositions, conjunctions, pronouns, auxiliary verbs."""

from collections import Counter
from collections.abc import Iterable

from data.text.characters import lowered
from data.text.tokenisation import CHARACTERS, words_of

_WORDS = {
    "en": (
        "a about above after against all along also an and any are around as at be been before behind being below "
        "beneath beside between both but by can could did do does during each either for from had has have he her "
        "here him his how i if in inside into is it its itself just may me my near next no nor not of off on onto "
        "or other our out outside over she so some such than that the their them then there these they this those "
        "through to toward towards under up upon us very was we were what when where which while who whose will "
        "with within without would you your"
    ),
    "de": (
        "aber all alle als also am an andere anderem anderen anderer anderes auch auf aus bei beide beim bin bis "
        "da dabei daneben das dass dem den denen der deren des dessen dich die dies diese diesem diesen dieser "
        "dieses doch dort du durch ein eine einem einen einer eines er es etwas für gegen habe haben hat hatte "
        "hier hinter ich ihm ihn ihr ihre ihrem ihren ihrer im in ins ist ja jede jeder jedes kein keine man mehr "
        "mir mit nach neben nicht noch nun nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind so "
        "um und uns unter über vom von vor wann war waren was weil welche wenn wer werden wie wird wo während zu "
        "zum zur zwischen"
    ),
    "fr": (
        "à au aux avec c car ce ces cet cette comme d dans de des du elle elles en entre est et eux il ils j je l "
        "la le les leur leurs lui m ma mais me mes moi mon même n ne ni nos notre nous on ont ou où par pas "
        "pendant pour qu que qui quoi s sa sans se ses si son sont sous sur t ta te tes toi ton tu un une vers vos "
        "votre vous y était étaient être"
    ),
    "cs": (
        "a aby ale ani asi až bez by byl byla byly být co do i já jak jako je jeho jejich její jej jen ještě jí "
        "jsem jsi jsou k kde kdo když ke která které kteří který má mají mezi mi můj my na nad ne nebo než nich "
        "ním o od pak po pod podle pro proti před přes při s se si své svou svůj svého svém svými ta tady tak také "
        "tam te ten tento to toho tom tu ty u už v ve vedle však z za ze že"
    ),
}
FUNCTION_WORDS = {language: frozenset(words.split()) for language, words in _WORDS.items()}
"""By language; of other languages none is known."""


def is_content_word(word: str, language: str) -> bool:
    """Is a word, as it is typed or in lower case, neither a function word nor without letters?"""
    plain = lowered(word.strip(".,;:!?\"'()„“”»«"), language)
    return any(map(str.isalpha, plain)) and plain not in FUNCTION_WORDS.get(language, frozenset())


def frequent_content_words(texts: Iterable[str], language: str, count: int, by: str = CHARACTERS) -> list[str]:
    """The content words that most sentences have, most frequent first; of equally frequent ones in alphabetical order.

    Args:
        texts: surface sentences.
        language: of them.
        count: how many words at most.
        by: as `words_of` has it.

    Examples:
        >>> frequent_content_words(["A dog and a dog.", "The dog runs.", "A cat runs."], "en", 2)  # sentences count
        ['dog', 'runs']
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update({word for word in words_of(text, language, by).split() if is_content_word(word, language)})
    return sorted(counts, key=lambda word: (-counts[word], word))[:count]
