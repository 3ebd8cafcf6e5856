"""The code a pipeline step depends on: the import closure of its modules, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path


def code_of(*modules: str, without: Collection[str] = (), package: Path = Path("nbl")) -> list[str]:
    """Source files of the package that these modules may run, sorted.

    Followed are all imports, those within functions too; of the packages around a module, only what their `__init__.py`
    imports at once. Other files in the folder of a package, such as C++ or tables of data, count as its code.

    Args:
        modules: names such as `nbl.train`; `nbl.bench.*` stands for all modules of a package.
        without: modules and packages that are left out, with what only they import.
        package: folder of the package.
    """
    waiting = [(name, True) for pattern in modules for name in _matching(package, pattern)]
    seen: set[tuple[str, bool]] = set()
    files: set[Path] = set()
    while waiting:
        name, whole = entry = waiting.pop()
        if entry in seen or any(f"{name}.".startswith(f"{other}.") for other in without):
            continue
        seen.add(entry)
        file = _file(package, name)
        if file is None:
            raise FileNotFoundError(f"{package} has no module {name}")
        files.add(file)
        if file.name == "__init__.py" and file.parent != package:
            files |= {path for path in file.parent.rglob("[!.]*.*") if path.suffix not in {".py", ".pyc"}}
        waiting += [(".".join(name.split(".")[:depth]), False) for depth in range(1, name.count(".") + 1)]
        waiting += [(found, True) for found in _imports(file, whole) if _file(package, found)]
    return sorted(map(str, files))


def _matching(package: Path, pattern: str) -> list[str]:
    if not pattern.endswith(".*"):
        return [pattern]
    folder = package.parent.joinpath(*pattern.split(".")[:-1])
    return [f"{pattern[:-2]}.{path.stem}" for path in sorted(folder.glob("[!_]*.py"))]


def _file(package: Path, name: str) -> Path | None:
    path = package.parent.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _imports(file: Path, whole: bool) -> frozenset[str]:
    """Names that a file imports, each of `from a import b` as `a` and `a.b`; unless `whole`, outside functions only.

    What is imported for type checkers alone is left out.
    """
    return frozenset(_names(ast.parse(file.read_bytes()), whole))


def _names(node: ast.AST, whole: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    elif whole or not isinstance(node, ast.FunctionDef):
        for child in ast.iter_child_nodes(node):
            yield from _names(child, whole)
