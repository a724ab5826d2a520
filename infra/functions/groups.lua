-- Groups: jobs that were asked for together, and batches, which are groups whose items come from a file. The items
-- stand in an object, a line for each job, and become jobs in this order, a window at a time; `submitted` and `offset`
-- tell how far that has come. What is counted here is counted in the step that makes it true.

local ENDS = {'succeeded', 'failed', 'cancelled', 'expired'}
local OPEN = {validating = true, in_progress = true, cancelling = true, finalizing = true}
local GROUP_PARTS = {'group', 'open', 'ended'}

local function counts_of(key)
  local counts, values = {}, redis.call('HMGET', key, 'total', 'rejected', unpack(ENDS))
  for i, name in ipairs({'total', 'rejected', unpack(ENDS)}) do counts[name] = tonumber(values[i] or 0) end
  return counts
end

-- jobs that have not ended, and lines that are to become jobs
local function left_of(key)
  local counts = counts_of(key)
  local left = counts.total - counts.rejected
  for _, name in ipairs(ENDS) do left = left - counts[name] end
  return left
end

local function hasten_group(root, group, due)
  redis.call('ZADD', root .. ':tending', 'LT', due, group)
end

local function enter(root, group, state, now)
  redis.call('HSET', root .. ':group:' .. group, 'state', state, state .. '_at', now)
end

-- it is over for good
local function finish_group(root, group, state, now)
  local key = root .. ':group:' .. group
  enter(root, group, state, now)
  redis.call('ZREM', root .. ':tending', group)
  local f = redis.call('HMGET', key, 'project', 'kind', 'retention_s', 'metadata')
  for _, part in ipairs(GROUP_PARTS) do redis.call('EXPIRE', root .. ':' .. part .. ':' .. group, f[3]) end
  local kind = f[2] == 'batch' and 'batch.' .. state or 'audio.job_group.completed'
  local data = {id = group, status = state, counts = counts_of(key), metadata = cjson.decode(f[4] or '{}')}
  announce(root, f[1], kind, data)
end

-- where nothing is left to be worked on: a batch is still to be written down
local function settle_group(root, group, now)
  local key = root .. ':group:' .. group
  local f = redis.call('HMGET', key, 'state', 'kind', 'closed', 'again')
  if (f[1] ~= 'in_progress' and f[1] ~= 'cancelling') or left_of(key) > 0 or f[4] then return end
  if f[2] ~= 'batch' then
    finish_group(root, group, f[3] == 'cancelled' and 'cancelled' or 'completed', now)
    return
  end
  if f[1] == 'in_progress' then enter(root, group, 'finalizing', now) end
  hasten_group(root, group, now)
end

-- whether a line may become its job now: ok, done (it has), closed (none may any more) or ahead (of the window)
local function line_verdict(root, group, line)
  local f = redis.call('HMGET', root .. ':group:' .. group, 'submitted', 'closed', 'window')
  if not f[1] or f[2] then return 'closed' end
  if tonumber(f[1]) >= line then return 'done' end
  if redis.call('SCARD', root .. ':open:' .. group) >= tonumber(f[3]) then return 'ahead' end
  return 'ok'
end

local function line_submitted(root, group, job, line, offset)
  redis.call('HSET', root .. ':group:' .. group, 'submitted', line, 'offset', offset)
  redis.call('SADD', root .. ':open:' .. group, job)
end

local function group_job_started(root, group)
  local key = root .. ':group:' .. group
  if redis.call('EXISTS', key) == 1 then redis.call('HINCRBY', key, 'running', 1) end
end

