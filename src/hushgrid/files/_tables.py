"""Tables of TOML files as pydantic reads them: their keys, their values, and every mistake at once.

A table is a frozen dataclass whose fields are `Annotated` with what a value must be and the fix
where it is not. A mistake has one of four forms:

    fix     text of the fix: "KEY is VALUE; TEXT."
    secret  the same, and the value is not displayed: "KEY is not usable; TEXT."
    rest    text after the key: "KEY TEXT"
    whole   a sentence with its own key
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from hushgrid.errors import HushgridError
from hushgrid.files.toml import Faults, display, seconds_of

Loc = tuple[str | int, ...]

# ---- mistakes

_FORMS = ("fix", "secret", "rest", "whole", "missing")


def mistake(text: str, form: str = "rest") -> PydanticCustomError:
    """A mistake at the value that is validated.

    Args:
        text: Its text.
        form: Its form.

    Returns:
        The error to raise.
    """
    return PydanticCustomError(form, text)


class fix:  # noqa: N801
    """Annotation: what a value must be, and the fix that replaces pydantic's own words.

    Mistakes within the value that have their own fix stay as they are.

    Args:
        text: The fix.
        form: "secret" where the value must not be displayed.
        limits: As in pydantic's `Field`.
    """

    def __init__(self, text: str, form: str = "fix", **limits: Any) -> None:
        self.text, self.form, self.limits = text, form, limits

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the value, strictly if it is no list or table."""
        limits = self.limits | ({"strict": True} if kind in (str, bool, int, float) else {})
        limits |= {"allow_inf_nan": False} if kind is float else {}
        inner = handler(Annotated[kind, Field(**limits)])
        return core_schema.no_info_wrap_validator_function(self._check, inner)

    def _check(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if all(entry["type"] in _FORMS for entry in error.errors()):
                raise
        except (OSError, ArithmeticError):  # an odd name of a file, a number beyond all floats
            pass
        raise mistake(self.text, self.form)


class Mistakes:
    """The mistakes of one table, raised together."""

    def __init__(self) -> None:
        self._errors: list[InitErrorDetails] = []
        self._guesses: set[Any] = set()  # keys that have the value of an unknown one

    def add(self, text: str, *loc: str | int, form: str = "rest", **context: Any) -> Mistakes:
        """Add a mistake; none at a key that has the value of an unknown one.

        Args:
            text: Its text.
            loc: The key within the table.
            form: Its form.
            context: The `value`, `depends_on` (further keys), and `guesses` at the key.

        Returns:
            The mistakes so far.
        """
        value = context.pop("value", None)
        kind: Any = PydanticCustomError(form, text, context) if form != "missing" else form
        if not self._guesses.intersection(loc[:1]):
            self._errors.append({"type": kind, "loc": loc, "input": value})
        return self

    @contextmanager
    def within(self, *loc: str | int) -> Iterator[None]:
        """Add what is raised inside."""
        try:
            yield
        except ValidationError as error:
            for entry in error.errors(include_url=False):
                context = {"value": entry["input"], **entry.get("ctx", {})}
                self.add(entry["msg"], *loc, *entry["loc"], form=entry["type"], **context)
        except HushgridError as error:
            self.add(str(error), *loc, form="whole")

    def with_known_keys(self, table: Any, keys: Iterable[str]) -> dict[str, Any]:
        """A table in which each unknown key is read as the known one that is nearest to it.

        Args:
            table: The table, or what was given in its place.
            keys: The known keys.

        Returns:
            The table.

        Raises:
            ValidationError: If it is no table.
        """
        if not isinstance(table, Mapping):
            self.add("give a table", form="fix", value=table).check()
        content, names = dict(table), sorted(keys)
        for key in [key for key in table if key not in names]:
            free = [name for name in names if name not in content]
            close = (
                get_close_matches(key.lower(), candidates, 1, 0.5) for candidates in (free, names)
            )
            match = next((name for candidates in close for name in candidates), None)
            hint = f"did you mean {match}? Known keys: " if match else "use "
            guesses = [match] if match in free else []
            self.add(f"is not known; {hint}{', '.join(names)}.", key, guesses=guesses)
            content |= dict.fromkeys(guesses, content.pop(key))
            self._guesses |= {*guesses}
        return content

    def at(self, key: str) -> bool:
        """True if there is a mistake at the key."""
        return any(entry.get("loc", ())[:1] == (key,) for entry in self._errors)

    def check(self) -> None:
        """Raise the mistakes, if there are any."""
        if self._errors:
            raise ValidationError.from_exception_data("table", self._errors)


def read(kind: Any, table: Any, loc: Loc, faults: Faults, context: Context | None = None) -> Any:
    """Read a table.

    Args:
        kind: Its type.
        table: The table, or what was given in its place.
        loc: Its key.
        faults: Receives every mistake.
        context: For validators.

    Returns:
        The value; None where there is a mistake.
    """
    try:
        return adapter(kind).validate_python(table, context=context)
    except ValidationError as error:
        entries = error.errors(include_url=False)
    for entry in entries:
        place, details = (*loc, *entry["loc"]), entry.get("ctx", {})
        if entry["type"] == "missing" and len(place) == 1:
            faults.add_missing(key_of(place))
            continue
        text = {
            "fix": f"is {display(entry['input'])}; {entry['msg']}.",
            "secret": f"is not usable; {entry['msg']}.",
            "missing": "is not set; give it a value.",
        }.get(entry["type"], entry["msg"])
        sentence = text if entry["type"] == "whole" else f"{key_of(place, _spell)} {text}"
        keys = [key_of((*place[:-1], name)) for name in details.get("depends_on", ())]
        faults.add(key_of(place), sentence, *keys)
        faults.elsewhere |= {key_of((*place[:-1], key)) for key in details.get("guesses", ())}
    return None


def key_of(loc: Loc, spell: Callable[[str], str] = str) -> str:
    """A key as in messages.

    Args:
        loc: Its parts: keys of tables, and numbers of elements.
        spell: How a part is written.

    Returns:
        The key; "file" for the whole file.

    >>> key_of(("houses", 0, "bound"))
    'houses[0].bound'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{spell(part)}" for part in loc)
    return "".join(parts).removeprefix(".") or "file"


def _spell(part: str) -> str:
    return part if re.fullmatch(r"[\w -]{1,80}", part) else display(part)


# ---- tables

_KEYS = {"from_": "from", "tokens": "token_digests", "origin": "provenance"}  # by field


def _key(field: str) -> str:
    return _KEYS.get(field, field)


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The validator of a type.

    Args:
        kind: The type.

    Returns:
        The validator, made once.
    """
    return TypeAdapter(kind)


@cache
def keys_of(kind: Any) -> dict[str, bool]:
    """Keys of a table.

    Args:
        kind: The dataclass of the table.

    Returns:
        Whether each key must be set.
    """
    return {
        _key(field.name): field.default is MISSING and field.default_factory is MISSING
        for field in fields(kind)
        if field.init and field.name not in ("min_scale", "offset")  # which no file sets
    }


class FileTable:
    """A table of a file; its keys are the fields of the dataclass.

    Attributes:
        unread: Further keys, which others read.
        refusals: Keys that are refused, with what to do instead.
    """

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", alias_generator=_key)
    unread: ClassVar[frozenset[str]] = frozenset()
    refusals: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:  # noqa: ARG003
        """Mistakes that the keys alone show: a key and the sentence after it."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, table: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        """Add unknown keys to pydantic's mistakes."""
        mistakes, keys = Mistakes(), {*keys_of(cls), *cls.unread}  # type: ignore[arg-type]
        if isinstance(table, Mapping) and (refused := cls.refusals.keys() & table):
            for key in refused:
                mistakes.add(cls.refusals[key], key, form="fix", value=table[key])
            table = {key: value for key, value in table.items() if key not in refused}
        content = mistakes.with_known_keys(table, keys)
        for key, text in cls.check_keys(content):
            mistakes.add(text, key)
        with mistakes.within():
            result = handler(
                {key: value for key, value in content.items() if key not in cls.unread}
            )
        mistakes.check()
        return result


def build(kind: Any, table: Any, unread: Iterable[str] = (), hidden: Iterable[str] = ()) -> Any:
    """Construct a dataclass of the core from a table; it checks its fields itself.

    Args:
        kind: The dataclass. Its own `tables` are dataclasses that some of its fields hold; its own
            `unless` names keys that must be set where another one is not.
        table: The table, or what was given in its place.
        unread: Further keys, which others read.
        hidden: Keys of the dataclass that the table does not have.

    Returns:
        The value.

    Raises:
        ValidationError: Every mistake: a field that is refused is replaced, to find the next one.
    """
    mistakes, types = Mistakes(), {field.name: str(field.type) for field in fields(kind)}
    content = mistakes.with_known_keys(table, {*keys_of(kind), *unread} - {*hidden})
    content = {key: value for key, value in content.items() if key in types}
    spares = getattr(kind, "unless", {})
    instead = {key for key, spare in spares.items() if spare not in content}
    needed = {key: required or key in instead for key, required in keys_of(kind).items()}

    def replace(key: str) -> None:
        content.pop(key, None)
        if needed[key]:
            content[key] = 1

    for key, required in needed.items():
        value = content.get(key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if required and key not in content:
            mistakes.add("", key, form="missing")
            replace(key)
        elif key in content and types[key] in ("float", "int") and not number:
            mistakes.add("give a number", key, form="fix", value=value)
            replace(key)
    for key, inner_kind in getattr(kind, "tables", {}).items():
        if key in content:
            inner = content.pop(key)
            with mistakes.within(key):
                content[key] = build(inner_kind, inner)
            for name, spare in spares.items():
                if spare == key and key not in content:  # refused, and so are its mistakes alone
                    content.setdefault(name, 1)
    for _ in types:
        try:
            result = kind(**content)
            break
        except HushgridError as error:
            loc, keys = error.fields[:1], error.fields[1:]
            mistakes.add(str(error), *loc, form="whole", depends_on=keys)
            refused_key = next((key for key in error.fields if key in content), None)
            if refused_key is None:
                break
            replace(refused_key)
        except (TypeError, ValueError, ArithmeticError) as error:
            mistakes.add(f"holds a value of the wrong kind or size ({error}).")
            break
    mistakes.check()
    return result


# ---- values


@dataclass(frozen=True, slots=True)
class Context:
    """What validators know of the file.

    Attributes:
        folder: Folder of the file.
        seconds: Length of a step [s].
        bound: Most that a house may read in a step [Wh], for its laws.
        export: Most that it may export in a step [Wh], for its laws.
        service: Whether a service reads the file.
    """

    folder: Path
    seconds: int = 900
    bound: int = 2**31 - 1
    export: int = 0
    service: bool = False


Info = ValidationInfo[Context]


def converted(convert: Callable[[Any], Any], text: str) -> BeforeValidator:
    """Read a value by a function.

    Args:
        convert: Returns None for a value that cannot be used.
        text: The fix.

    Returns:
        The validator.
    """

    def read(value: Any) -> Any:
        result = convert(value)
        if result is None:
            raise mistake(text, "fix")
        return result

    return BeforeValidator(read)


def duration(example: str, low: int, high: int) -> BeforeValidator:
    """Read a duration in seconds.

    Args:
        example: A duration for the message.
        low: Least seconds.
        high: Most seconds.

    Returns:
        The validator.
    """

    def convert(value: Any) -> int | None:
        seconds = seconds_of(value)
        return seconds if seconds is not None and low <= seconds <= high else None

    return converted(convert, f"give seconds from {low} to {high}, or a text such as {example!r}")


def one_line(value: Any) -> str:
    """Check a text.

    Args:
        value: Any value.

    Returns:
        The text.

    Raises:
        ValueError: If it is no text of one line.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def _path(value: Any, info: Info) -> Path:
    if "://" in one_line(value):
        raise ValueError
    return Path(info.context.folder / value)


def _store(value: Any, info: Info) -> str:
    """A URL as it is; a path from the file's folder."""
    if "://" in one_line(value):
        if not re.match(r"postgres(ql)?://[^/]", value):
            raise ValueError
        return str(value)
    scheme = "sqlite:" if value.startswith("sqlite:") else ""
    return f"{scheme}{info.context.folder / value.removeprefix('sqlite:')}"


def _without_wildcards(topic: str) -> str:
    if "+" in topic or "#" in topic:
        raise mistake("give a topic without wildcards", "fix")
    return topic


_TOPIC = "give an MQTT topic such as 'hushgrid/prices'"
Topic = Annotated[str, BeforeValidator(one_line), fix(_TOPIC, max_length=1000)]
PlainTopic = Annotated[Topic, AfterValidator(_without_wildcards)]
Text = Annotated[str, fix("give a text")]
Line = Annotated[str, BeforeValidator(one_line), fix("give a text on one line")]
FilePath = Annotated[Path, BeforeValidator(_path), fix("give a path")]
Store = Annotated[
    str,
    BeforeValidator(_store),
    fix("give a path, or a URL such as 'postgresql://host/database'", "secret"),
]
Bool = Annotated[bool, fix("give true or false")]
Whole = Annotated[int, fix("give a whole number, 1 or more, below 2^31", ge=1, lt=2**31)]
Positive = Annotated[float, fix("give a positive number", gt=0)]
Probability = Annotated[float, fix("give a probability from 0 to 1", ge=0, le=1)]
