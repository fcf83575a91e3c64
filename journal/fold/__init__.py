"""How frames become rows: the fold that workers, loads and checks share. Pure."""
