"""Every error that hushgrid raises on purpose, in one tree.

A message is one sentence with the field, the value and the fix.
"""

from importlib import import_module
from typing import Any, NamedTuple


class HushgridError(ValueError):
    """Root of all errors raised on purpose; catch this one to catch them all.

    Args:
        message: One sentence with the field, the value and the fix.
        fields: Names of the fields of the value that was refused. The first one is at fault, the
            others are those it does not fit; empty where the error is about no single field.
    """

    def __init__(self, message: str = "", *, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields


class ReadingError(HushgridError):
    """A meter reading that cannot be used. Its message never contains the reading."""


class ZoneError(HushgridError):
    """A zone, bound or tariff that cannot be used."""


class ModelError(HushgridError):
    """An occupancy model, or a set of them, that cannot be used."""


class ConsumptionError(HushgridError):
    """A consumption law, or its fit to a zone, that cannot be used."""


class PolicyError(HushgridError):
    """A privacy policy that cannot be kept, or a calibrator's answer that cannot be trusted."""


class PlanError(HushgridError):
    """A promise that no plan can keep; the message says why and what could be kept."""


class HorizonError(HushgridError):
    """A release requested where the policy has none: beyond its horizon."""


class NoiseError(HushgridError):
    """A noise scale that gives no protection, or a source that cannot draw."""


class ExtraError(HushgridError):
    """A command that needs an extra which is not installed."""


def require(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Args:
        module: Name of the module.
        extra: Name of the extra.

    Returns:
        The module.

    Raises:
        ExtraError: If the module cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ExtraError(
            f"{module} is not installed; get it with pip install 'hushgrid[{extra}]'."
        ) from None


class FileError(HushgridError):
    """A file that cannot be read as what it should be."""


class Problem(NamedTuple):
    """One mistake in a configuration file.

    Attributes:
        file: Name of the file.
        line: Line in the file, counted from 1; 0 where the file cannot be read.
        key: The key at fault.
        message: One sentence with the field, the value and the fix; without a line it names the
            file itself.
    """

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else self.message


class ConfigError(FileError):
    """A service file that cannot be used.

    Args:
        problems: Every mistake in the file. The error's text has one line for each.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class IntakeError(HushgridError):
    """An input no reading can be taken from, or a mapping that fits none."""


class LedgerError(HushgridError):
    """A ledger that cannot be trusted, or a record that may not be added to it."""


class LedgerDamageError(LedgerError):
    """A zone's ledger of which records are changed or missing."""


class LedgerAwayError(LedgerError):
    """A ledger whose database is temporarily unavailable: try again later."""


class LedgerHeldError(LedgerError):
    """A zone's ledger has another writer."""


class MeterError(HushgridError):
    """A meter store that cannot do what was requested. Its message never contains a reading."""


class MeterDamageError(MeterError):
    """A meter store of which readings are damaged. Its message never contains a reading."""


class MeterRetryError(MeterError):
    """A meter store that is temporarily unavailable: nothing was counted, try again later."""


class BatchError(HushgridError):
    """A batch of readings that cannot be aggregated. Its message never contains a reading."""


class VtnError(HushgridError):
    """A store of VEN objects that cannot be used. Its message never shows what it holds."""


class ServiceError(HushgridError):
    """A service that cannot run as its file says."""


class AccessError(HushgridError):
    """A client that is not allowed to do what it requests.

    Args:
        kind: OAuth's error code (RFC 6749, RFC 6750).
        message: One sentence with the reason and the fix.
        wait: Time until the client may try again [s]; 0 where another try would not help.
    """

    def __init__(self, kind: str, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.kind, self.wait = kind, wait


def connection_reason(error: BaseException) -> str:
    """Why a connection failed, in words.

    Args:
        error: What was raised; what caused it may say more.

    Returns:
        Such as "connection refused".

    >>> connection_reason(ConnectionRefusedError(111, "Connection refused"))
    'connection refused'
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[:1].lower() + cause.strerror[1:]
        cause = cause.__cause__ or cause.__context__
    return "no answer of hushgrid serve"
