"""What holds for all tests: none depends on how fast the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("tests")
