"""How frames become rows: the pure fold that workers, loads and checks share."""
