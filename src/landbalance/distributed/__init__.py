"""What any stage needs that computes on several workers: starting them, joining them, timing them."""
