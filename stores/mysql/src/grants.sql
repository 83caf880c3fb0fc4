-- What a user who only takes part in elections needs; nothing else, and nothing on other tables. All nodes of a cluster
-- use one user: users see and wake only their own connections.
GRANT SELECT, INSERT, UPDATE, DELETE ON `DATABASE`.tenure_registers TO 'USER'@'%';
GRANT SELECT, INSERT, UPDATE ON `DATABASE`.tenure_deletions TO 'USER'@'%';
GRANT SELECT, UPDATE ON `DATABASE`.tenure_notifier TO 'USER'@'%';
GRANT SELECT ON `DATABASE`.tenure_schema TO 'USER'@'%';
GRANT SELECT ON `DATABASE`.tenure_leaders TO 'USER'@'%';
-- MySQL only, which does not count replicas for everyone: lets the user see whether any follow.
/*!80021 GRANT SELECT (PROCESSLIST_COMMAND) ON performance_schema.threads TO 'USER'@'%' */;
