-- The registers of Tenure: one logged table, made to be read by people with psql.
--
-- Run by a user that may create tables; it may be run again. Then a user who only takes part in elections needs:
--   GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO app;
--   GRANT SELECT ON tenure_schema, tenure_leaders TO app;

CREATE TABLE IF NOT EXISTS tenure_schema (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    -- Another id is other data: the tables were dropped and made anew.
    id      text NOT NULL DEFAULT gen_random_uuid()::text,
    made_at timestamptz NOT NULL DEFAULT now()
);

-- No column that changes is indexed, and every page keeps room: a beat is one heap-only update that leaves nothing
-- for vacuum to do in the index.
CREATE TABLE IF NOT EXISTS tenure_registers (
    namespace text COLLATE "C" NOT NULL,
    epoch     text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    version   text COLLATE "C" NOT NULL,
    token     bigint,
    value     text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, epoch, kind, name)
) WITH (fillfactor = 50);

-- What must never happen, by any program.
CREATE OR REPLACE FUNCTION tenure_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'tenure: ' || TG_ARGV[0];
END $$;

CREATE OR REPLACE TRIGGER tenure_token_never_falls BEFORE UPDATE ON tenure_registers FOR EACH ROW
    WHEN (OLD.token IS NOT NULL AND (NEW.token IS NULL OR NEW.token < OLD.token))
    EXECUTE FUNCTION tenure_refuse('the token of a register never falls');
CREATE OR REPLACE TRIGGER tenure_key_never_changes BEFORE UPDATE ON tenure_registers FOR EACH ROW
    WHEN ((OLD.namespace, OLD.epoch, OLD.kind, OLD.name) IS DISTINCT FROM
          (NEW.namespace, NEW.epoch, NEW.kind, NEW.name))
    EXECUTE FUNCTION tenure_refuse('a register keeps its name');
CREATE OR REPLACE TRIGGER tenure_role_never_deleted BEFORE DELETE ON tenure_registers FOR EACH ROW
    WHEN (OLD.kind = 'role')
    EXECUTE FUNCTION tenure_refuse('the register of a role is never deleted, so that its token never falls');
CREATE OR REPLACE TRIGGER tenure_never_truncated BEFORE TRUNCATE ON tenure_registers FOR EACH STATEMENT
    EXECUTE FUNCTION tenure_refuse('registers of roles are never deleted, so that their tokens never fall');

