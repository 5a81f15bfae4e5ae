"""What candidates may do: which library calls, which constructs. Pure text and bytes: nothing here runs a candidate."""
