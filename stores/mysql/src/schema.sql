-- The registers of Tenure in MySQL or MariaDB, made to be read by people.
--
-- Run by a user that may create tables and triggers, in the database that the URL names (`mysql DATABASE < schema.sql`); it
-- may be run again. What a user who only takes part in elections needs is at the end.

CREATE TABLE IF NOT EXISTS tenure_schema (
    one     TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
    version INT NOT NULL,
    -- Another id is other data: the tables were dropped and made anew.
    id      VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;

-- Names differ by every byte. `version` is another one at every write, so that "nothing changed" and "nothing was found"
-- are never the same answer. `seq` is the number of the last change of a register that others were notified of.
CREATE TABLE IF NOT EXISTS tenure_registers (
    namespace VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    epoch     VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind      VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token     BIGINT NULL,
    value     LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    seq       BIGINT NULL,
    PRIMARY KEY (namespace, epoch, kind, name),
    KEY tenure_seq (seq)
) ENGINE = InnoDB;

-- The notifier: one row, locked by every write that notifies others, so that its number rises in the order of commits.
-- A node that asks for everything above the last number that it saw misses nothing.
CREATE TABLE IF NOT EXISTS tenure_notifier (
    one TINYINT NOT NULL PRIMARY KEY DEFAULT 1,
    seq BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tenure_deletions (
    namespace VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    seq       BIGINT NOT NULL
) ENGINE = InnoDB;

-- Always empty: a table that another one refers to cannot be truncated.
CREATE TABLE IF NOT EXISTS tenure_guard (
    namespace VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    epoch     VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind      VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name      VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (namespace, epoch, kind, name),
    CONSTRAINT tenure_never_truncated FOREIGN KEY (namespace, epoch, kind, name)
        REFERENCES tenure_registers (namespace, epoch, kind, name)
) ENGINE = InnoDB;

-- Who leads what, for people. Times are UTC.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW tenure_leaders AS
SELECT r.namespace, r.name AS role, JSON_VALUE(r.value, '$.holder.node') AS node, r.token,
       TIMESTAMPADD(MICROSECOND, JSON_VALUE(r.value, '$.since'), TIMESTAMP '1970-01-01 00:00:00') AS since,
       JSON_VALUE(r.value, '$.reason') AS reason, JSON_VALUE(s.value, '$.state') AS session_state,
       TIMESTAMPADD(MICROSECOND, JSON_VALUE(s.value, '$.beat_at'), TIMESTAMP '1970-01-01 00:00:00') AS last_beat,
       JSON_VALUE(r.value, '$.holder.session') AS session
FROM tenure_registers c
JOIN tenure_registers r ON r.namespace = c.namespace AND r.epoch = JSON_VALUE(c.value, '$.epoch') AND r.kind = 'role'
LEFT JOIN tenure_registers s ON s.namespace = r.namespace AND s.epoch = r.epoch AND s.kind = 'session'
    AND s.name = JSON_VALUE(r.value, '$.holder.session')
WHERE c.epoch = '0' AND c.kind = 'cluster' AND c.name = 'cluster';

-- What must never happen, by any program. With the binary log on, making triggers takes SUPER, or
-- log_bin_trust_function_creators = 1: everything works without them, except against hands.
DELIMITER //
DROP TRIGGER IF EXISTS tenure_token_never_falls //
CREATE TRIGGER tenure_token_never_falls BEFORE UPDATE ON tenure_registers FOR EACH ROW
BEGIN
    IF OLD.token IS NOT NULL AND (NEW.token IS NULL OR NEW.token < OLD.token) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tenure: the token of a register never falls';
    END IF;
    IF NOT (OLD.namespace = NEW.namespace AND OLD.epoch = NEW.epoch AND OLD.kind = NEW.kind AND OLD.name = NEW.name) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tenure: a register keeps its name';
    END IF;
END //
DROP TRIGGER IF EXISTS tenure_role_never_deleted //
CREATE TRIGGER tenure_role_never_deleted BEFORE DELETE ON tenure_registers FOR EACH ROW
BEGIN
    IF OLD.kind = 'role' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'tenure: the register of a role is never deleted, so that its token never falls';
    END IF;
END //
DELIMITER ;

-- A program that finds these rows finds everything else.
INSERT INTO tenure_notifier (one, seq) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = 1;
INSERT INTO tenure_schema (one, version, id) VALUES (1, 1, UUID()) ON DUPLICATE KEY UPDATE one = 1;
