"""A later revision as they are to be: it only adds. Its first half needs no lock that anybody holds."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """A table, and a column of the hottest one."""
    schema = op.get_context().opts["version_table_schema"]
    op.create_table("extra", sa.Column("id", sa.Integer), schema=schema)
    op.add_column("jobs", sa.Column("extra", sa.Text, server_default="plain"), schema=schema)


def downgrade() -> None:
    """Take them away again."""
    schema = op.get_context().opts["version_table_schema"]
    op.drop_column("jobs", "extra", schema=schema)
    op.drop_table("extra", schema=schema)
