"""Engines: joblib's backends for Dask, Ray and Spark. What a worker gives back is small; runs lie in `--scratch`."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from gate.errors import GateError
from gate.scores.wording import reason_of

Item = TypeVar("Item")
Result = TypeVar("Result")

TIMEOUT = 10  # seconds in which a scheduler must answer


def check(engine: str) -> str:
    """The name of an engine, as `dask:tcp://HOST:8786`, `ray:ADDRESS`, `spark` or `local`."""
    kind, _, address = engine.partition(":")
    if engine == "local" or (kind in ("dask", "ray") and address) or (kind == "spark" and not address):
        return engine
    raise GateError(
        f"--engine: must be local, dask:tcp://HOST:PORT, ray:ADDRESS or spark, got {engine[:80]!r}; write one of these"
    )


def run(engine: str, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Apply a function to every item on the workers of an engine; the results keep the order of the items."""
    kind, _, address = engine.partition(":")
    try:
        import joblib

        _connect(kind, address)
        form = "generator" if kind == "dask" else "list"  # what each backend supports
        with joblib.parallel_config(backend=kind, n_jobs=-1):
            yield from joblib.Parallel(return_as=form)(joblib.delayed(function)(item) for item in items)
    except GateError:
        raise
    except ImportError as error:
        raise GateError(
            f"--engine: must be installed here and on the workers, got: {reason_of(error)}; install fpr-gate[{kind}]"
        ) from None
    except Exception as error:  # an engine may raise anything when its workers are gone
        cause = next((each for each in _causes(error) if isinstance(each, GateError)), None)
        if cause is not None:
            raise cause from None
        raise GateError(
            f"--engine: must have workers that answer, got {engine}: {type(error).__name__}: {reason_of(error)}; "
            "start them, or use --engine local"
        ) from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


@lru_cache
def _connect(kind: str, address: str) -> object:
    """Connect once for a command; what engines print on stderr about themselves does not belong in its log."""
    if address:
        _require_answer(address)
    if kind == "dask":
        from dask.distributed import Client  # the import sets the levels of its loggers, so they are silenced after it

        for name in ("asyncio", *filter(re.compile(r"(distributed|tornado)\b").match, logging.root.manager.loggerDict)):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        return Client(address, timeout=TIMEOUT, set_as_default=True)  # type: ignore[no-untyped-call, unused-ignore]
    if kind == "ray":
        import ray
        from ray.util.joblib import register_ray

        if not ray.is_initialized():
            ray.init(address=address, logging_level=logging.CRITICAL, log_to_driver=False)
        register_ray()  # type: ignore[no-untyped-call, unused-ignore]
        return None
    from joblibspark import register_spark

    return register_spark()


def _require_answer(address: str) -> None:
    """Refuse an address where no server answers: both engines would wait for minutes; their servers speak first."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme in ("", "tcp", "ray") and port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT) as connection:
            if not connection.recv(1):
                raise ConnectionError("the connection was closed")
