"""What other distributions add: the entry-point registry and the hook specifications."""
