"""What the buttons do; one file a tab. A handler knows no component: it takes values and yields what changed."""
