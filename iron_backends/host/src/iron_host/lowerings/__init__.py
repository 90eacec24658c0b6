"""How the host takes each operator of the main catalog, named by string only."""
