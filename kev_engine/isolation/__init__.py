"""Who may read whom: the layout of a packed row, the rule, and the plan of one step. numpy at import, no torch."""
