"""A package, so that fixtures of the scope "package" end with its last test: Chromium and its event loop."""

import pytest

pytest.register_assert_rewrite("tests.browser.rest")  # its failed assertions show their values
