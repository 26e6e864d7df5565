"""Release gate for detection models: `gate.fit`, `gate.evaluate` and `gate.run`; see `gate.gating`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gate.gating import Release, evaluate, fit, run

__all__ = ["Release", "evaluate", "fit", "run"]


def __getattr__(name: str) -> Any:
    """The API on first use: `gate --help` must not wait for scipy."""
    if name in __all__:
        from gate import gating

        return getattr(gating, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
