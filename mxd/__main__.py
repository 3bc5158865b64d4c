"""``python -m mxd``: the command line, where the ``mxd`` script is not on the path, as under torchrun."""

from mxd.backend.cli.main import main

main()
