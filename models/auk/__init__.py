"""AuK and AuK-Flash: speech from an instruction."""
