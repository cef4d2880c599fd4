"""A test that hangs fails, and Ctrl-C reaches what the tests start."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.conftest import ROOT, SAFETY_SECONDS


def test_a_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    """pytest-timeout is there, and its limit is longer than that of a command which hangs."""
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert float(pytestconfig.getini("timeout")) > SAFETY_SECONDS


def test_no_example_has_a_time_limit() -> None:
    """A busy machine takes any time to draw and to run one."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_ctrl_c_works_where_it_is_ignored() -> None:
    """A background shell starts its commands with SIGINT ignored; a process of the tests is interrupted all the same."""
    code = "import tests.conftest, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    shows = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        subprocess.run([sys.executable, "-c", code, shows], cwd=ROOT, check=True, timeout=SAFETY_SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
