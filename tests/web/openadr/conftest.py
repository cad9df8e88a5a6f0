"""One running VTN for the tests of a module that do not change how it is set up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.openadr.setup import World, world


@pytest.fixture(scope="module")
def vtn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("vtn"), mqtt_uris=("mqtt://127.0.0.1:1883",)) as made:
        yield made
