-- The highest token that each resource has seen. Pages keep room, so that raising it is a heap-only update.
CREATE TABLE IF NOT EXISTS tenure_fence (
    resource text COLLATE "C" PRIMARY KEY,
    role     text COLLATE "C" NOT NULL,
    token    bigint NOT NULL
) WITH (fillfactor = 50);
