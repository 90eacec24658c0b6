"""How the host takes each operator of the main catalog, one file per operator, named by string only."""
