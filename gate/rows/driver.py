"""What the engines that the user has share: questions in a thread, addresses and errors without credentials."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

from gate.errors import GateError
from gate.rows.engine import SHARE, Reply, Result, installed_memory
from gate.rows.table import Column
from gate.rows.wording import reason_of

TIMEOUT = 10  # seconds in which an address must answer
ADDRESS = re.compile(r"((?:postgres(?:ql)?|spark)://)(?:[^/?#@]*@)?([^/?#@\s]+(?:/[^/?#@\s]*)?)(?:[?#][^@]*)?")
MASTER = re.compile(r"spark:(?:local|yarn|k8s)[\w\[\]*,.:/-]*")
PACKAGES = ("psycopg", "pyspark", "py4j", "pyarrow")


class Driver:
    """An engine elsewhere. A question runs in a thread of its own, so that a signal can end it at once."""

    double: str
    word: str
    extra: str
    start = TIMEOUT

    def __init__(self, url: str, memory: int | None = None) -> None:
        self.memory = memory or int(SHARE * installed_memory())
        self.shown = shown(url)
        self._secrets = _secrets_of(url)
        self._one = threading.Lock()
        try:
            self._run(lambda: self.connect(url), self.start)
        except ImportError as error:
            must = f"--connect: {self.shown} must have its driver here, got: {reason_of(error)}"
            raise GateError(f"{must}; install fpr-gate[{self.extra}]") from None
        except Exception as error:
            must = f"--connect: {self.shown} must let gate in, got: {self.reason(error)}"
            raise GateError(f"{must}; check the address, the user and the password") from None

    # --- what each engine has for itself --------------------------------------------------------------------

    def connect(self, url: str) -> None:
        raise NotImplementedError

    def answer(self, sql: str) -> Reply:
        raise NotImplementedError

    def columns(self, source: str) -> tuple[str, list[Column]]:
        """What stands after FROM for a table or a query in brackets, and its columns."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """End the question that is being answered."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def bytes_order(self, sql: str) -> str:
        """A text that sorts by its bytes."""
        raise NotImplementedError

    def one_form(self, sql: str) -> str:
        """A text in one Unicode form (NFC), where the engine can do that."""
        raise NotImplementedError

    def microseconds(self, sql: str) -> str:
        """A time as microseconds since 1970 in UTC."""
        raise NotImplementedError

    # --- what all do alike ----------------------------------------------------------------------------------

    def ask(self, sql: str) -> Reply:
        """The answer to one SELECT."""
        try:
            return self._run(lambda: self.answer(sql))
        except Exception as error:
            must = f"--connect: {self.shown} must answer what gate asks, got: {self.reason(error)}"
            raise GateError(f"{must}; see that it is up, and run again") from None

    def columns_of(self, source: str) -> tuple[str, list[Column]]:
        """What stands after FROM for a source, and its columns; one that cannot be read is one line."""
        try:
            return self._run(lambda: self.columns(source))
        except Exception as error:
            must = f"{source}: must be a table or query that {self.shown} can read, got: {self.reason(error)}"
            raise GateError(f"{must}; check names and rights") from None

    def reason(self, error: Exception) -> str:
        """What a package says, in one line without users and passwords; an error of gate's is no such reason."""
        if type(error).__module__.partition(".")[0] not in PACKAGES and not isinstance(error, OSError | ValueError):
            raise error
        said = reason_of(error).rpartition(" failed: ")[2].removeprefix("FATAL:").strip(" ;.")
        for secret in self._secrets:
            said = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", said)
        return said

    def _run(self, work: Callable[[], Result], limit: float | None = None) -> Result:
        future: Future[Result] = Future()

        def answer() -> None:
            with self._one:
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=answer, daemon=True).start()
        try:
            if wait([future], limit).not_done:
                raise TimeoutError(f"no answer within {limit} s")
        except BaseException:  # a signal, too: the question is ended, and nobody waits for its answer
            self.interrupt()
            raise
        return future.result()


def shown(url: str) -> str:
    """An address without user, password and options, for messages and records; nothing where it is no address."""
    found = ADDRESS.fullmatch(url)
    return found[1] + found[2] if found else url if MASTER.fullmatch(url) else ""


def _secrets_of(url: str) -> list[str]:
    """Users and passwords, as they are written and as they are meant."""
    place = urlsplit(url)
    found = [*place.netloc.rpartition("@")[0].split(":", 1), os.environ.get("PGUSER", "")]
    found += [value for key, value in parse_qsl(place.query) if "user" in key or "password" in key]
    return [secret for each in found for secret in (each, unquote(each)) if secret]


def plain(column: np.ma.MaskedArray) -> np.ndarray:
    """An array without a mask where nothing is missing, as DuckDB gives it."""
    return column if np.ma.getmaskarray(column).any() else column.data
