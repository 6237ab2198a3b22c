"""What Postgres itself says is in a schema, as text that two schemas can be compared by. Reads only."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

Catalog = dict[str, list[str]]

# Each finds one kind of thing, one text a thing; the name of the schema is cut out of the texts.
TABLES = {
    "columns": """
        SELECT concat_ws(' | ', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
            a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attidentity, a.attgenerated)
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind IN ('r', 'v')
            AND a.attnum > 0 AND NOT a.attisdropped""",
    "tables": """
        SELECT concat_ws(' | ', c.relname, c.relkind, c.relpersistence, array_to_string(c.reloptions, ', '))
        FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(quote_ident(:schema))""",
    "constraints": """
        SELECT concat_ws(' | ', k.conrelid::regclass, k.conname, k.convalidated, pg_get_constraintdef(k.oid))
        FROM pg_constraint AS k WHERE k.connamespace = to_regnamespace(quote_ident(:schema))""",
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema))""",
}
EVERYTHING = {
    **TABLES,
    "triggers": """
        SELECT concat_ws(' | ', pg_get_triggerdef(t.oid), t.tgenabled)
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND NOT t.tgisinternal""",
    "functions": """
        SELECT concat_ws(' | ', pg_get_functiondef(p.oid), p.proacl)
        FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace(quote_ident(:schema))""",
    "views": """
        SELECT pg_get_viewdef(c.oid) FROM pg_class AS c
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind = 'v'""",
    "rights": """
        SELECT concat_ws(' | ', c.relname, c.relacl) FROM pg_class AS c
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind IN ('r', 'v')""",
    "comments": """
        SELECT concat_ws(' | ', d.objoid::regclass, d.objsubid, d.description)
        FROM pg_description AS d JOIN pg_class AS c ON c.oid = d.objoid
        WHERE c.relnamespace = to_regnamespace(quote_ident(:schema))""",
}


def catalog(connection: Connection, schema: str, kinds: dict[str, str]) -> Catalog:
    """What is in `schema`, kind by kind. The schema's own name does not show."""
    return {
        kind: sorted(_bare(text, schema) for text in _texts(connection, schema, query)) for kind, query in kinds.items()
    }


def _texts(connection: Connection, schema: str, query: str) -> list[str]:
    return [str(text) for text in connection.execute(sa.text(query), {"schema": schema}).scalars()]


def _bare(text: str, schema: str) -> str:
    return text.replace(f'"{schema}".', "").replace(f"{schema}.", "")
