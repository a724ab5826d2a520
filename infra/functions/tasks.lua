-- Tasks: claims, leases, attempts, and the workers that hold them.

-- what an owner may still do with its task
local function standing(root, task, token)
  local f = redis.call('HMGET', root .. ':task:' .. task, 'state', 'token')
  if f[2] ~= token then return 'fenced' end
  if f[1] == 'done' then return 'done' end
  if f[1] ~= 'leased' then return 'fenced' end
  if not current(root, task) then return 'closed' end
  return 'ok'
end

-- one more failed try; gives the job up when there have been too many. True when it was given up.
local function count_attempt(root, task, job, problem, now)
  local key = root .. ':task:' .. task
  local attempts = redis.call('HINCRBY', key, 'attempts', 1)
  local _, _, _, stage = split_task(task)
  -- the farm's own stages hold a task for as long as its job lasts: one alone would keep all others waiting
  if not FARM_STAGES[stage] then redis.call('HSET', key, 'solo', 1) end
  if attempts < tonumber(redis.call('HGET', root .. ':job:' .. job, 'max_attempts')) then return false end
  redis.call('ZADD', root .. ':dead', now, job)
  end_job(root, job, 'failed', problem, now)
  redis.call('HSET', root .. ':job:' .. job, 'dead_task', task)
  let_lapse(root, job, DEAD_S, now)
  return true
end

-- as clients see it; a worker that is lost with several tasks of the job is one attempt ('' for one that is not lost)
local function tell_attempt(root, job, lost)
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'lost_with', 'attempt')
  if lost ~= '' and f[1] == lost then return end
  redis.call('HSET', key, 'lost_with', lost, 'attempt', tonumber(f[2] or 1) + 1)
  redis.call('HINCRBY', key, 'version', 1)
end

local function again(root, task, job, stage, parked)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'payload')
  ready(root, task, f[1], stage, f[2], f[3], parked)
end

-- classes with something ready: those whose oldest entry has aged go first, then the one with the least virtual time
local function classes_in_order(root, pool, only, now)
  local waiting = {}
  for rank, class in ipairs(only and only ~= UNHEARD and {only} or CLASSES) do
    local head = redis.call('XRANGE', root .. ':ready:' .. pool .. ':' .. class, '-', '+', 'COUNT', 1)[1]
    if head then
      local aged = now - tonumber(string.match(head[1], '^%d+')) > AGED_MS
      local pass = tonumber(redis.call('HGET', root .. ':pass:' .. pool, class) or 0)
      waiting[#waiting + 1] = {class = class, rank = rank, pass = pass, aged = aged}
    end
  end
  table.sort(waiting, function(a, b)
    if a.aged ~= b.aged then return a.aged end
    if a.pass ~= b.pass then return a.pass < b.pass end
    return a.rank < b.rank
  end)
  return waiting
end

-- the served class pays 1/weight; classes that were idle start where the least of the waiting ones stands
local function charge(root, pool, served, waiting)
  local key, least = root .. ':pass:' .. pool, served.pass
  for _, other in ipairs(waiting) do least = math.min(least, other.pass) end
  for _, class in ipairs(CLASSES) do
    if tonumber(redis.call('HGET', key, class) or 0) < least then redis.call('HSET', key, class, least) end
  end
  redis.call('HSET', key, served.class, served.pass + 1 / WEIGHT[served.class])
end

local function index_of(list, wanted)
  for i, name in ipairs(list) do
    if name == wanted then return i end
  end
end

-- a segment goes through the model's stages, then the job through its tail -> segment ('j' for the whole job) and stage
local function successor(segment, stage, stages, tail)
  local at = index_of(stages, stage)
  if at and at < #stages then return segment, stages[at + 1] end
  return 'j', tail[at and 1 or index_of(tail, stage) + 1]
end

-- how far a job is heard -> segments joined, samples in them, ms since its first audio was there (-1 before it), ms for
-- which its listener stood still since
local function heard(root, job, now)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'joined', 'samples', 'first_audio', 'stalled_ms')
  return f[1] or '0', f[2] or '0', f[3] and tostring(math.max(now - tonumber(f[3]), 0)) or '-1', f[4] or '0'
end

local function claim_answer(root, task, token)
  local job, take, segment, stage = split_task(task)
  local t = redis.call('HMGET', root .. ':task:' .. task, 'attempts', 'solo', 'from')
  local j = redis.call('HMGET', root .. ':job:' .. job, 'model', 'stages', 'segments', 'request', 'live', 'retention_s',
    'class', 'created')
  local text = redis.call('HGET', root .. ':segments:' .. job, segment) or ''
  local now = now_ms()
  local left = tonumber(redis.call('ZSCORE', root .. ':live', job) or 0) - now
  return {'task', task, token, text, t[1] or '0', t[2] or '0', t[3] or '-1', j[1], j[2], j[3], j[4], j[5], j[6],
    tostring(left), j[7], tostring(math.max(now - tonumber(j[8]), 0)), heard(root, job, now)}
