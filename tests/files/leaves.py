"""The values of nested tables."""

from __future__ import annotations

from typing import Any


def leaves(table: Any) -> int:
    inner = table.values() if isinstance(table, dict) else table
    if not isinstance(table, (dict, list)):
        return 1
    return sum(leaves(one) for one in inner)
