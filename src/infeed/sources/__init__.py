"""Where samples come from: arrays, files, any object with an index, iterables, and mixes of these."""

from infeed.sources.accepted import as_source
from infeed.sources.arrays import ArraysSource, arrays
from infeed.sources.files import FilesSource, files
from infeed.sources.items import ItemsSource, source
from infeed.sources.iterables import IterableSource, iterable
from infeed.sources.mixes import ChooseSource, ConcatSource, ZipSource, choose, concat, zip
from infeed.sources.source import Column, Columns, Source
from infeed.sources.strings import Strings
from infeed.sources.windows import WindowSource, window

__all__ = [
    "ArraysSource",
    "ChooseSource",
    "Column",
    "Columns",
    "ConcatSource",
    "FilesSource",
    "ItemsSource",
    "IterableSource",
    "Source",
    "Strings",
    "WindowSource",
    "ZipSource",
    "arrays",
    "as_source",
    "choose",
    "concat",
    "files",
    "iterable",
    "source",
    "window",
    "zip",
]
