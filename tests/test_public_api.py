"""The public face: complete, sorted, explained by examples, and light to import."""

import ast
import inspect
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import infeed
from infeed import testing

ROOT = Path(infeed.__file__).parents[2]
HEAVY = ["PIL", "cloudpickle", "multiprocessing", "psutil", "pyarrow", "pytest", "rich", "torch", "zmq"]


def names_for_type_checkers():
    """What `__init__.py` imports by name for those who read types; at run time each is loaded at first use."""
    tree = ast.parse(Path(infeed.__file__).read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in statements if "infeed" in (node.module or "") for alias in node.names]


def public_methods(cls):
    """Methods a class defines itself, or a dataclass of ours does; properties are not among them."""
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and inspect.isfunction(inspect.unwrap(getattr(value, "__func__", value)))
    ]


def has_example(thing):
    return ">>>" in (inspect.getdoc(thing) or "")


@pytest.mark.parametrize("module", [infeed, testing])
def test_all_is_sorted_and_every_name_is_there(module):
    assert list(module.__all__) == sorted(set(module.__all__))
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_all_is_complete():
    assert sorted(names_for_type_checkers()) == infeed.__all__
    loaded = {
        name for name, value in vars(infeed).items() if getattr(value, "__module__", "").startswith("infeed.")
    }
    assert loaded <= set(infeed.__all__)


def test_no_public_name_is_hidden_by_a_module_of_that_name():
    modules = {path.stem for path in Path(infeed.__file__).parent.iterdir()}
    assert not modules & set(infeed.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = infeed.no_such_name


@pytest.mark.parametrize("name", infeed.__all__)
def test_every_public_name_has_an_example(name):
    assert has_example(getattr(infeed, name)), f"infeed.{name} shows no line that runs"


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_for_testing_has_an_example(name):
    assert has_example(getattr(testing, name)), f"infeed.testing.{name} shows no line that runs"


def test_every_method_of_a_pipeline_has_an_example():
    methods = public_methods(infeed.Pipeline)
    assert {"shuffle", "map", "batch"} <= set(methods)
    lacking = [name for name in methods if not has_example(getattr(infeed.Pipeline, name))]
    assert not lacking, f"these methods of Pipeline show no line that runs: {lacking}"


@pytest.mark.parametrize("name", infeed.__all__)
def test_every_public_method_is_explained(name):
    thing = getattr(infeed, name)
    if not inspect.isclass(thing):
        return
    members = [member for member in vars(thing).items() if not member[0].startswith("_")]
    silent = [
        key
        for key, value in members
        if (inspect.isroutine(value) or isinstance(value, property)) and not inspect.getdoc(value)
    ]
    assert not silent, f"infeed.{name} has members without a docstring: {silent}"


def imported_by(statement):
    """The modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    path = [str(Path(infeed.__file__).parents[1]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(json.loads(done.stdout))


EVERYTHING = "import infeed; [getattr(infeed, name) for name in infeed.__all__]"


@pytest.mark.parametrize("statement", ["import infeed", EVERYTHING])
def test_importing_infeed_brings_nothing_heavy(statement):
    brought = imported_by(statement)
    assert not (brought - imported_by("import numpy")) & set(HEAVY)
    assert not brought & {"infeed.cli", "infeed.demo", "infeed.testing", "infeed.workers.processes"}


def test_every_public_name_can_be_imported_at_once():
    assert "infeed.loader" in imported_by("from infeed import *")


def test_the_contracts_need_no_pytest():
    assert not imported_by("import infeed.testing") & {"pytest", "_pytest", "hypothesis", "torch", "psutil"}


def test_a_loader_in_threads_needs_nothing_heavy():
    run = "import infeed; list(infeed.Loader(infeed.arrays([1, 2, 3]).batch(2), workers=1, mode='threads'))"
    assert not (imported_by(run) - imported_by("import numpy")) & set(HEAVY)


def test_the_version_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert infeed.__version__ == project["version"]


def test_the_package_says_that_it_is_typed():
    assert (Path(infeed.__file__).parent / "py.typed").is_file()
