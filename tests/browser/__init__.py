"""A package, so that fixtures of the scope "package" end with its last test: Chromium and its event loop."""
