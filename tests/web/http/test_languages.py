"""The public pages in every language: nothing is missing, and nothing is left in English."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2 import nodes

from hushgrid.mechanism.policy import Blocks, Covariate, Policy, assumptions
from hushgrid.report.promise import home_words, promise_sentence
from hushgrid.web.http.app import HERE, PUBLIC, TEMPLATES
from hushgrid.web.http.languages import NAMES, catalogue, translate
from tests.curator.worlds import service
from tests.web.http.faces import Face, refused
from tests.web.http.page_client import client

OTHERS = [code for code in NAMES if code != "en"]
SAME = {"hushgrid", "API", "elm", "oak", "50 %", "–", "Zone", *NAMES.values()}


def _page_texts() -> set[str]:
    found = set()
    for name in (*PUBLIC, "layout", "choice"):
        for call in TEMPLATES.parse((HERE / "frames" / f"{name}.html").read_text()).find_all(
            nodes.Call
        ):
            if isinstance(call.node, nodes.Name) and call.node.name == "_":
                assert isinstance(call.args[0], nodes.Const)
                found.add(call.args[0].value)
    return found


def _script_texts() -> set[str]:
    scripts = [path.read_text() for path in (HERE / "static" / "js").glob("*.js")]
    assert not re.search(r"\bt\(\s*[^\s\"t)]", "".join(scripts)), "a text that is not looked up"
    return {one for text in scripts for one in re.findall(r'\bt\(\s*"((?:[^"\\]|\\.)*)"', text)}


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_has_a_translation_with_the_same_places(language: str) -> None:
    found = catalogue(language)
    assert set(found["page"]) == _page_texts()
    assert set(found["script"]) == _script_texts()
    assert set(found["promise"]) == set(catalogue(OTHERS[0])["promise"])
    for table in found.values():
        for text, words in table.items():
            assert sorted(re.findall(r"\{\w+\}", words)) == sorted(re.findall(r"\{\w+\}", text))
            tags = [sorted(re.findall(r"<[^>]+>", one)) for one in (text, words)]
            assert tags[0] == tags[1], words
            assert words == words.strip()


def _policies() -> list[Policy]:
    blocks = Blocks((48, 48), (0.1, 0.05))
    covariate = Covariate("temperature 2.5 m", 10.0, 5.0, vouched_by="J. Doe, 3.5")
    return [
        *(Policy(0.04, eta=eta) for eta in (0.0, 0.005, 1.0)),
        Policy(0.1, eta=1.0, schedule=blocks),
        Policy(0.1, clamp=(800,)),
        Policy(
            0.1,
            eta=1.0,
            publish="estimate",
            estimator="releases",
            usual=150.0,
            covariates=(covariate,),
        ),
    ]


@pytest.mark.parametrize("language", OTHERS)
def test_every_promise_and_assumption_is_translated_as_a_whole(language: str) -> None:
    used: set[str] = set()
    consumption = service().scenario.consumption
    for policy in _policies():
        for secret, continued in itertools.product(("step", "interval"), (False, True)):
            used.add(promise_sentence(policy, secret, 12.5, steps=1344, continued=continued))
        for secret in ("step", "interval", "window"):
            for window in ("24 hours", "14 days"):
                found = home_words(secret, 12.5, window)
                used.update((found.words, *found.not_covered))
        if policy.eta == 1:
            words = ("24 hours", "14 days")
            used.update(promise_sentence(policy, "window", 12.5, window=word) for word in words)
        for secret, models, exports in itertools.product(
            ("step", "interval", "window"), (1, 2), (False, True)
        ):
            used.update(assumptions(secret, policy, consumption, models, exports=exports))  # type: ignore[arg-type]
    signs = str.maketrans("", "", ",.\u202f")
    for text in used:
        made = translate(text, language)
        assert made != text
        # the same figures, whatever signs they have
        assert sorted(re.findall(r"\d+", made.translate(signs))) == sorted(
            re.findall(r"\d+", text.translate(signs))
        ), made
        for verbatim in ("temperature 2.5 m", "J. Doe, 3.5"):
            assert (verbatim in made) == (verbatim in text)
    whole = " ".join(sorted(translate(one, language) for one in used))
    unused = [
        words
        for text, words in catalogue(language)["promise"].items()
        if not re.search(".+?".join(map(re.escape, re.split(r"\{\w+\}", words))), whole)
    ]
    # demand that answers rates, and a covariate without a name
    assert len(unused) <= 2, unused


def test_a_sentence_of_another_package_stays_whole() -> None:
    text = "The occupancy model is true. The moon is full."
    assert translate(text, "de") == text
    assert translate("The occupancy model is true.", "de") != "The occupancy model is true."


class Texts(HTMLParser):
    """The visible texts of a page, and what a screen reader says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found |= {value for name, value in attrs if name in ("aria-label", "title", "alt")}

    def handle_data(self, data: str) -> None:
        self.found.add(data.strip())


