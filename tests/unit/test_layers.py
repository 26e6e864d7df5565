"""Values flow one way: a module imports only from its left, and each library belongs to the modules named here."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from repository import PACKAGE, ROOT

FLOORS = [
    ["words", "errors", "contract", "progress", "stored", "names", "sources", "storage"],
    ["policy", "statistics", "rows"],
    ["calibration"],
    ["planning"],
    ["checks", "flagged"],
    ["verdict", "record", "ledger", "history"],
    ["report"],
    ["inspection", "gating", "systems", "verification"],
    ["starter", "cli", "__main__"],
]
ORDER = [name for floor in FLOORS for name in floor]
OWNERS = {
    "pydantic": {"stored", "names", "sources", "policy", "statistics", "calibration", "checks", "record"},
    "pydantic_core": {"names", "policy", "checks"},
    "yaml": {"policy"},
    "duckdb": {"rows"},
    "pyarrow": {"rows"},
    "psycopg": {"rows"},
    "pyspark": {"rows"},
    "py4j": {"rows"},
    "fsspec": {"rows"},
    "sklearn": {"calibration"},
    "joblib": {"calibration"},
    "onnx": {"calibration"},
    "scipy": {"statistics"},
    "jinja2": {"report"},
    "matplotlib": {"report"},
    "rich": {"report"},
    "click": {"cli"},
}
SHARED = {"numpy"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    """The room that a file belongs to; `gate/__init__` belongs to none."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Every module that a file imports, with the line: inside functions and under TYPE_CHECKING too."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide where they point"
            module, folder = str(node.module), PACKAGE.parent.joinpath(*str(node.module).split("."))
            for alias in node.names:
                within = module == "gate" or (folder / f"{alias.name}.py").exists()
                found.append((node.lineno, f"{module}.{alias.name}" if within else module))
    return found


def all_imports() -> Iterator[tuple[Path, int, str]]:
    return ((path, line, name) for path in FILES for line, name in imports(path))


def test_every_module_has_its_place_in_the_order() -> None:
    assert {module_of(path) for path in FILES} - {*ORDER} == set()
    assert {*ORDER} - {module_of(path) for path in FILES} == set()


def test_a_module_imports_only_from_its_left() -> None:
    for path, line, name in all_imports():
        if name.split(".")[0] == "gate":
            module, imported = module_of(path), name.split(".")[1]
            assert {module, imported} <= {*ORDER}, f"{path}:{line} imports {name}"
            if imported != module:
                assert ORDER.index(imported) < ORDER.index(module), f"{path}:{line} imports {name}"


@pytest.mark.parametrize("package", sorted({path.parent for path in FILES} - {PACKAGE}), ids=lambda path: path.name)
def test_the_files_of_a_package_import_in_one_direction(package: Path) -> None:
    """They can be put in an order in which each imports only from those before it."""
    prefix = ".".join(package.relative_to(PACKAGE.parent).parts)
    left = {}
    for path in package.glob("*.py"):
        named = {name for _, name in imports(path) if name == prefix or name.startswith(f"{prefix}.")}
        inner = {name.removeprefix(prefix).lstrip(".").partition(".")[0] or "__init__" for name in named}
        left[path.stem] = {name for name in inner if (package / f"{name}.py").exists()}
    while left:
        free = [name for name, needs in left.items() if not needs & left.keys()]
        assert free, f"{sorted(left)} import one another"
        left = {name: needs for name, needs in left.items() if name not in free}


def test_a_library_is_imported_only_by_its_owners() -> None:
    for path, line, name in all_imports():
        library = name.split(".")[0]
        if library != "gate" and library not in sys.stdlib_module_names | SHARED:
            assert library in OWNERS, f"{path}:{line} imports {library}, which no module owns"
            assert module_of(path) in OWNERS[library], f"{path}:{line} imports {library}"


def test_the_package_itself_imports_nothing_but_the_api() -> None:
    assert {name for _, name in imports(PACKAGE / "__init__.py")} == {
        "__future__",
        "typing",
        "gate.gating",
        "gate.systems",
    }


def test_the_rules_see_imports_wherever_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from gate.cli import main\n"
        "def f():\n    import scipy.special as s, os\n    from gate import record, errors\n"
    )
    assert [name for _, name in imports(source)] == [
        "typing",
        "gate.cli",
        "scipy.special",
        "os",
        "gate.record",
        "gate.errors",
    ]


def test_the_readme_shows_the_floors() -> None:
    shown = re.search(r"^    (words, .*?cli)$", (ROOT / "gate" / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    lines = [re.split(r", ", line.strip()) for line in shown[1].splitlines()]
    assert lines == [[name for name in floor if name != "__main__"] for floor in FLOORS]


MOST_LINES, MOST_IN_FUNCTION = 450, 60


def test_a_file_and_its_functions_can_be_read_at_once() -> None:
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= MOST_IN_FUNCTION, f"{path}: {node.name}"


MOST_ALIKE = 5  # lines


def lines_of_code(path: Path) -> list[tuple[int, str]]:
    """The lines that say something, with their numbers: no imports, no comments, no blank lines, no lone brackets."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in left_out]
    return [(number, line) for number, line in numbered if re.search(r"\w", line) and not line.startswith("#")]


def test_no_run_of_lines_stands_twice() -> None:
    places: dict[tuple[str, ...], str] = {}
    repeated = []
    for path in FILES:
        lines = lines_of_code(path)
        for start in range(len(lines) - MOST_ALIKE):
            run = tuple(line for _, line in lines[start : start + MOST_ALIKE + 1])
            place = f"{path.relative_to(PACKAGE)}:{lines[start][0]}"
            if run in places:
                repeated.append(f"{place} as {places[run]}")
            places.setdefault(run, place)
    assert repeated == []


def names_a_type(node: ast.stmt) -> bool:
    """Another name for a type, or a variable that stands for types."""
    made = node.value if isinstance(node, ast.Assign) else None
    is_variable = isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "TypeVar"
    return isinstance(made, ast.Subscript) or is_variable


def test_no_two_types_have_one_name() -> None:
    """A leading underscore is no part of a name: `_Rows` beside `Rows` would be two."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in parsed(path).body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign) and names_a_type(node):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                homes.setdefault(name.lstrip("_"), []).append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
