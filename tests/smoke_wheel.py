"""The built wheel, installed elsewhere, with the checkout out of its reach. Run by tox -e wheel, with -I."""

import sys
from importlib.metadata import entry_points, requires
from importlib.resources import files
from pathlib import Path

import sqlalchemy

import celery_supervise
import celery_supervise.migrations.versions
from celery_supervise.engine import create_engine
from celery_supervise.migrate import check, migrate

# Last on the path, after all of the library has been imported from the wheel: only for its servers.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from example_project.embedded import postgres


def main() -> None:
    """Try all that an installation promises; an assertion says what is not so."""
    (folder,) = celery_supervise.__path__
    assert Path(folder).parent.name == "site-packages", f"not the wheel: {folder}"
    assert files("celery_supervise").joinpath("py.typed").is_file()
    assert any(requirement.startswith("celery[redis]") for requirement in requires("celery-supervise") or [])
    (command,) = entry_points(group="celery.commands", name="supervise")
    assert command.load().name == "supervise"
    with postgres() as server:
        migrate(server.url)
        check_schema(server.url)
    print(f"the wheel works: {folder}")


def check_schema(url: str) -> None:
    """The library accepts what it has made, and finds no job in it."""
    engine = create_engine(url)
    with engine.connect() as connection:
        check(connection)
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM supervise.jobs")).scalar() == 0
    engine.dispose()


main()
