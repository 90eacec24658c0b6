"""The vendor's programs: what asks them, and for what."""
