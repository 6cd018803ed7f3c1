"""The shape of the source: no import cycles, nothing too large to read at once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "outlast"


@cache
def parse_modules() -> dict[str, ast.Module]:
    """Return every module of the package under its dotted name."""
    modules = {}
    for path in ROOT.rglob("*.py"):
        parts = ("outlast", *path.relative_to(ROOT).with_suffix("").parts)
        modules[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text())
    return modules


def list_imports(name: str) -> set[str]:
    """Return the modules of ours that a module imports anywhere, also in a function or for type checking only."""
    modules, found = parse_modules(), set()
    for node in ast.walk(modules[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import, which this test does not read"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in modules else str(node.module))
    return (found & modules.keys()) - {name}


def remove_leaves(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Remove modules that import nothing of what is left, until none is; what remains is in a cycle or above one."""
    graph = dict(graph)
    while leaves := [name for name, imports in graph.items() if not imports & graph.keys()]:
        for name in leaves:
            del graph[name]
    return graph


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one cycle of imports, in order; none if there is none."""
    rest = remove_leaves(graph)
    if not rest:
        return []
    path = [min(rest)]
    while True:
        following = min(rest[path[-1]] & rest.keys())
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def count_methods(node: ast.ClassDef) -> int:
    """Return how many public methods a class has, without its properties."""
    functions = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    methods = [one for one in functions if not any(ast.unparse(by) == "property" for by in one.decorator_list)]
    return sum(not one.name.startswith("_") for one in methods)


def test_a_cycle_is_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(find_cycle({"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set()})) == ["b", "c"]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: list_imports(name) for name in parse_modules()}
    assert len(graph) > 100
    assert find_cycle(graph) == []


def test_every_public_function_and_class_says_what_it_does() -> None:
    missing = [
        f"{name}.{node.name}"
        for name, module in parse_modules().items()
        for node in module.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert missing == []


def test_no_module_function_or_class_is_too_large_to_read_at_once() -> None:
    large = {str(path): count for path in ROOT.rglob("*.py") if (count := len(path.read_text().splitlines())) > 400}
    for name, module in parse_modules().items():
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    large[f"{name}.{node.name}"] = length
            elif isinstance(node, ast.ClassDef) and (count := count_methods(node)) > 25:
                large[f"{name}.{node.name}"] = count
    assert large == {}
