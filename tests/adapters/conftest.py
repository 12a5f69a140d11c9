"""How the tests of this package run."""

import pytest

pytest.register_assert_rewrite(f"{__package__}.searching")
