"""How the docs are built: `sphinx-build -W docs docs/_build`."""

project = "celery-supervise"
author = "celery-supervise contributors"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
html_theme = "furo"
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
exclude_patterns = ["_build"]
