"""What scripts/bench is made of: see ../bench.py."""
