"""Objects and their history: the SQLite store, lists, watches, housekeeping."""
