"""How the tests are chosen, distributed and reported."""
