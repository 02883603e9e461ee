"""Iceberg tables in a catalog: REST, Hive, Glue, SQL, or whatever else pyiceberg knows.

pyiceberg finds the catalog by its name, in `~/.pyiceberg.yaml` or `PYICEBERG_CATALOG__NAME__URI`; so
credentials stay there. The directory of the table remembers its name, in `_catalog`: all that read it, or
write to it later, go through the catalog as well.
"""

from typing import Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from pyromq.errors import ConfigError
from pyromq.spark.journal_files import journal_files
from pyromq.spark.object_stores import iceberg_properties
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.iceberg_files import place_of
from pyromq.spark.pipelines.lake_files import absolute

_NAME: Final = "_catalog"
CATALOG: Final = "catalog"
"""The option."""


class CatalogTable:
    """One table in a catalog."""

    def __init__(self, name: str, location: str) -> None:
        """`name`: catalog, namespace and table, like `prod.shop.orders`."""
        catalog, _, table = name.partition(".")
        self._identifier = tuple(table.split("."))
        if len(self._identifier) < 2 or not all((catalog, *self._identifier)):
            raise ConfigError(CATALOG, name, "CATALOG.NAMESPACE.TABLE")
        self._location = location
        self._name = name
        self._catalog = _loaded(catalog, location)

    def __repr__(self) -> str:
        return f"<CatalogTable {self._name}>"

    def is_there(self) -> bool:
        return self._catalog.table_exists(self._identifier)

    def make_table(self, schema: Schema, spec: PartitionSpec) -> Table:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        self._catalog.create_table(self._identifier, schema, self._location, spec)
        return self.load_table()

    def load_table(self) -> Table:
        table = self._catalog.load_table(self._identifier)
        there = table.location()
        if place_of(there) != place_of(self._location):
            raise ConfigError("lake", self._location, f"{there}, where the catalog has {self._name}")
        return table


class DirectoryTable:
    """A table without a catalog."""

    def __init__(self, location: str) -> None:
        self._catalog = DirectoryCatalog(location)

    def make_table(self, schema: Schema, spec: PartitionSpec) -> Table:
        return self._catalog.make_table(schema, spec)

    def load_table(self) -> Table:
        return self._catalog.load_table(())


def table_in(location: str) -> CatalogTable | DirectoryTable:
    """How to reach the Iceberg table in a directory."""
    name = journal_files(location, "lake").read(_NAME)
    return DirectoryTable(location) if name is None else CatalogTable(name.decode(), location)


def enter_catalog(lake: str, name: str) -> None:
    """Have the table that is made there be in a catalog; a table that is there already is where it is."""
    location = absolute(lake)
    files = journal_files(location, "lake")
    there = files.read(_NAME)
    if there is None:
        try:
            DirectoryCatalog(location).load_table(())
        except NoSuchTableError:
            pass
        else:
            raise ConfigError(CATALOG, name, f"no catalog: the table in {lake} was made without one")
        if CatalogTable(name, location).is_there():
            raise ConfigError(CATALOG, name, "the name of a table that is not there yet")
        files.create(_NAME, name.encode())
    elif there.decode() != name:
        raise ConfigError(CATALOG, name, f"{there.decode()}, where the table in {lake} is")


def _loaded(name: str, location: str) -> Catalog:
    try:
        return load_catalog(name, **iceberg_properties(location))
    except Exception as problem:  # each catalog has its own
        expected = f"a catalog that pyiceberg reaches by its configuration ({problem})"
        raise ConfigError(CATALOG, name, expected) from problem
