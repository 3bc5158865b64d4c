"""The dashboard, served from a thread of a script or notebook."""

from __future__ import annotations

from contextlib import AbstractContextManager
from html import escape
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import quote

from pydantic import ValidationError

from mxd.api.errors import speaks_python
from mxd.api.layer import AnyRun, as_layer
from mxd.api.loading import database_url, own_data_folder
from mxd.backend.api.connections import limited_server
from mxd.backend.cli.commands.serve import create_protected_app
from mxd.backend.cli.parser import describe_validation_error
from mxd.backend.database.engine import opened
from mxd.backend.settings import Settings, listen, url_of
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run_records import register_run

START_TIMEOUT_S = 60.0


class Dashboard(AbstractContextManager["Dashboard"]):
    """A running server. ``stop`` ends it; so does leaving a ``with`` block, or the end of the process."""

    def __init__(self, settings: Settings, page: str) -> None:
        self._listener = listen(settings.host, settings.port)
        self.url = url_of(self._listener) + page
        """Address of the run's page."""
        self._is_ready = Event()
        self._server = limited_server(create_protected_app(settings), settings, self._is_ready.set)
        self._thread = Thread(target=self._server.run, args=([self._listener],), daemon=True)

    def start(self) -> Self:
        """Start the server and wait until it accepts requests. Raises UserError if it does not start."""
        self._thread.start()
        if not self._is_ready.wait(START_TIMEOUT_S):
            raise UserError(f"The dashboard did not start within {START_TIMEOUT_S:.0f} seconds. Run 'mxd serve'.")
        return self

    def stop(self) -> None:
        """Stop the server. A second call does nothing."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank">{escape(self.url)}</a>'


@speaks_python
def serve(run: AnyRun, *, port: int = 0, database: str | None = None, **settings: Any) -> Dashboard:
    """Serve the dashboard of a run's data folder from a thread, and return a handle with its ``url``.

    >>> with mxd.serve("my-run") as dashboard:
    ...     print(dashboard.url)
    http://127.0.0.1:.../runs/my-run

    Args:
        run: the run whose page is opened, or its name.
        port: port to listen on; 0 chooses a free one.
        database: SQLAlchemy URL. Default: as in ``index``.
        settings: other fields of ``mxd.backend.settings.Settings``, such as ``host="0.0.0.0"``.

    Raises:
        UserError: the port is in use, the database cannot be opened, or a setting is unknown or invalid.
    """
    layer = as_layer(run)
    with opened(database_url(layer.run, database)) as engine:
        register_run(layer.run, engine)
    given: dict[str, Any] = {"database": database} if database else {}
    try:
        options = Settings(data=own_data_folder(layer.run), port=port, **given, **settings)
    except ValidationError as error:
        raise UserError(describe_validation_error(error)) from error
    return Dashboard(options, f"/runs/{quote(layer.name)}").start()
