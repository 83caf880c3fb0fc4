-- The highest token that each resource has seen.
CREATE TABLE IF NOT EXISTS tenure_fence (
    resource TEXT PRIMARY KEY,
    role     TEXT NOT NULL,
    token    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
