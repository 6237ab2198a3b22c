"""What a shop's own tests need of a database: a schema, a worker, people, deaths. No code of production imports it."""
