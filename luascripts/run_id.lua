-- run_id: whether a script can learn the run id of the server that executes it. Some servers refuse INFO in scripts.
--
-- KEYS  1 partition   any key of the node that is asked; it is not read
-- ARGV  none
-- Reply the run id, 40 hex digits; '' if INFO has none
-- Cost  1 command.

return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
