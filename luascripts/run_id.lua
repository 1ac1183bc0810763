-- run_id: whether a script can learn the run id of the server that executes it. Some servers refuse INFO in scripts.
--
-- KEYS  none
-- ARGV  none
-- Reply the run id, 40 hex digits; '' if INFO has none
-- Cost  1 command.

return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
