"""`python3 example_project`: the demo, on a machine that has only Python. Decides nothing else."""

import sys

if __package__:  # `python -m example_project`, in an environment that has everything
    from example_project import demo

    sys.exit(demo.main(sys.argv[1:]))
else:  # run as a folder, which is then first on sys.path
    import bootstrap  # type: ignore[import-not-found]  # found where this line runs

    bootstrap.run("-e .[embedded]", ["-m", "example_project", *sys.argv[1:]])