end

-- whether a task is for somebody who listens and may wait: for the beginning, or for what is far from being heard
local function is_held(root, task)
  return redis.call('HGET', root .. ':job:' .. split_task(task), 'live') == '1' and not is_awaited(root, task)
end

-- the first entry that is for this worker, whose place in the queue is given up for good; also the first suspect that
-- must wait for an empty batch: who is ongoing passes it, and nobody else does
local function take_entry(root, pool, class, version, open_slots, only)
  local queue, from, suspect = root .. ':ready:' .. pool .. ':' .. class, '-', nil
  while from do
    local entries = redis.call('XRANGE', queue, from, '+', 'COUNT', 16)
    for _, entry in ipairs(entries) do
      local task = entry[2][2]
      if not current(root, task) or redis.call('HGET', root .. ':task:' .. task, 'state') ~= 'ready' then
        redis.call('XDEL', queue, entry[1])
      elseif tonumber(entry[2][4]) <= version and not (only == UNHEARD and is_held(root, task)) then
        if open_slots == 0 or redis.call('HGET', root .. ':task:' .. task, 'solo') ~= '1' then
          redis.call('XDEL', queue, entry[1])
          return task
        end
        suspect = suspect or entry[1]
        if class ~= ONGOING then return nil, suspect end
      end
    end
    from = #entries == 16 and '(' .. entries[16][1]
  end
  return nil, suspect
end

-- a task of the pool by class and age, or nil; also whether a suspect has waited so long that the batch must run empty
local function pick(root, pool, version, open_slots, only, now)
  local ongoing, suspect = take_entry(root, pool, ONGOING, version, open_slots)
  local alone = suspect and now - tonumber(string.match(suspect, '^%d+')) >= SUSPECT_MS
  if ongoing or alone or only == ONGOING then return ongoing, alone end
  local waiting = classes_in_order(root, pool, only, now)
  for _, candidate in ipairs(waiting) do
    local task, alone = take_entry(root, pool, candidate.class, version, open_slots, only)
    if task then charge(root, pool, candidate, waiting) end
    if task or alone then return task, alone end
  end
end

-- pool, worker, nonce, lease ms, version, open slots, what is wanted beside what is ongoing: one class, `ongoing` for
-- none, `unheard` for any but without those who wait for a beginning, or nothing for any
-- -> {'task', …} or {'none'} or {'alone'} (a suspect waits for an empty batch)
function F.claim(keys, args)
  local root, pool, worker, nonce = keys[1], args[1], args[2], args[3]
  local lease_ms, version, open_slots = tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local me = root .. ':worker:' .. worker
  local last = redis.call('HMGET', me, 'nonce:' .. pool, 'task:' .. pool)
  if last[1] == nonce then  -- a repeated command gets the first one's answer, unless the lease has lapsed meanwhile
    local token = redis.call('HGET', root .. ':task:' .. last[2], 'token')
    local held = redis.call('SISMEMBER', root .. ':owned:' .. split_task(last[2]), last[2]) == 1
    if held and string.match(token, ':(.*)$') == nonce then return claim_answer(root, last[2], token) end
    return {'none'}
  end
  local now = now_ms()
  local model, pool_stage = string.match(pool, '^(.*)/([^/]+)$')
  if model ~= 'farm' then for _, class in ipairs(CLASSES) do dispatch(root, model, class, pool_stage, now) end end
  local task, alone = pick(root, pool, version, open_slots, args[7], now)
  if alone then return {'alone'} end
  if not task then return {'none'} end
  local job, take, segment, stage = split_task(task)
  local job_key, key = root .. ':job:' .. job, root .. ':task:' .. task
  local epoch = redis.call('HINCRBY', key, 'epoch', 1)
  local token = epoch .. ':' .. nonce
  redis.call('HSET', key, 'state', 'leased', 'token', token, 'worker', worker)
  redis.call('HSET', me, 'nonce:' .. pool, nonce, 'task:' .. pool, task)
  redis.call('EXPIRE', me, WORKER_S, 'NX')
  redis.call('ZADD', root .. ':leases', now + lease_ms, task)
  redis.call('SADD', root .. ':owned:' .. job, task)
  redis.call('HINCRBY', root .. ':leased', pool, 1)
  local f = redis.call('HMGET', job_key, 'state', 'stages', 'model', 'class', 'first', 'payload', 'tail', 'group_id')
  if f[1] == 'queued' then
    redis.call('HSET', job_key, 'state', 'running', 'started', now)
    redis.call('HINCRBY', job_key, 'version', 1)
    redis.call('ZREM', root .. ':queued:' .. f[3] .. ':' .. f[4], job)
    if f[8] then group_job_started(root, f[8]) end
  end
  local next_part, next_stage = successor(segment, stage, cjson.decode(f[2]), cjson.decode(f[7]))
  if next_stage then
    local follower = job .. '/' .. take .. '/' .. next_part .. '/' .. next_stage
    ready_first_time(root, follower, f[3], next_stage, f[4], f[6])
  end
  if stage == f[5] and epoch == 1 then
    redis.call('HSET', job_key, 'waiting', 0)
    next_segment(root, job)
  end
  return claim_answer(root, task, token)
