"""What every language model shares."""

import _iron_start

_iron_start.check()