local function group_job_ended(root, group, job, state, has_started, now)
  local key = root .. ':group:' .. group
  if redis.call('EXISTS', key) == 0 then return end
  redis.call('SREM', root .. ':open:' .. group, job)
  redis.call('ZADD', root .. ':ended:' .. group, redis.call('HINCRBY', key, 'ends', 1), job)
  redis.call('HINCRBY', key, state, 1)
  if has_started then redis.call('HINCRBY', key, 'running', -1) end
  settle_group(root, group, now)
  local f = redis.call('HMGET', key, 'submitted', 'total', 'rejected', 'window', 'closed', 'again')
  local has_more = f[6] or not f[5] and tonumber(f[1]) < tonumber(f[2]) - tonumber(f[3])
  if has_more and 2 * redis.call('SCARD', root .. ':open:' .. group) <= tonumber(f[4]) then
    hasten_group(root, group, now)
  end
end

-- a group that was over is in progress again
local function resume_group(root, group, now)
  local key = root .. ':group:' .. group
  if OPEN[redis.call('HGET', key, 'state')] then return end
  enter(root, group, 'in_progress', now)
  for _, part in ipairs(GROUP_PARTS) do redis.call('PERSIST', root .. ':' .. part .. ':' .. group) end
end

-- one of the group's jobs is sent again; where it stood among the ended ones stays known, for those who read from there.
-- A batch that is written down does not change, and is left by it.
local function group_job_retried(root, group, job, state, now)
  local key, ended = root .. ':group:' .. group, root .. ':ended:' .. group
  local f = redis.call('HMGET', key, 'kind', 'state')
  if not f[1] then return end
  if f[1] == 'batch' and f[2] ~= 'in_progress' then
    redis.call('HDEL', root .. ':job:' .. job, 'group_id')
    return
  end
  redis.call('HINCRBY', key, state, -1)
  local place = redis.call('ZSCORE', ended, job)
  if place then redis.call('HSETNX', root .. ':job:' .. job, 'ended_at_first', place) end
  redis.call('ZREM', ended, job)
  redis.call('SADD', root .. ':open:' .. group, job)
  resume_group(root, group, now)
end

-- group, idempotency key ('' for none), s that it counts, ms until somebody is to see to the group, fields
-- -> the group, or the one that the key stands for already
function F.create_group(keys, args)
  local root, group, idem, now = keys[1], args[1], args[2], now_ms()
  local earlier = idem ~= '' and redis.call('GET', root .. ':idem:' .. idem)
  if earlier and redis.call('EXISTS', root .. ':group:' .. earlier) == 1 then return earlier end
  local key, fields = root .. ':group:' .. group, cjson.decode(args[5])
  if redis.call('EXISTS', key) == 1 then return group end
  for field, value in pairs(fields) do redis.call('HSET', key, field, value) end
  redis.call('HSET', key, 'created', now, 'began', now, 'submitted', 0, 'offset', 0)
  enter(root, group, fields.kind == 'batch' and 'validating' or 'in_progress', now)
  if idem ~= '' then redis.call('SET', root .. ':idem:' .. idem, group, 'EX', args[3]) end
  if fields.kind == 'batch' then redis.call('ZADD', root .. ':batches:' .. fields.project, 0, group) end
  redis.call('ZADD', root .. ':tending', now + tonumber(args[4]), group)
  settle_group(root, group, now)
  return group
end

-- batch, fields: its file is read -> ok, or stale: it is not being validated any more
function F.begin_batch(keys, args)
  local root, group, now = keys[1], args[1], now_ms()
  local key = root .. ':group:' .. group
  if redis.call('HGET', key, 'state') ~= 'validating' then return 'stale' end
  for field, value in pairs(cjson.decode(args[2])) do redis.call('HSET', key, field, value) end
  enter(root, group, 'in_progress', now)
  hasten_group(root, group, now)
  settle_group(root, group, now)
  return 'ok'
end

-- batch, its last state, fields -> ok, or stale: it is over already
function F.end_batch(keys, args)
  local root, group = keys[1], args[1]
  local key = root .. ':group:' .. group
  if not OPEN[redis.call('HGET', key, 'state') or ''] then return 'stale' end
  for field, value in pairs(cjson.decode(args[3])) do redis.call('HSET', key, field, value) end
  finish_group(root, group, args[2], now_ms())
  return 'ok'
end