end

-- lease ms, then (task, token, position)… -> one of ok fenced closed done for each, each followed by how far it is heard
function F.renew(keys, args)
  local root, now, answers = keys[1], now_ms(), {}
  local until_ms = now + tonumber(args[1])
  for i = 2, #args, 3 do
    local task = args[i]
    local job = split_task(task)
    local verdict = standing(root, task, args[i + 1])
    if verdict == 'ok' then
      redis.call('HSET', root .. ':task:' .. task, 'pos', args[i + 2])
      redis.call('ZADD', root .. ':leases', until_ms, task)
    end
    answers[#answers + 1] = verdict
    for _, figure in ipairs({heard(root, job, now)}) do answers[#answers + 1] = figure end
  end
  return answers
end

-- task, token, problem ('' = drained or preempted: no attempt counted), whether it is parked: it has nothing to do yet
-- ('1' or '0') -> ok fenced closed failed
function F.handback(keys, args)
  local root, task, now = keys[1], args[1], now_ms()
  local job, _, _, stage = split_task(task)
  local verdict = standing(root, task, args[2])
  if verdict ~= 'ok' and verdict ~= 'closed' then return verdict end
  release(root, task, job, redis.call('HGET', root .. ':job:' .. job, 'model'), stage)
  redis.call('HSET', root .. ':task:' .. task, 'state', 'free')
  if verdict == 'closed' then
    settle_cancelled(root, job, now)
    return verdict
  end
  if args[3] ~= '' then
    if count_attempt(root, task, job, args[3], now) then return 'failed' end
    tell_attempt(root, job, '')
  end
  again(root, task, job, stage, args[4] == '1')
  return 'ok'
end

-- task, token, result ('' except for the last of the tail: the job's result record) -> ok fenced closed
function F.commit(keys, args)
  local root, task = keys[1], args[1]
  local job, _, _, stage = split_task(task)
  local verdict = standing(root, task, args[2])
  if verdict == 'done' then return 'ok' end
  if verdict ~= 'ok' then return verdict end
  release(root, task, job, redis.call('HGET', root .. ':job:' .. job, 'model'), stage)
  redis.call('HSET', root .. ':task:' .. task, 'state', 'done')
  redis.call('HDEL', root .. ':task:' .. task, 'from')
  if args[3] ~= '' then
    redis.call('HSET', root .. ':job:' .. job, 'result', args[3])
    terminate(root, job, 'succeeded', now_ms())
  else
    next_segment(root, job)
  end
  return 'ok'
end

-- whoever holds tasks of a job that is listened to hears how far that is
local function tell_owners(root, job, now)
  local joined, samples, playing_ms, stalled_ms = heard(root, job, now)
  local told = {}
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. job)) do
    local worker = redis.call('HGET', root .. ':task:' .. task, 'worker')
    if not told[worker] then
      tell(root, worker, 'heard', job, 'j', joined, 's', samples, 'p', playing_ms, 'w', stalled_ms)
    end
    told[worker] = true
  end
end

-- what is awaited now leaves the queue of its class
local function call_up(root, job, joined)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'take', 'model', 'class', 'payload', 'stages')
  for segment = joined, joined + 1 do
    for _, stage in ipairs(cjson.decode(f[5])) do
      local task = string.format('%s/%s/%d/%s', job, f[1], segment, stage)
      local t = redis.call('HMGET', root .. ':task:' .. task, 'state', 'class')
      if t[1] == 'ready' and t[2] ~= ONGOING then
        unready(root, task, f[2], stage)
        ready(root, task, f[2], stage, f[3], f[4])
      end
    end
  end
end

