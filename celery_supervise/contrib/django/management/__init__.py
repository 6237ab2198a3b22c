"""Django looks for commands here. Has nothing else."""
