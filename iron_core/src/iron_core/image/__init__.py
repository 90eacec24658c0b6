"""From a traced graph to a plan: steps, buffer references, arena, packaging."""
