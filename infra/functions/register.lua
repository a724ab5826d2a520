-- Only what adds work is refused when memory is full; what moves work on or ends it may always run.
local ADDS_WORK = {'submit', 'retry', 'put_voice', 'put_consent', 'begin_reply', 'queue_deliveries', 'create_group', 'reopen_group', 'retry_group'}
local MOVES_WORK = {'dispatch', 'claim', 'renew', 'handback', 'commit', 'advance', 'reopen', 'reap', 'end_job', 'complete_text',
  'beat', 'leave',
  'fence', 'emit', 'seal', 'close', 'follow', 'unfollow', 'trim', 'retire', 'keep', 'poke', 'press', 'expire',
  'list_jobs', 'delete_job', 'hold_reply', 'put_reply', 'drop_reply',
  'charge', 'account', 'sit', 'rise', 'check_voice', 'find_voice', 'drop_voice', 'drop_consent',
  'hasten', 'put_endpoint', 'drop_endpoint', 'due_targets', 'next_delivery', 'leave_target', 'settle_delivery',
  'begin_batch', 'end_batch', 'close_group', 'due_groups', 'tend_group', 'fade_jobs', 'retried'}
for i = 1, #ADDS_WORK do
  redis.register_function('@PREFIX@' .. ADDS_WORK[i], F[ADDS_WORK[i]])
end
for i = 1, #MOVES_WORK do
  redis.register_function{function_name = '@PREFIX@' .. MOVES_WORK[i], callback = F[MOVES_WORK[i]], flags = {'allow-oom'}}
end