-- A batch of compare-and-sets, each decided by itself, in one statement and so in one transaction and one round trip.
-- The items come in the order of their keys, so that two batches never wait for each other in a circle.
--
-- UPDATE and DELETE look at the version again after waiting for another writer of the row; what is told of a conflict
-- is read by a later statement, so it may be newer than what was conflicted with: then the item is tried again if it
-- fits now. A version is never used twice, so this ends.
CREATE OR REPLACE FUNCTION tenure_write_v2(
    p_namespace text, p_epochs text[], p_kinds text[], p_names text[], p_expects text[], p_versions text[],
    p_tokens bigint[], p_values text[], p_rings boolean[], p_locks bigint[], p_patience_ms integer
) RETURNS TABLE (item bigint, outcome text, now_version text, now_token bigint, now_value text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    w record;
    r record;
    changed boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE =
            'tenure: default_transaction_isolation of this user or database must be read committed';
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', p_patience_ms::text, true);
    FOR w IN
        SELECT * FROM unnest(p_epochs, p_kinds, p_names, p_expects, p_versions, p_tokens, p_values, p_rings, p_locks)
            WITH ORDINALITY AS t (epoch, kind, name, expect, version, token, value, notify, lock, item)
    LOOP
        item := w.item;
        LOOP
            -- The lock must be held, and by a connection of this login: every login sees which advisory locks there are,
            -- may wait for one, and would have it when the connection is gone that proved its owner to be there.
            IF w.lock IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM pg_locks l, pg_stat_get_activity(l.pid) a
                WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.objsubid = 1
                    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                    AND l.classid::bigint = (w.lock >> 32) & 4294967295 AND l.objid::bigint = w.lock & 4294967295
                    AND a.usesysid = (SELECT own.usesysid FROM pg_stat_get_activity(pg_backend_pid()) own)
            ) THEN
                outcome := 'severed'; now_version := NULL; now_token := NULL; now_value := NULL;
                EXIT;
            END IF;
            IF w.expect IS NULL AND w.version IS NULL THEN
                changed := NOT EXISTS (SELECT 1 FROM tenure_registers t WHERE t.namespace = p_namespace
                    AND t.epoch = w.epoch AND t.kind = w.kind AND t.name = w.name);
            ELSIF w.expect IS NULL THEN
                INSERT INTO tenure_registers (namespace, epoch, kind, name, version, token, value)
                VALUES (p_namespace, w.epoch, w.kind, w.name, w.version, w.token, w.value)
                ON CONFLICT DO NOTHING;
                changed := FOUND;
            ELSIF w.version IS NULL THEN
                DELETE FROM tenure_registers t WHERE t.namespace = p_namespace AND t.epoch = w.epoch
                    AND t.kind = w.kind AND t.name = w.name AND t.version = w.expect AND t.kind <> 'role';
                changed := FOUND;
            ELSE
                UPDATE tenure_registers t SET version = w.version, token = w.token, value = w.value
                WHERE t.namespace = p_namespace AND t.epoch = w.epoch AND t.kind = w.kind AND t.name = w.name
                    AND t.version = w.expect AND (t.token IS NULL OR t.token <= w.token);
                changed := FOUND;
            END IF;
            now_version := NULL; now_token := NULL; now_value := NULL;
            IF changed THEN
                outcome := 'applied';
                IF w.notify THEN
                    PERFORM tenure_notify_v2(p_namespace, w.epoch, w.kind, w.name);
                END IF;
                EXIT;
            END IF;
            SELECT t.version, t.token, t.value INTO r FROM tenure_registers t WHERE t.namespace = p_namespace
                AND t.epoch = w.epoch AND t.kind = w.kind AND t.name = w.name;
            IF NOT FOUND THEN
                outcome := 'absent';
                EXIT WHEN w.expect IS NOT NULL;
            ELSE
                now_version := r.version; now_token := r.token; now_value := r.value;
                outcome := 'conflict';
                EXIT WHEN w.expect IS DISTINCT FROM r.version;
                outcome := 'refused';
                EXIT WHEN w.kind = 'role' AND w.version IS NULL;
                EXIT WHEN r.token IS NOT NULL AND (w.token IS NULL OR w.token < r.token);
            END IF;
        END LOOP;
        RETURN NEXT;
    END LOOP;
    -- The node that asked has given up by now: what it was not told of must not happen.
    IF clock_timestamp() > statement_timestamp() + p_patience_ms * interval '1 millisecond' THEN
        RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = 'tenure: took longer than its caller waits';
    END IF;
END $$;

-- Tells every listener which register changed, when and only when that is committed. It does not tell what the register
-- holds, and a listener only reads: every login of the database may LISTEN and NOTIFY. The channel is named after this
-- memory, so that a login that may not read tenure_schema does not know it.
CREATE OR REPLACE FUNCTION tenure_notify_v2(p_namespace text, p_epoch text, p_kind text, p_name text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pg_notify('tenure_' || id, p_namespace || E'\n' || p_epoch || E'\n' || p_kind || E'\n' || p_name)
    FROM tenure_schema
$$;
-- The former one told every login what registers hold.
DROP FUNCTION IF EXISTS tenure_ring_v1(text, text, text, text, text, bigint, text);

-- Who leads what, for people.
CREATE OR REPLACE VIEW tenure_leaders AS
SELECT r.namespace, r.name AS role, r.value::json #>> '{holder,node}' AS node, r.token,
       to_timestamp((r.value::json ->> 'since')::bigint / 1000000.0) AS since, r.value::json ->> 'reason' AS reason,
       s.value::json ->> 'state' AS session_state,
       to_timestamp((s.value::json ->> 'beat_at')::bigint / 1000000.0) AS last_beat,
       r.value::json #>> '{holder,session}' AS session
FROM tenure_registers c
JOIN tenure_registers r ON r.namespace = c.namespace AND r.epoch = c.value::json ->> 'epoch' AND r.kind = 'role'
LEFT JOIN tenure_registers s ON s.namespace = r.namespace AND s.epoch = r.epoch AND s.kind = 'session'
    AND s.name = r.value::json #>> '{holder,session}'
WHERE c.epoch = '0' AND c.kind = 'cluster' AND c.name = 'cluster';

-- Names in the functions mean the tables beside them, whatever the search path of the caller.
ALTER FUNCTION tenure_refuse SET search_path FROM CURRENT;
ALTER FUNCTION tenure_write_v2 SET search_path FROM CURRENT;
ALTER FUNCTION tenure_notify_v2 SET search_path FROM CURRENT;

INSERT INTO tenure_schema (version) VALUES (1) ON CONFLICT DO NOTHING;