@pytest.mark.parametrize("path", ["/", "/zones/elm", "/zones/none", "/how", "/explore"])
def test_no_english_text_is_left_in_a_page(path: str) -> None:
    for zones in (("elm",), ("elm", "oak")):
        web = client(*zones)
        english = Texts(web.get(path).text).found
        pages = [web.get(f"{path}?lang={code}").text for code in OTHERS]
        for code, page in zip(OTHERS, pages, strict=True):
            assert f'<html lang="{code}">' in page
            left = {
                one
                for one in Texts(page).found & english
                if re.search("[A-Za-z]", one) and one not in SAME and not one.startswith("/v1/")
            }
            assert not left, left
        assert Texts(pages[0]).found & Texts(pages[1]).found <= english | {""}


def test_the_language_is_asked_for_or_negotiated() -> None:
    web = client("elm", "oak", demo=True)

    def got(path: str, accept: str = "") -> str:
        answer = web.get(path, headers={"Accept-Language": accept} if accept else {})
        (found,) = re.findall(r'<html lang="(\w+)">', answer.text)
        assert answer.headers["content-language"] == found
        return str(found)

    assert got("/how") == "en"
    assert got("/how", "de-AT,de;q=0.9,en;q=0.5") == "de"
    assert got("/how", "nl, fr;q=0.4, de;q=0.3") == "fr"
    assert got("/how", "de;q=0, xx;q=oops, ;;") == "en"
    assert got("/how?lang=fr", "de") == "fr"
    assert got("/how?lang=xx", "de") == "de"
    assert got("/zones/none", "de") == "de"
    for path in ("/operator", "/demo"):
        assert got(f"{path}?lang=de", "fr") == "en"
        assert "vary" not in web.get(path).headers
    english, german = web.get("/how"), web.get("/how", headers={"Accept-Language": "de"})
    assert english.headers["vary"] == german.headers["vary"] == "Accept-Language"
    assert english.headers["etag"] != german.headers["etag"]
    tag = {"If-None-Match": english.headers["etag"], "Accept-Language": "de"}
    assert web.get("/how", headers=tag).status_code == 200
    again = web.get("/how", headers={**tag, "If-None-Match": german.headers["etag"]})
    assert (again.status_code, again.headers["vary"]) == (304, "Accept-Language")


def test_a_chosen_language_stays_from_page_to_page() -> None:
    web = client("elm", "oak")
    links = re.findall(r'href="(/[^"]*)"', web.get("/how?zone=oak&lang=de").text)
    kept = [one for one in links if not one.startswith(("/assets/", "/v1/"))]
    assert "/explore?zone=oak&amp;lang=de" in kept
    assert {"/how?zone=oak&amp;lang=en", "/how?zone=oak&amp;lang=fr"} <= set(kept)
    assert all("lang=" in one for one in kept)
    assert 'name="lang" value="de"' in web.get("/how?zone=oak&lang=de").text
    plain = re.findall(r'href="(/[^"]*)"', web.get("/how?zone=oak").text)
    assert sum("lang=" in one for one in plain) == 2, "those of the switch alone"


def test_the_promise_comes_in_the_language_asked_for() -> None:
    face = Face()
    english = face.call("GET", "/v1/promise").json()
    german = face.call("GET", "/v1/promise?lang=de").json()
    words = ("words", "not_covered", "sentence", "assumptions")
    assert german["sentence"] == translate(english["sentence"], "de") != english["sentence"]
    assert {k: v for k, v in german.items() if k not in words} == {
        k: v for k, v in english.items() if k not in words
    }
    assert face.call("GET", "/v1/promise?lang=en").json() == english
    refused(face.call("GET", "/v1/promise?lang=xx"), 400)
