"""Everything offline: datasets from traces, fitting, calibration, export, replay and A/B reports."""
