"""Release gate for detection models: `gate.fit`, `gate.evaluate` and `gate.run`; see `gate.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gate.api import Release, evaluate, fit, run

__all__ = ["Release", "evaluate", "fit", "run"]


def __getattr__(name: str) -> Any:
    """The API on first use: `gate --help` must not wait for scipy."""
    if name in __all__:
        from gate import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
