"""What administrators may do: permission, checks of what they send, and one transaction for a change and its line in the audit log."""
