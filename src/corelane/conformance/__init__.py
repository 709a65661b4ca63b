"""Recorded answers of upstream programs, replayed against corelane (`corelane vectors`)."""
