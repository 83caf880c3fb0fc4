-- Jobs that wait, are assigned, or are done. What is hopeless moves to dead_letters.
CREATE TABLE IF NOT EXISTS jobs (
    id         bigserial PRIMARY KEY,
    kind       text NOT NULL,
    payload    text NOT NULL DEFAULT '',
    state      text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'assigned', 'done')),
    attempts   int NOT NULL DEFAULT 0,
    run_at     timestamptz NOT NULL DEFAULT now(),
    -- To whom it is assigned: a session, not a name, so that a node that was restarted is another one.
    session    text,
    assignment bigint,
    error      text
);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (state, run_at);

CREATE TABLE IF NOT EXISTS dead_letters (
    id       bigint PRIMARY KEY,
    kind     text NOT NULL,
    payload  text NOT NULL,
    attempts int NOT NULL,
    error    text,
    token    bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);

-- Every assignment that was ever made, and under which token.
CREATE TABLE IF NOT EXISTS assignments (
    id      bigserial PRIMARY KEY,
    job     bigint NOT NULL,
    session text NOT NULL,
    token   bigint NOT NULL
);

-- What jobs do, in the transaction that marks them done.
CREATE TABLE IF NOT EXISTS effects (job bigint NOT NULL, session text NOT NULL, assignment bigint NOT NULL);

-- How many jobs there are of each state, in all of the cluster; the leader counts.
CREATE TABLE IF NOT EXISTS job_counts (
    state text PRIMARY KEY,
    count bigint NOT NULL,
    token bigint NOT NULL,
    at    timestamptz NOT NULL DEFAULT now()
);
