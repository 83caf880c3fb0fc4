-- The highest token that each resource has seen.
CREATE TABLE IF NOT EXISTS tenure_fence (
    resource VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    role     VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    token    BIGINT NOT NULL
) ENGINE = InnoDB;
