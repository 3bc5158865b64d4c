"""The demo of MxD Explorer, in the folder ``data``. ``mxd demo`` serves it."""
