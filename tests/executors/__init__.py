"""Every kind of executor keeps the same promises."""
