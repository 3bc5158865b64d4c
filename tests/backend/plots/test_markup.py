"""Names of classes that are HTML: plotly.js would draw them as links and bold text in reports."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import select

from mxd.backend.database.engine import open_database, reading
from mxd.backend.plots.report import escaped_layout, escaped_traces, report
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.tables import ProbeRecord
from tests.helpers.formats.bundles import full_world

LINK = '<a href="https://example.org">click</a>'
SHOWN = '&lt;a href="https://example.org"&gt;click&lt;/a&gt;'


def test_texts_are_escaped_and_templates_are_not() -> None:
    template: dict[str, object] = {"hovertemplate": "<b>%{x}</b>"}
    trace: dict[str, object] = template | {"name": LINK, "text": [LINK], "customdata": [[1, LINK]], "y": [LINK, 2.0]}
    escaped: dict[str, object] = template | {
        "name": SHOWN,
        "text": [SHOWN],
        "customdata": [[1, SHOWN]],
        "y": [SHOWN, 2.0],
    }
    assert escaped_traces([trace]) == [escaped]
    layout = {"annotations": [{"text": LINK}], "yaxis2": {"categoryarray": [LINK], "range": [0, 1]}, "width": 3}
    assert escaped_layout(layout) == {
        "annotations": [{"text": SHOWN}],
        "yaxis2": {"categoryarray": [SHOWN], "range": [0, 1]},
        "width": 3,
    }


def test_a_report_shows_class_names_as_text(tmp_path: Path) -> None:
    data = full_world(tmp_path).data
    database = open_database(sqlite_url(data))
    with writing(database) as session:
        for record in session.scalars(select(ProbeRecord)):
            classes = json.dumps(record.result["kinds"])
            assert '"de":' in classes
            record.result = record.result | {"kinds": json.loads(classes.replace('"de":', f"{json.dumps(LINK)}:"))}
    with reading(database) as session:
        content = report(session, data)
    database.dispose()
    assert "\\u003ca href" not in content, "plotly.js would draw a link"
    assert json.dumps(SHOWN)[1:20] in content
