"""Models, figures and results to and from disk.

Occupancy model file: one JSON object with

    format            1
    name              what messages call the model
    digest            SHA-256 (hex) of the model's numbers; checked when the file is read
    structural_zeros  null, or a sentence saying who declares the model's zeros impossible, and why
    calendar          slot of each step of the repeating pattern; step 1 is the first
    chains            one object for each block size m:
                        members     houses of each block; null: house i is block i
                        chain_of    chain of each block, 0..C-1
                        initial     (C, 2^m)
                        transition  (slots, C, 2^m, 2^m), rows from the old state

The digest is taken over the text "hushgrid-occupancy/1", then the arrays calendar and, for each
size, members, chain_of, initial, transition: each as its shape written like a Python tuple, then
its values as little-endian int32 or float64.

A zero says that something can never happen and takes protection away; a zero from a finite survey
says no such thing. So a file with zeros is refused unless `structural_zeros` declares them.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.errors import FileError, HushgridError
from hushgrid.model.occupancy import Calendar, Chains, OccupancyModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FORMAT = 1


def save_model(path: Path, model: OccupancyModel, *, structural_zeros: str | None = None) -> Path:
    """Write an occupancy model.

    Args:
        path: The file.
        model: The model.
        structural_zeros: Who declares the model's zeros impossible, and why; needed where it has
            zeros.

    Returns:
        The file written.

    Raises:
        FileError: If the model has zeros that are not declared.
    """
    if model.has_zeros and not structural_zeros:
        raise FileError(_zeros_error(f"model {model.name}"))
    chains = []
    for piece in model.chains:
        in_order = piece.size == 1 and (piece.members[:, 0] == np.arange(len(piece.members))).all()
        chains.append(
            {
                "members": None if in_order else piece.members.tolist(),
                "chain_of": piece.chain_of.tolist(),
                "initial": piece.initial.tolist(),
                "transition": piece.transition.tolist(),
            }
        )
    content = {
        "format": FORMAT,
        "name": model.name,
        "digest": model.digest,
        "structural_zeros": structural_zeros if model.has_zeros else None,
        "calendar": model.calendar.slots.tolist(),
        "chains": chains,
    }
    return write_text(path, json.dumps(content) + "\n")


def load_model(path: Path | str) -> OccupancyModel:
    """Read an occupancy model and check its digest.

    Args:
        path: The file.

    Returns:
        The model.

    Raises:
        FileError: If the file cannot be read, has another format or digest, or zeros that are not
            declared.
    """
    path = Path(path)
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({error}); give a model of format {FORMAT}.") from None
    version = content.get("format") if isinstance(content, dict) else None
    if type(version) is not int or version != FORMAT:
        raise FileError(f"{path} has format {version!r}; give a model of format {FORMAT}.")
    try:
        pieces = tuple(_piece(chains) for chains in content["chains"])
        model = OccupancyModel(pieces, Calendar(content["calendar"]), str(content["name"]))
        declared, digest = content.get("structural_zeros"), content["digest"]
    except HushgridError as error:
        raise FileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileError(
            f"{path} lacks or misstates {error}; see the format in hushgrid.files.results."
        ) from None
    if model.digest != digest:
        raise FileError(
            f"{path} has digest {digest} but its numbers give {model.digest};"
            " it was changed after it was written: restore it, or write it anew."
        )
    if model.has_zeros and not declared:
        raise FileError(_zeros_error(str(path)))
    return model


def _piece(chains: Mapping[str, Any]) -> Chains:
    chain_of = np.array(chains["chain_of"], np.int32)
    members = chains["members"]
    houses = np.arange(len(chain_of))[:, None] if members is None else np.array(members)
    if houses.ndim != 2:
        raise FileError(f"members has shape {houses.shape}; give the houses of each block.")
    return Chains(
        np.array(chains["initial"], np.float64),
        np.array(chains["transition"], np.float64),
        houses.astype(np.int32),
        chain_of,
    )


def _zeros_error(name: str) -> str:
    return (
        f"{name} has zeros but structural_zeros is not set; smooth them away, or say who declares"
        " them impossible and why."
    )


def make_folder(path: Path) -> Path:
    """Make a folder, before the work that fills it.

    Args:
        path: The folder.

    Returns:
        The folder.

    Raises:
        FileError: If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise FileError(f"{path} is not a folder; give another name.") from None
    except OSError as error:
        raise FileError(f"{path} cannot be made ({error}); give a writable place.") from None
    return path


def save_experiment(
    out: Path, table: str, prose: str, values: Mapping[str, Any], figures: Mapping[str, Figure]
) -> list[Path]:
    """Write table and prose, JSON, and every figure of the paper's experiment.

    Args:
        out: Folder.
        table: Table (Markdown).
        prose: Text below it.
        values: Figures for paper.json.
        figures: Drawings by name.

    Returns:
        The files written.
    """
    paths = [
        write_text(out / "paper.md", f"# The paper's experiment\n\n{table}\n\n{prose}\n"),
        write_text(out / "paper.json", json_text(values)),
    ]
    return paths + save_figures(out, figures)


