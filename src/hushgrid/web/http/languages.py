"""The languages of the public pages: English, and one catalogue each for the others.

A catalogue (languages/*.toml) has the English text as its key, `{name}` for what is filled in, and
three tables: `page` for the templates, `script` for the scripts, `promise` for the sentences of
/v1/promise. Operator, demo and API pages are English.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ENGLISH = "en"
NAMES = {"en": "English", "de": "Deutsch", "fr": "Français"}
_FOLDER = Path(__file__).parent / "languages"
_THOUSANDS = {"de": ".", "fr": "\u202f"}  # the decimal sign of both is a comma
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_VERBATIM = ("name", "who")  # what an operator wrote

Catalogue = Mapping[str, Mapping[str, str]]  # table -> English -> translation


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of a language.

    Args:
        language: its code, of `NAMES`.

    Returns:
        Tables `page`, `script` and `promise`; all empty for English.
    """
    if language == ENGLISH:
        return {"page": {}, "script": {}, "promise": {}}
    return tomllib.loads((_FOLDER / f"{language}.toml").read_text("utf-8"))


def preferred_language(header: str) -> str:
    """The language that a browser likes best.

    Args:
        header: value of Accept-Language.

    Returns:
        A code of `NAMES`; English where none is wanted, or the header is not well formed.

    >>> [preferred_language(line) for line in ("da, fr-CA;q=0.8, en;q=0.7", "nl", "de;q=0, en")]
    ['fr', 'en', 'en']
    """
    best, weight = ENGLISH, 0.0
    for part in header.split(",")[:50]:
        name, _, parameters = part.partition(";")
        code = name.strip().lower().partition("-")[0]
        quality = re.fullmatch(r"\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*", parameters)
        q = 1.0 if not parameters.strip() else float(quality[1]) if quality else 0.0
        if code in NAMES and q > weight:
            best, weight = code, q
    return best


def localise(text: str, language: str) -> str:
    """The numbers of a text with the signs of a language.

    Args:
        text: with numbers in the English form.
        language: code of the language.

    Returns:
        The text.

    >>> localise("1,000.5 (e^0.5)", "de")
    '1.000,5 (e^0,5)'
    """
    if language == ENGLISH:
        return text
    signs = {",": _THOUSANDS[language], ".": ","}
    return _NUMBER.sub(lambda number: "".join(signs.get(sign, sign) for sign in number[0]), text)


def translate(text: str, language: str) -> str:
    """Sentences of a promise in another language.

    Each sentence is looked up as a whole, with its values filled in again.

    Args:
        text: one or more English sentences, as `/v1/promise` has them.
        language: code of the language.

    Returns:
        The translation; the English text where the catalogue lacks one of the sentences, such as
        that of a schedule of another package, so that no promise is in two languages.
    """
    remainder, parts = text, []
    while remainder and language != ENGLISH:
        matches = ((pattern.match(remainder), words) for pattern, words in _patterns(language))
        sentence, words = next((pair for pair in matches if pair[0]), (None, ""))
        if sentence is None:
            return text
        values = {
            name: value if name in _VERBATIM and value != "no one" else _value(value, language)
            for name, value in sentence.groupdict().items()
        }
        parts.append(words.format(**values))
        remainder = remainder[sentence.end() :].lstrip()
    return " ".join(parts) or text


def _value(value: str, language: str) -> str:
    """A value of a sentence: a phrase of the catalogue, or numbers."""
    for pattern, words in _patterns(language):
        phrase = pattern.fullmatch(value)
        if phrase:
            fields = {
                name: localise(number, language) for name, number in phrase.groupdict().items()
            }
            return words.format(**fields)
    return localise(value, language)


@cache
def _patterns(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """What matches each text of a promise, with its translation; longer texts first."""
    phrases = sorted(catalogue(language)["promise"].items(), key=lambda phrase: -len(phrase[0]))
    return tuple((_pattern(text), words) for text, words in phrases)


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", text)
    expressions = (f"(?P<{part}>.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.compile("".join(expressions) + r"(?=\s|$)")