-- a listener that has heard all but what has just come stood still for want of it, and plays on from here
local function note_stall(root, job, samples, now)
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'first_audio', 'stalled_ms', 'request')
  if not f[1] then return end
  local dry_ms = math.floor(now - tonumber(f[1]) - samples * 1000 / cjson.decode(f[3]).sample_rate)
  if dry_ms > tonumber(f[2] or 0) then redis.call('HSET', key, 'stalled_ms', dry_ms) end
end

-- finish's task, token, segments joined, samples in out: lets the next segments start -> ok fenced closed done
function F.advance(keys, args)
  local root, task = keys[1], args[1]
  local job = split_task(task)
  local verdict = standing(root, task, args[2])
  if verdict ~= 'ok' then return verdict end
  redis.call('HSET', root .. ':job:' .. job, 'joined', args[3], 'samples', args[4])
  local now = now_ms()
  if args[4] ~= '0' then redis.call('HSETNX', root .. ':job:' .. job, 'first_audio', now) end
  redis.call('HINCRBY', root .. ':job:' .. job, 'version', 1)
  if redis.call('HGET', root .. ':job:' .. job, 'live') == '1' then
    note_stall(root, job, tonumber(args[4]), now)
    call_up(root, job, tonumber(args[3]))
    tell_owners(root, job, now)
  end
  next_segment(root, job)
  return 'ok'
end

-- task, position: a reader misses what the task wrote -> reopened, running (somebody is at it), closed
function F.reopen(keys, args)
  local root, task = keys[1], args[1]
  local job, _, _, stage = split_task(task)
  if not current(root, task) then return 'closed' end
  local key = root .. ':task:' .. task
  if redis.call('HGET', key, 'state') ~= 'done' then return 'running' end
  redis.call('HSET', key, 'from', args[2])
  again(root, task, job, stage)
  return 'reopened'
end

local function reap_lease(root, task, now, ended)
  local job, _, _, stage = split_task(task)
  local key = root .. ':task:' .. task
  release(root, task, job, redis.call('HGET', root .. ':job:' .. job, 'model') or '', stage)
  redis.call('ZREM', root .. ':leases', task)
  if not current(root, task) then
    settle_cancelled(root, job, now)
    return
  end
  redis.call('HSET', key, 'state', 'free')
  local f = redis.call('HMGET', key, 'pos', 'mark')
  if (f[1] or '0') == (f[2] or '0') then
    local lost = cjson.encode({code = 'generation_failed', message = 'the worker at it was lost too often'})
    if count_attempt(root, task, job, lost, now) then
      ended[#ended + 1] = job
      return
    end
  else
    redis.call('HSET', key, 'mark', f[1])
  end
  tell_attempt(root, job, redis.call('HGET', key, 'worker'))
  again(root, task, job, stage)
end

-- at most n of each -> jobs that ended by it
function F.reap(keys, args)
  local root, now, ended = keys[1], now_ms(), {}
  for _, task in ipairs(redis.call('ZRANGEBYSCORE', root .. ':leases', '-inf', now, 'LIMIT', 0, args[1])) do
    reap_lease(root, task, now, ended)
  end
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', root .. ':live', '-inf', now, 'LIMIT', 0, args[1])) do
    local late = cjson.encode({code = 'deadline_exceeded', message = 'the job was not finished by its deadline'})
    end_job(root, job, 'expired', late, now)
    ended[#ended + 1] = job
  end
  redis.call('ZREMRANGEBYSCORE', root .. ':dead', '-inf', now - DEAD_S * 1000)
  strike_lapsed(root, now, args[1])
  return ended
end

-- worker, report, lapse ms, then (pool, slots)…: the worker is alive and serves these pools
function F.beat(keys, args)
  local root, worker, now = keys[1], args[1], now_ms()
  redis.call('HSET', root .. ':worker:' .. worker, 'report', args[2])
  redis.call('PEXPIRE', root .. ':worker:' .. worker, args[3])
  for i = 4, #args, 2 do
    redis.call('ZADD', root .. ':workers:' .. args[i], now + tonumber(args[3]), worker)
    redis.call('HSET', root .. ':slots:' .. args[i], worker, args[i + 1])
    for _, gone in ipairs(redis.call('ZRANGEBYSCORE', root .. ':workers:' .. args[i], '-inf', now)) do
      redis.call('ZREM', root .. ':workers:' .. args[i], gone)
      redis.call('HDEL', root .. ':slots:' .. args[i], gone)
    end
  end
  return 'ok'
end

-- worker, then pools…: the worker leaves
function F.leave(keys, args)
  local root, worker = keys[1], args[1]
  for i = 2, #args do
    redis.call('ZREM', root .. ':workers:' .. args[i], worker)
    redis.call('HDEL', root .. ':slots:' .. args[i], worker)
  end
  redis.call('DEL', root .. ':worker:' .. worker)
  return 'ok'
end
