"""XA: branches of distributed transactions in a message store or a journal, and the journal as a decision log."""
