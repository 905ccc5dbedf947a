"""Tests: unit, contract, integration, fault, regressions. A package: an installed one of this name would hide it."""
