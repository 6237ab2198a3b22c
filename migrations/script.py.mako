"""${message}"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


# Released revisions only add: older workers go on beside the new schema. One that they cannot live with raises
# `min_library` in meta. Locks are held until the end of the transaction, by all revisions together: no table
# rewrite, no validation of a constraint over a large table, no data moved here.
# Name the schema: op.get_context().opts["version_table_schema"].


def upgrade() -> None:
    """Say what it adds, and which issue needs it."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Take it away again; refuse where that would lose what a job needs."""
    ${downgrades if downgrades else "pass"}
