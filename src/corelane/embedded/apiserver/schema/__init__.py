"""The tables: what every kind consists of, its defaults, rules and merge keys (see `notation`)."""
