"""The glossary as served: its texts with the descriptions and limits that columns, metrics and rules declare."""

from functools import cache

from mxd.backend.queries.automatic_labels import MIN_ACCURACY, MIN_PRECISION, MIN_RECALL
from mxd.backend.queries.coactivation import MIN_EVENTS
from mxd.backend.schemas.experts import TERMS, Definition, GlossarySection
from mxd.trainer.analysis.results import SIGNIFICANT_Q
from mxd.trainer.config.training import DEAD_AFTER_TOKENS
from mxd.trainer.evaluation.evaluation_metrics import METRICS
from mxd.trainer.inference.results import MAX_PERPLEXITY_RATIO
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS


def _sentences(description: str) -> str:
    """A metric's description as sentences."""
    parts = description.replace("'", "’").split("; ")
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


@cache
def glossary() -> tuple[GlossarySection, ...]:
    """Return all terms with their definitions, in order."""
    columns = {column.key: column for column in EXPERT_COLUMNS}
    values = {
        "metrics": {it.key: _sentences(it.description) for it in METRICS if isinstance(it.description, str)},
        "titles": {it.key: it.title for it in METRICS},
        "min_events": MIN_EVENTS,
        "min_accuracy": MIN_ACCURACY,
        "min_precision": f"{MIN_PRECISION:.0%}".replace("%", " %"),
        "min_recall": f"{MIN_RECALL:.0%}".replace("%", " %"),
        "max_perplexity": f"{MAX_PERPLEXITY_RATIO:g}",
        "significant_q": SIGNIFICANT_Q,
        "dead_after": f"{DEAD_AFTER_TOKENS:,}",
    }

    def defined(term: str, own: list[str]) -> Definition:
        name, text = own or (columns[term].title, columns[term].description)
        return Definition(id=term, name=name.format(**values), text=text.format(**values))

    return tuple(
        GlossarySection(heading=heading, terms=tuple(defined(*term) for term in terms.items()))
        for heading, terms in TERMS.items()
    )
