"""The shape of the source: which room may know which, and how large a file may grow (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import infeed

SOURCE = Path(infeed.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {".".join(("infeed", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in FILES}
MODULES = {name.removesuffix(".__init__"): path for name, path in MODULES.items()}

# What a room may import besides itself. Rooms that are not named here may import what they like.
MAY_KNOW = {
    "errors": set(),
    "tensors": set(),
    "trees": {"errors"},
    "order": {"errors"},
    "plan": {"errors", "order", "trees"},
    "slots": {"errors"},
    "sources": {"errors", "slots", "tensors", "trees"},
    "collate": {"errors", "tensors", "trees"},
    "layout": {"collate", "errors", "tensors", "trees"},
    "wire": {"layout", "tensors"},
    "tasks": {"layout", "wire"},
    "workers": {"errors", "layout", "recipe", "runner", "slots", "tasks", "tensors", "wire"},
}
# Only these stand above the loader.
MAY_KNOW_THE_LOADER = {"", "cli", "demo", "doctor", "jax", "remote", "testing", "torch"}
FRAMEWORKS = {"jax", "lightning", "ray", "tensorflow", "torch", "torchvision"}
# What may be imported inside a function, to keep it out of a bare `import infeed`.
EXTRAS = {"cloudpickle", "psutil", "pyarrow", "rich", "torch", "zmq"}
LAZY = {("infeed.crews", "infeed.workers.processes"), ("infeed.cli", "infeed.demo")}
NO_NAMES = {"base", "common", "core", "helpers", "misc", "util", "utils"}
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 500, 60


def room(module: str) -> str:
    """The first name below infeed: `infeed.slots.arena` is in `slots`; `infeed` itself is in ``."""
    return module.split(".")[1] if "." in module else ""


def imported(statement: ast.AST) -> list[str]:
    """The modules an import statement names; `from infeed import plan` is the module `infeed.plan`."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if not isinstance(statement, ast.ImportFrom):
        return []
    module = statement.module or ""
    inner = [f"{module}.{alias.name}" for alias in statement.names]
    found = [name for name in inner if name in MODULES]
    return found if len(found) == len(inner) else [module, *found]


def only_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Every module imported at run time, and whether that happens inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and only_for_types(node.test):
            continue
        for name in imported(node):
            yield name, inside
        within = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, within)


def layer_breaches(module: str, tree: ast.AST) -> list[str]:
    """Imports that point the wrong way."""
    own = room(module)
    found = []
    for name, _ in imports(tree):
        if name.partition(".")[0] != "infeed" or room(name) == own:
            continue
        if own in MAY_KNOW and room(name) not in MAY_KNOW[own]:
            found.append(f"{module} imports {name}")
        if room(name) in ("", "loader") and own not in MAY_KNOW_THE_LOADER:
            found.append(f"{module} imports {name}, and only what stands above the loader may")
    return found


def framework_breaches(module: str, tree: ast.AST) -> list[str]:
    """Imports of a framework anywhere but in the files named after one."""
    if any(part.startswith(("torch", "jax", "ray")) for part in module.split(".")[1:]):
        return []
    found = [(name, inside) for name, inside in imports(tree) if name.partition(".")[0] in FRAMEWORKS]
    if module == "infeed.tensors" and found == [("torch", True)]:
        return []  # turns an array into a tensor where the user's own samples are tensors
    return [f"{module} imports {name}" for name, _ in found]


def hidden_imports(module: str, tree: ast.AST) -> list[str]:
    """Imports inside functions that keep no extra out of `import infeed`."""
    return [
        f"{module} imports {name} inside a function"
        for name, inside in imports(tree)
        if inside and name.partition(".")[0] not in EXTRAS and (module, name) not in LAZY
    ]


def long_functions(module: str, tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions]
    return [f"{module}.{name} has {lines} lines" for name, lines in lengths if lines > MOST_LINES_OF_A_FUNCTION]


