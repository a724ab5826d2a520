-- Webhooks: events for the outside, endpoints of a project, and deliveries to targets. A target is an endpoint, or the
-- URL that a job brought with it; whoever serves a target makes its deliveries one after the other, so that one that
-- hangs holds up nobody but itself.

local MOST_LOGGED = 1000

local function is_listening(root, project)
  return redis.call('EXISTS', root .. ':webhooks:' .. project) == 1
end

local function announce(root, project, kind, data)
  if not is_listening(root, project) then return end
  redis.call('XADD', root .. ':outbox', '*', 'type', kind, 'project', project, 'data', cjson.encode(data))
end

-- what is told of a job's end stands in the event itself: the record may be gone by the time it is read
local function announce_end(root, job, state, wanted)
  local names = {'project', 'webhook', 'custom_id', 'group_id', 'metadata'}
  local f = redis.call('HMGET', root .. ':job:' .. job, unpack(names))
  if not wanted and (f[2] or '') == '' then return end
  local event = {'type', 'audio.job.' .. state, 'job', job}
  for i, name in ipairs(names) do
    if f[i] then
      event[#event + 1] = name
      event[#event + 1] = f[i]
    end
  end
  redis.call('XADD', root .. ':outbox', '*', unpack(event))
end

-- project, id, record, most endpoints: a record replaces the revision before its own -> ok changed full
function F.put_endpoint(keys, args)
  local endpoints, id, record = keys[1] .. ':webhooks:' .. args[1], args[2], args[3]
  local stored = redis.call('HGET', endpoints, id)
  if stored == record then return 'ok' end
  local revision = stored and cjson.decode(stored).revision or 0
  if revision + 1 ~= cjson.decode(record).revision then return 'changed' end
  if not stored and redis.call('HLEN', endpoints) >= tonumber(args[4]) then return 'full' end
  redis.call('HSET', endpoints, id, record)
  return 'ok'
end

-- project, id -> ok unknown
function F.drop_endpoint(keys, args)
  local root, target = keys[1], args[2]
  if redis.call('HDEL', root .. ':webhooks:' .. args[1], target) == 0 then return 'unknown' end
  redis.call('DEL', root .. ':due:' .. target, root .. ':deliveries:' .. target)
  redis.call('ZREM', root .. ':targets', target)
  return 'ok'
end

local function log_delivery(root, target, delivery, keep_s)
  local logged = root .. ':deliveries:' .. target
  redis.call('ZADD', logged, 0, delivery)  -- by id, which is by time
  redis.call('EXPIRE', logged, keep_s)
  for _, old in ipairs(redis.call('ZRANGE', logged, 0, -MOST_LOGGED - 1)) do
    redis.call('ZREM', logged, old)
    if redis.call('HGET', root .. ':delivery:' .. old, 'state') ~= 'pending' then
      redis.call('DEL', root .. ':delivery:' .. old)
    end
  end
end

-- the event's entry in the outbox ('' for none), s that records stay, then (delivery, target, record)…
-- -> ok, or gone: somebody has taken the entry
function F.queue_deliveries(keys, args)
  local root, keep_s, now = keys[1], args[2], now_ms()
  if args[1] ~= '' and redis.call('XDEL', root .. ':outbox', args[1]) == 0 then return 'gone' end
  for i = 3, #args, 3 do
    local delivery, target = args[i], args[i + 1]
    local key = root .. ':delivery:' .. delivery
    if redis.call('EXISTS', key) == 0 then
      redis.call('HSET', key, 'record', args[i + 2], 'state', 'pending', 'tries', 0)
      redis.call('EXPIRE', key, keep_s)
      redis.call('ZADD', root .. ':due:' .. target, now, delivery)
      log_delivery(root, target, delivery, keep_s)
      if redis.call('EXISTS', root .. ':serving:' .. target) == 0 then
        redis.call('ZADD', root .. ':targets', 'LT', now, target)
      end
    end
  end
  return 'ok'
end

-- most, lease ms -> targets with something due, which are asked for no more until the lease is over
function F.due_targets(keys, args)
  local root, now = keys[1], now_ms()
  local due = redis.call('ZRANGEBYSCORE', root .. ':targets', '-inf', now, 'LIMIT', 0, args[1])
  for _, target in ipairs(due) do
    redis.call('ZADD', root .. ':targets', now + tonumber(args[2]), target)
    redis.call('SET', root .. ':serving:' .. target, '', 'PX', args[2])
  end
  return due
end

local function leave(root, target, now)
  redis.call('DEL', root .. ':serving:' .. target)
  local following = redis.call('ZRANGE', root .. ':due:' .. target, 0, 0, 'WITHSCORES')
  if following[1] then
    -- what is due already waits behind the targets that have waited longer
    redis.call('ZADD', root .. ':targets', math.max(tonumber(following[2]), now), target)
  else
    redis.call('ZREM', root .. ':targets', target)
  end
end

-- target, token, lease ms -> {delivery, record, tries made}; nothing when none is due or another token serves it
function F.next_delivery(keys, args)
  local root, target, token, now = keys[1], args[1], args[2], now_ms()
  local serving, due = root .. ':serving:' .. target, root .. ':due:' .. target
  local server = redis.call('GET', serving) or ''
  if server ~= '' and server ~= token then return false end
  while true do
    local delivery = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, 1)[1]
    if not delivery then
      leave(root, target, now)
      return false
    end
    local f = redis.call('HMGET', root .. ':delivery:' .. delivery, 'record', 'tries')
    if f[1] then
      redis.call('SET', serving, token, 'PX', args[3])
      redis.call('ZADD', root .. ':targets', now + tonumber(args[3]), target)
      return {delivery, f[1], tonumber(f[2])}
    end
    redis.call('ZREM', due, delivery)
  end
end

-- target, token: what is left is for the next
function F.leave_target(keys, args)
  local root, target = keys[1], args[1]
  if redis.call('GET', root .. ':serving:' .. target) == args[2] then leave(root, target, now_ms()) end
  return 'ok'
end

-- delivery, target, number of the try, what came of it, outcome, state (pending delivered failed), ms until the next
-- try, s that the record stays -> ok, or stale: this try is told already
function F.settle_delivery(keys, args)
  local root, delivery, target, number, state = keys[1], args[1], args[2], tonumber(args[3]), args[6]
  local key, due = root .. ':delivery:' .. delivery, root .. ':due:' .. target
  if tonumber(redis.call('HGET', key, 'tries') or -1) ~= number - 1 then return 'stale' end
  redis.call('HSET', key, 'tries', number, 'try:' .. number, args[4], 'state', state)
  redis.call('HINCRBY', root .. ':webhookoutcomes', args[5], 1)
  if state == 'pending' then
    redis.call('ZADD', due, now_ms() + tonumber(args[7]), delivery)
  else
    redis.call('ZREM', due, delivery)
    redis.call('EXPIRE', key, args[8])
  end
  return 'ok'
end
