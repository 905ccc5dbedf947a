"""Tests: unit, contract, integration, fault, regressions. A package, since an installed one of this name would hide it."""
