"""Forward mode: dual levels, and tangents beside values."""
