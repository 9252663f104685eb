"""The node's health: sources read in processes of their own, conditions made of what they tell. Not for actions."""
