"""Declaring operators: fields, operands, formats, values, extents, domains, profiles, test cases, identity."""
