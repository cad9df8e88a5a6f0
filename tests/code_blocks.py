"""Code blocks of the documents."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def code_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
