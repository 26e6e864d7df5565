"""Release gate for detection models: `gate.fit`, `gate.evaluate` and `gate.run`; `gate.run_system` for several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gate.gating import Release, evaluate, fit, run
    from gate.systems import SystemRelease, run_system

__all__ = ["Release", "SystemRelease", "evaluate", "fit", "run", "run_system"]


def __getattr__(name: str) -> Any:
    """The API on first use: `gate --help` must not wait for scipy."""
    if name in __all__:
        from gate import gating, systems

        return getattr(gating if hasattr(gating, name) else systems, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