def save_figures(out: Path, figures: Mapping[str, Figure]) -> list[Path]:
    """Write every drawing as PNG and SVG.

    Args:
        out: Folder.
        figures: Drawings by name.

    Returns:
        The files written.
    """
    paths = []
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            paths.append(make_folder(out) / f"{name}.{kind}")
            _draw(figure, paths[-1], dpi=150)
    return paths


def _draw(figure: Figure, to: Any, **options: Any) -> None:
    figure.savefig(to, **options)
    figure.set_layout_engine("none")  # its parts are placed: again they stay where they are


def png_of(figure: Figure) -> bytes:
    """A drawing as PNG.

    Args:
        figure: The drawing.

    Returns:
        The bytes of the PNG.
    """
    sink = io.BytesIO()
    _draw(figure, sink, format="png", dpi=110)
    return sink.getvalue()


def json_text(value: Any) -> str:
    """Indented JSON; a number that is not finite becomes null.

    Args:
        value: Mappings, lists, texts and numbers.

    Returns:
        The JSON text, ended by a line feed.
    """
    from pydantic_core import to_json

    return to_json(value, indent=2, inf_nan_mode="null", ensure_ascii=True).decode() + "\n"


def svg_text(figure: Figure) -> str:
    """A drawing as an SVG element, for a page.

    Args:
        figure: The drawing.

    Returns:
        The element.
    """
    buffer = io.StringIO()
    _draw(figure, buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def read_text(path: Path) -> str:
    """Read a text file.

    Args:
        path: The file (UTF-8).

    Returns:
        Its text.

    Raises:
        FileError: If it does not exist or cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; give the path of a file.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = _reading_fault(error)
        raise FileError(f"{path} cannot be read ({reason}); give a readable text file.") from None


def _reading_fault(error: OSError | UnicodeDecodeError) -> str:
    """Without the name of the file, which the message has already."""
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error.strerror)


def write_text(path: Path, text: str | bytes, *, private: bool = False) -> Path:
    """Write a file as a whole or not at all.

    Args:
        path: The file; its folder is made where needed.
        text: Its text, or bytes.
        private: Whether it is for its owner alone.

    Returns:
        The file.

    Raises:
        FileError: If it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if private:
            partial.touch(0o600)
        partial.write_bytes(text.encode() if isinstance(text, str) else text)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise FileError(f"{path} cannot be written ({error}); give a writable path.") from None
    return path


def sync_folder(path: Path) -> None:
    """Make new names in a folder survive a loss of power.

    Args:
        path: The folder.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


JOURNAL_FORMAT = 3  # of a row; raised where equal settings give other figures than before


class Journal:
    """Rows of a long comparison by promise and day, so that it continues where it stopped.

    One JSON object a line: first the settings, then a row for each day. A line cut off by a crash
    is dropped; a journal of other settings is refused.

    Args:
        path: The file; it is made if it does not exist.
        settings: Settings of the comparison.

    Raises:
        FileError: If the file cannot be read, or holds rows of other settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path, self._rows = path, dict[tuple[float, int], Any]()
        head = json.dumps({"format": JOURNAL_FORMAT, **settings}, sort_keys=True)
        try:
            lines = path.read_text("utf-8").splitlines() if path.exists() else []
        except (OSError, UnicodeDecodeError) as error:
            reason = _reading_fault(error)
            raise FileError(f"{path} cannot be read ({reason}); give another folder.") from None
        if lines and lines[0] != head:
            raise FileError(
                f"{path} holds days of other settings; give another --out, or delete it."
            )
        entries = [entry for entry in map(_parse_entry, lines[1:]) if entry is not None]
        for entry in entries:
            self._rows[entry["epsilon"], entry["day"]] = entry["row"]
        write_text(path, "\n".join([head, *map(json.dumps, entries)]) + "\n")

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, epsilon: float, day: int) -> Any:
        """A row, or None."""
        return self._rows.get((epsilon, day))

    def put(self, epsilon: float, day: int, row: Any) -> None:
        """Store a row; it survives the end of the process."""
        self._rows[epsilon, day] = row
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"epsilon": epsilon, "day": day, "row": row}) + "\n")
        except OSError as error:
            raise FileError(
                f"{self._path} cannot be written ({error}); give a writable folder."
            ) from None


def _parse_entry(line: str) -> Any:
    try:
        entry = json.loads(line)
        return entry if {"epsilon", "day", "row"} <= set(entry) else None
    except (ValueError, TypeError):
        return None