def opens_badly(tree: ast.Module) -> bool:
    """Whether a file does not open with one line that says what it is; a drawing may follow after a blank one."""
    lines = (ast.get_docstring(tree) or "").splitlines()
    return not lines or not lines[0].endswith(".") or (len(lines) > 1 and bool(lines[1]))


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            found = visit(other, [*path, module])
            if found:
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


@pytest.mark.parametrize("breaches", [layer_breaches, framework_breaches, hidden_imports, long_functions])
def test_no_file_breaks_a_rule(trees, breaches):
    found = [breach for module, tree in trees.items() for breach in breaches(module, tree)]
    assert not found, "\n".join(found)


def test_no_modules_import_each_other_in_a_ring(trees):
    graph = {
        module: {name for name, inside in imports(tree) if not inside and name in MODULES}
        for module, tree in trees.items()
    }
    assert not circle(graph)


def test_every_file_opens_with_one_line_that_says_what_it_is(trees):
    assert not [module for module, tree in trees.items() if opens_badly(tree)]


def test_no_file_is_too_long():
    lengths = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    too_long = {module: lines for module, lines in lengths.items() if lines > MOST_LINES}
    assert not too_long


def test_no_room_is_called_after_nothing_in_particular():
    assert not {part for module in MODULES for part in module.split(".")} & NO_NAMES


def test_the_rules_speak_of_rooms_that_exist():
    there = {room(module) for module in MODULES}
    named = {*MAY_KNOW, *(name for known in MAY_KNOW.values() for name in known)}
    assert named <= there


@pytest.mark.parametrize(
    ("breaches", "module", "code"),
    [
        (layer_breaches, "infeed.order.chain", "from infeed.slots import Arena"),
        (layer_breaches, "infeed.plan", "from infeed import layout"),
        (layer_breaches, "infeed.slots.arena", "import infeed.sources.arrays"),
        (layer_breaches, "infeed.workers.threads", "def work():\n    from infeed.loader import Loader"),
        (layer_breaches, "infeed.recipe", "from infeed import Loader"),
        (framework_breaches, "infeed.collate.leaves", "import torch.utils.data"),
        (framework_breaches, "infeed.tensors", "import torch"),
        (framework_breaches, "infeed.tensors", "def a():\n    import torch\ndef b():\n    import torch"),
        (hidden_imports, "infeed.stream", "def f():\n    if f:\n        from infeed.wire import encode"),
        (hidden_imports, "infeed.stream", "class A:\n    def f(self):\n        import json"),
        (long_functions, "infeed.plan", "def f():\n" + "    f()\n" * 60),
    ],
)
def test_a_breach_is_found(breaches, module, code):
    assert len(breaches(module, ast.parse(code))) >= 1


@pytest.mark.parametrize(
    ("breaches", "module", "code"),
    [
        (layer_breaches, "infeed.order.chain", "import numpy\nfrom infeed.order.keys import mix"),
        (layer_breaches, "infeed.slots.leases", "if TYPE_CHECKING:\n    from infeed.loader import Loader"),
        (framework_breaches, "infeed.torch", "import torch"),
        (framework_breaches, "infeed.workers.ray_actors", "import ray"),
        (framework_breaches, "infeed.tensors", "def from_array():\n    import torch"),
        (hidden_imports, "infeed.workers.shipping", "def pack():\n    import cloudpickle"),
        (hidden_imports, "infeed.crews", "def f():\n    from infeed.workers.processes import ProcessCrew"),
        (long_functions, "infeed.plan", "def f():\n" + "    f()\n" * 59),
    ],
)
def test_what_is_allowed_is_no_breach(breaches, module, code):
    assert breaches(module, ast.parse(code)) == []


@pytest.mark.parametrize("text", ["import ast", '"""No full stop"""', '"""One line.\nand a second."""'])
def test_a_bad_opening_is_found(text):
    assert opens_badly(ast.parse(text))


def test_a_ring_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
