"""Who owns which field: managed fields of every write, and the merge of server-side apply (KEP-555)."""
