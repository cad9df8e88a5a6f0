"""Pages as bytes: what is served where, under which headers, and that no figure is in them."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hushgrid.web.http.app import HERE, page_routes
from tests.web.http.faces import Face, refused
from tests.web.http.page_client import client

ROOT = Path(__file__).parents[3]
STATIC = HERE / "static"
ASSETS = {str(p.relative_to(STATIC)): p for p in STATIC.rglob("*") if p.is_file()}
ODD = 'Ulmenstraße 7/"<b>&'


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the text between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


PATHS = ("/", "/zones/elm", "/how", "/explore", "/operator", "/demo")


@pytest.mark.parametrize("path", PATHS)
def test_a_page_runs_and_loads_only_what_is_ours(path: str) -> None:
    answer = client("elm", demo=True).get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    tags = Tags(answer.text)
    for tag, attributes in tags.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            where = attributes.get(name) or "/"
            assert where.startswith(("/", "#")), where
            assert not where.startswith("//"), where
            assert not where.startswith("/assets/") or where[8:] in ASSETS, where
    assert not tags.all("style")
    assert all("src" in one for one in tags.all("script")), "no script stands in the page"
    assert len(tags.all("h1")) == 1
    assert len(tags.all("main")) == len(tags.all("nav")) == 1
    ids = [a["id"] for _, a in tags.found if "id" in a]
    assert len(ids) == len(set(ids))
    labelled = {a["for"] for a in tags.all("label") if "for" in a}
    for field in tags.all("input") + tags.all("select"):
        assert field.get("type") == "radio" or field["id"] in labelled


def test_scripts_find_what_they_look_for() -> None:
    """Each id that a script names is in the page that loads it, or in none that it loads."""
    for page in ("zone", "zones", "how", "explore", "operator", "demo"):
        path = {"zone": "/", "zones": "/"}.get(page, f"/{page}")
        zones = ("elm", "oak") if page == "zones" else ("elm",)
        html = client(*zones, demo=True).get(path).text
        scripts = [ASSETS[f"js/{page}.js"].read_text()]
        if page == "operator":
            scripts.append(ASSETS["js/overview.js"].read_text())
        for script in scripts:
            for name in re.findall(r'find\("#([\w-]+)"', script):
                assert f'id="{name}"' in html, f"{page}: {name}"


def test_scripts_import_what_is_there() -> None:
    for name, path in ASSETS.items():
        if name.startswith("js/"):
            for found in re.findall(r'from "\./([\w.]+)"', path.read_text()):
                assert f"js/{found}" in ASSETS


def test_no_asset_names_another_host() -> None:
    for name, path in ASSETS.items():
        text = path.read_text()
        hosts = set(re.findall(r"https?://[\w.-]+", text))
        # a comment of uPlot's and the name of SVG's own language
        assert hosts <= {"https://github.com", "http://www.w3.org"}, name


def test_one_zone_or_many() -> None:
    lone, many = client("elm"), client("elm", "oak")
    assert lone.get("/").content == lone.get("/zones/elm").content
    assert 'data-page="zones"' in many.get("/").text
    assert [a.get("href") for a in Tags(many.get("/").text).all("a")].count("/zones/oak") == 1
    assert 'data-zone="oak"' in many.get("/zones/oak").text
    assert 'href="/explore?zone=oak"' in many.get("/zones/oak").text, "links stay with the zone"
    assert 'data-zone=""' in many.get("/how").text
    assert "<select" in many.get("/how").text
    assert 'data-zone="oak"' in many.get("/how?zone=oak").text


def test_an_unknown_zone_is_told() -> None:
    for path in ("/zones/oak", "/how?zone=oak", "/operator?zone=oak"):
        answer = client("elm").get(path)
        assert answer.status_code == 404
        assert "oak" not in answer.text
        assert "nothing here" in answer.text


def test_a_name_is_text_and_not_html() -> None:
    many = client(ODD, "oak")
    page = Tags(many.get("/").text)
    (where,) = [str(a["href"]) for a in page.all("a") if "Ulmen" in str(a.get("href"))]
    found = many.get(where)
    assert found.status_code == 200
    body = Tags(found.text)
    assert body.all("body")[0]["data-zone"] == ODD
    assert not body.all("b")
    assert ODD in body.words


def test_the_adversary_is_of_the_demo_alone() -> None:
    assert client("elm").get("/demo").status_code == 404
    assert "/demo" not in client("elm").get("/").text
    assert 'href="/demo"' in client("elm", demo=True).get("/").text


def test_what_is_kept_is_asked_for_again() -> None:
    first = client("elm").get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = client("elm").get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    asset = client("elm").get("/assets/style.css")
    assert asset.headers["cache-control"] == "no-cache"
    assert asset.headers["content-type"] == "text/css; charset=utf-8"
    tag = {"If-None-Match": asset.headers["etag"]}
    assert client("elm").get("/assets/style.css", headers=tag).status_code == 304
    operator = client("elm").get("/operator")
    assert operator.headers["cache-control"] == "no-store"
    tag = {"If-None-Match": operator.headers["etag"]}
    assert client("elm").get("/operator", headers=tag).status_code == 200


def test_pages_and_assets_are_read_only() -> None:
    face = Face()
    face.app.router.routes.extend(page_routes(["elm-street"]))
    for path in ("/", "/how", "/assets/style.css"):
        for method in ("POST", "DELETE"):
            answer = face.call(method, path)
            refused(answer, 405)
            assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("name", ["..%2fapp.py", "%2e%2e/app.py", "/..%2fapp.py", "js", "", "x"])
def test_nothing_but_assets_can_be_asked_for(name: str) -> None:
    assert client("elm").get(f"/assets/{name}").status_code == 404


def test_a_wheel_takes_every_file_along() -> None:
    """Package data are named by patterns; a new folder needs a new one."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["hushgrid.web.http"]
    place = ROOT / "src" / "hushgrid" / "web" / "http"
    taken = {path for pattern in patterns for path in place.glob(pattern) if path.is_file()}
    there = {
        path
        for folder in ("frames", "languages", "static")
        for path in (place / folder).rglob("*.*")
    }
    assert {path for path in there if path.is_file()} <= taken
    assert {f"static/{name}" for name in ASSETS} <= {str(p.relative_to(place)) for p in taken}


def test_only_the_first_state_is_visible_before_the_script_runs() -> None:
    for name in ("zone", "zones", "how", "explore", "operator", "demo"):
        parts = re.findall(
            r'<[^>]*data-when="(\w+)"([^>]*)>', (HERE / "frames" / f"{name}.html").read_text()
        )
        assert parts, name
        for state, rest in parts:
            assert rest.endswith(" hidden") == (state != "loading"), f"{name}: {state}"
