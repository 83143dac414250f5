"""The structure of samples: take a sample apart into leaves, and put a batch together again.

A sample is a leaf, or a dict, tuple, named tuple, list or dataclass of samples. A `Tree` is that
structure without the leaves. It is a plain value: two samples fit together when their trees are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from infeed.errors import LayoutError

Kind = Literal["leaf", "dict", "tuple", "list", "namedtuple", "dataclass"]
Class = type[Any]  # inside Tree, `type` is a field


@dataclasses.dataclass(frozen=True)
class Tree:
    """The structure of one sample.

    >>> tree = Tree.of({"x": 1, "y": (2, 3)})
    >>> tree.names
    ('x', 'y.0', 'y.1')
    >>> tree.build(["a", "b", "c"])
    {'x': 'a', 'y': ('b', 'c')}
    """

    kind: Kind
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()
    type: type | None = None

    @staticmethod
    def of(sample: Any) -> Tree:
        """The tree of `sample`; what is no container is a leaf."""
        if isinstance(sample, dict):
            return Tree("dict", tuple(sample), tuple(map(Tree.of, sample.values())))
        if isinstance(sample, tuple):
            kind: Kind = "namedtuple" if hasattr(sample, "_fields") else "tuple"
            made_by = type(sample) if kind == "namedtuple" else None
            return Tree(kind, tuple(range(len(sample))), tuple(map(Tree.of, sample)), made_by)
        if isinstance(sample, list):
            return Tree("list", tuple(range(len(sample))), tuple(map(Tree.of, sample)))
        if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
            keys = tuple(f.name for f in dataclasses.fields(sample))
            children = tuple(Tree.of(getattr(sample, key)) for key in keys)
            return Tree("dataclass", keys, children, type(sample))
        return LEAF

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind == "leaf" else sum(child.size for child in self.children)

    @property
    def names(self) -> tuple[str, ...]:
        """A readable name for each leaf, in order: `image`, `box.0`; `""` for a bare leaf."""
        if self.kind == "leaf":
            return ("",)
        keys = self.type._fields if self.kind == "namedtuple" else self.keys  # type: ignore[union-attr]
        return tuple(
            f"{key}.{name}" if name else str(key)
            for key, child in zip(keys, self.children, strict=True)
            for name in child.names
        )

    def leaves(self, sample: Any) -> list[Any]:
        """The leaves of a sample of this structure, in order. `LayoutError` if it has another."""
        return [column[0] for column in self.columns([sample])]

    def columns(self, samples: Sequence[Any]) -> list[list[Any]]:
        """For each leaf, the list of its values over `samples`; all checked to have this structure.

        The containers are checked. What stands where this tree has a leaf is taken as it is, because in a
        batch a leaf may be a list.
        """
        out: list[list[Any]] = []
        try:
            self._collect(samples, out)
        except StructureMismatch as error:
            what = self._difference(samples[error.row]) or error.what
            raise StructureMismatch(error.row, what) from None
        return out

    def _difference(self, sample: Any, name: str = "") -> str:
        """Where a sample first departs from this structure, and how; empty when it does not."""
        if self.kind == "leaf":
            return ""
        if not self._fits(sample, self._wanted):
            came = Tree.of(sample)
            what = f"{self} was expected, {came} came"
            if self.kind == came.kind == "list":
                what = (
                    f"a list of {len(self.keys)} was expected, a list of {len(came.keys)} came (rows of different "
                    "lengths should be arrays, not lists: np.asarray in a map)"
                )
            return f"field {name!r}: {what}" if name else what
        values = (getattr(sample, key) if self.kind == "dataclass" else sample[key] for key in self.keys)
        shown = self.type._fields if self.kind == "namedtuple" else self.keys  # type: ignore[union-attr]
        for key, value, child in zip(shown, values, self.children, strict=True):
            if what := child._difference(value, f"{name}.{key}" if name else str(key)):
                return what
        return ""

    def _collect(self, samples: Sequence[Any], out: list[list[Any]]) -> None:
        if self.kind == "leaf":
            out.append(samples if isinstance(samples, list) else list(samples))
            return
        self._check(samples)
        if self.kind == "dict":
            for key, child in zip(self.keys, self.children, strict=True):
                child._collect([sample[key] for sample in samples], out)
        elif self.kind == "dataclass":
            for key, child in zip(self.keys, self.children, strict=True):
                child._collect([getattr(sample, key) for sample in samples], out)
        else:
            columns = zip(*samples, strict=True) if samples else [()] * len(self.keys)
            for column, child in zip(columns, self.children, strict=True):
                child._collect(column, out)

    def _check(self, samples: Sequence[Any]) -> None:
        """All samples are containers of this kind and size; two C-speed passes, no Python loop."""
        wanted = self._wanted
        fits = set(map(type, samples)) <= {wanted}
        if fits and self.kind == "dict":
            fits = set(map(tuple, samples)) <= {self.keys} or all(
                sample.keys() == set(self.keys) for sample in samples
            )
        elif fits and self.kind in ("tuple", "list"):
            fits = set(map(len, samples)) <= {len(self.keys)}
        if fits:
            return
        for row, sample in enumerate(samples):
            if not self._fits(sample, wanted):
                raise StructureMismatch(row, f"{self} was expected, {Tree.of(sample)} came")

    @property
    def _wanted(self) -> Class:
        return self.type or {"dict": dict, "tuple": tuple, "list": list}[self.kind]

    def _fits(self, sample: Any, wanted: Class) -> bool:
        if not isinstance(sample, wanted):
            return False
        if self.kind == "dict":
            return bool(sample.keys() == set(self.keys))
        return self.kind == "dataclass" or len(sample) == len(self.keys)

    def build(self, leaves: Sequence[Any]) -> Any:
        """The leaves in this structure."""
        return self._build(iter(leaves))

    def _build(self, leaves: Any) -> Any:
        if self.kind == "leaf":
            return next(leaves)
        values = [child._build(leaves) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.keys, values, strict=True))
        if self.kind == "list":
            return values
        if self.kind == "namedtuple":
            return self.type._make(values)  # type: ignore[union-attr]
        if self.kind == "dataclass":
            return rebuild(self.type, self.keys, values)
        return tuple(values)

    def __str__(self) -> str:
        if self.kind == "leaf":
            return "*"
        if self.kind in ("dict", "dataclass"):
            pairs = zip(self.keys, self.children, strict=True)
            inner = ", ".join(f"{k}" if c.kind == "leaf" else f"{k}: {c}" for k, c in pairs)
            return f"{self.type.__name__}({inner})" if self.type else "{" + inner + "}"
        inner = ", ".join(map(str, self.children))
        if self.kind == "namedtuple":
            return f"{self.type.__name__}({inner})"  # type: ignore[union-attr]
        return f"[{inner}]" if self.kind == "list" else f"({inner})"


class StructureMismatch(LayoutError):
    """Row `row` of the samples given has another structure than the rest.

    >>> try:
    ...     Tree.of({"x": 1}).columns([{"x": 1}, {"y": 1}])
    ... except StructureMismatch as error:
    ...     print(error.row, error)
    1 {x} was expected, {y} came
    """

    def __init__(self, row: int, what: str):
        super().__init__(what)
        self.row = row
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone, and workers send their errors home.
        return type(self), (self.row, self.what)


LEAF = Tree("leaf")


def rebuild(made_by: type | None, keys: Sequence[str], values: Sequence[Any]) -> Any:
    """A dataclass instance with the given fields, without running its `__init__`.

    Attributes that are no fields are not there: they belong to one sample, not to a batch.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    >>> rebuild(Point, ["x"], [[1, 2]]).x
    [1, 2]
    """
    made: Any = object.__new__(made_by)  # type: ignore[arg-type]
    for key, value in zip(keys, values, strict=True):
        object.__setattr__(made, key, value)
    return made


def tree_map(fn: Callable[[Any], Any], sample: Any) -> Any:
    """The same structure with `fn` applied to every leaf.

    >>> tree_map(lambda leaf: leaf + 1, {"x": 1, "y": (2, 3)})
    {'x': 2, 'y': (3, 4)}
    """
    tree = Tree.of(sample)
    return tree.build([fn(leaf) for leaf in tree.leaves(sample)])