-- group, how (cancelled expired): lines that are no jobs yet never will be -> ok unknown, or the state that forbids it
function F.close_group(keys, args)
  local root, group, how, now = keys[1], args[1], args[2], now_ms()
  local key = root .. ':group:' .. group
  local f = redis.call('HMGET', key, 'state', 'closed', 'total', 'rejected', 'submitted')
  if not f[1] then return 'unknown' end
  if f[1] == 'cancelling' then return 'ok' end
  if f[1] ~= 'validating' and f[1] ~= 'in_progress' then return f[1] end
  if not f[2] or how == 'cancelled' then
    local lines = tonumber(f[3]) - tonumber(f[4]) - tonumber(f[5])
    if f[2] then redis.call('HINCRBY', key, f[2], -lines) end
    redis.call('HINCRBY', key, how, lines)
    redis.call('HSET', key, 'closed', how)
  end
  if how == 'cancelled' then
    redis.call('HDEL', key, 'again')
    enter(root, group, 'cancelling', now)
  end
  hasten_group(root, group, now)
  settle_group(root, group, now)
  return 'ok'
end

-- group, how (cancelled expired): lines that have ended so before they became jobs may become jobs after all, with the
-- whole of their time before them -> how many these are
function F.reopen_group(keys, args)
  local root, group, how, now = keys[1], args[1], args[2], now_ms()
  local key = root .. ':group:' .. group
  local f = redis.call('HMGET', key, 'closed', 'state', 'total', 'rejected', 'submitted')
  if f[1] ~= how or f[2] == 'cancelling' then return 0 end
  local lines = tonumber(f[3]) - tonumber(f[4]) - tonumber(f[5])
  redis.call('HINCRBY', key, how, -lines)
  redis.call('HDEL', key, 'closed')
  redis.call('HSET', key, 'began', now)
  if lines == 0 then return 0 end
  resume_group(root, group, now)
  redis.call('ZADD', root .. ':tending', now, group)
  return lines
end

-- group, states: its jobs that have ended so by now are sent again, a window at a time, beside those that an earlier call
-- has asked for -> ok, or stale: it is no more
function F.retry_group(keys, args)
  local root, group, now = keys[1], args[1], now_ms()
  local key = root .. ':group:' .. group
  local f = redis.call('HMGET', key, 'state', 'ends', 'again')
  if not f[1] or f[1] == 'cancelling' then return 'stale' end
  local states = f[3] and f[3] .. ',' .. args[2] or args[2]
  redis.call('HSET', key, 'again', states, 'again_behind', 0, 'again_upto', f[2] or 0)
  resume_group(root, group, now)
  redis.call('ZADD', root .. ':tending', now, group)
  return 'ok'
end

-- group, place: up to it everything is sent again; none: all of it is
function F.retried(keys, args)
  local root, group = keys[1], args[1]
  local key = root .. ':group:' .. group
  if redis.call('HEXISTS', key, 'again') == 0 then return 'ok' end
  if args[2] then
    redis.call('HSET', key, 'again_behind', args[2])
  else
    redis.call('HDEL', key, 'again', 'again_behind', 'again_upto')
    settle_group(root, group, now_ms())
  end
  return 'ok'
end

-- most, lease ms -> groups that somebody is to see to, each answered once in a lease
function F.due_groups(keys, args)
  local root, now = keys[1], now_ms()
  local due = redis.call('ZRANGEBYSCORE', root .. ':tending', '-inf', now, 'LIMIT', 0, args[1])
  for _, group in ipairs(due) do
    if redis.call('EXISTS', root .. ':group:' .. group) == 1 then
      redis.call('ZADD', root .. ':tending', now + tonumber(args[2]), group)
    else
      redis.call('ZREM', root .. ':tending', group)
    end
  end
  return due
end

-- group, ms until it is seen to again
function F.tend_group(keys, args)
  redis.call('ZADD', keys[1] .. ':tending', 'XX', now_ms() + tonumber(args[2]), args[1])
  return 'ok'
end
