-- Jobs: admission, fairness, the window of segments, and their end.

-- one stage-0 segment of a job waits at a time; at most `ahead` segments run beyond the one being joined
local function next_segment(root, job)
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'next', 'segments', 'joined', 'ahead', 'waiting', 'order', 'take', 'model', 'class',
    'first', 'payload')
  local n = tonumber(f[1])
  if n >= tonumber(f[2]) or n > tonumber(f[3]) + tonumber(f[4]) or f[5] == '1' then return end
  local before = (f[6] == 'chained' and n - 1) or (f[6] == 'first_then_rest' and n > 0 and 0) or -1
  local prefix = job .. '/' .. f[7] .. '/'
  if before >= 0 then
    local done = redis.call('HGET', root .. ':task:' .. prefix .. before .. '/' .. f[10], 'state')
    if done ~= 'done' then return end
  end
  redis.call('HSET', key, 'next', n + 1, 'waiting', 1)
  ready_first_time(root, prefix .. n .. '/' .. f[10], f[8], f[10], f[9], f[11])
end

local function live_slots(root, pool, now)
  local sum = 0
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', root .. ':workers:' .. pool, now, '+inf')) do
    sum = sum + tonumber(redis.call('HGET', root .. ':slots:' .. pool, worker) or 0)
  end
  return sum
end

-- fairness lives here: the project served longest ago goes next, and the ready queue stays short
local function dispatch(root, model, class, stage, now)
  local pool = pool_of(model, stage)
  local queue = root .. ':ready:' .. pool .. ':' .. class
  local ring = root .. ':projects:' .. pool .. ':' .. class
  if redis.call('EXISTS', ring) == 0 then return end
  local wanted = math.max(2 * live_slots(root, pool, now), 2) - redis.call('XLEN', queue)
  while wanted > 0 do
    local project = redis.call('ZRANGE', ring, 0, 0)[1]
    if not project then return end
    local job = redis.call('LPOP', root .. ':backlog:' .. pool .. ':' .. class .. ':' .. project)
    if not job then
      redis.call('ZREM', ring, project)
    else
      local last = redis.call('ZRANGE', ring, -1, -1, 'WITHSCORES')
      redis.call('ZADD', ring, tonumber(last[2]) + 1, project)
      if running(root, job) then
        next_segment(root, job)
        wanted = wanted - 1
      end
    end
  end
end

local function enqueue(root, job, now)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'project', 'first', 'timeout_ms', 'counted',
    'left_ms')
  local pool = pool_of(f[1], f[4])
  local ring = root .. ':projects:' .. pool .. ':' .. f[2]
  redis.call('ZADD', root .. ':live', now + tonumber(f[7] or f[5]), job)
  if f[6] == '1' then redis.call('HINCRBY', root .. ':projectlive', f[3], 1) end
  redis.call('ZADD', root .. ':queued:' .. f[1] .. ':' .. f[2], now, job)
  redis.call('RPUSH', root .. ':backlog:' .. pool .. ':' .. f[2] .. ':' .. f[3], job)
  if not redis.call('ZSCORE', ring, f[3]) then
    local oldest = redis.call('ZRANGE', ring, 0, 0, 'WITHSCORES')
    redis.call('ZADD', ring, oldest[2] or 0, f[3])
  end
  dispatch(root, f[1], f[2], f[4], now)
end

-- nothing of the job waits any more, and whoever is at it hears that it is over
local function withdraw(root, job)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'project', 'state', 'first')
  if f[4] == 'queued' then
    redis.call('LREM', root .. ':backlog:' .. pool_of(f[1], f[5]) .. ':' .. f[2] .. ':' .. f[3], 0, job)
    redis.call('ZREM', root .. ':queued:' .. f[1] .. ':' .. f[2], job)
  end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':tasks:' .. job)) do
    local _, _, _, stage = split_task(task)
    unready(root, task, f[1], stage)
  end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. job)) do
    tell(root, redis.call('HGET', root .. ':task:' .. task, 'worker'), 'closed', task)
  end
end

local RECORD = {'job', 'tasks', 'segments', 'owned', 'asked'}

-- how long the record of an ended job stays, and its place in the project's list
local function let_lapse(root, job, seconds, now)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'project', 'listed')
  for _, part in ipairs(RECORD) do redis.call('EXPIRE', root .. ':' .. part .. ':' .. job, seconds) end
  if f[2] == '1' then redis.call('ZADD', root .. ':lapses', now + tonumber(seconds) * 1000, f[1] .. '/' .. job) end
end

local function strike_lapsed(root, now, most)
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', root .. ':lapses', '-inf', now, 'LIMIT', 0, most)) do
    local project, job = string.match(entry, '^([^/]+)/(.*)$')
    redis.call('ZREM', root .. ':jobs:' .. project, job)
    redis.call('ZREM', root .. ':lapses', entry)
  end
end

-- what was made for nobody who waited counts in its key's quotas, in the periods in which it was asked for
local function account_audio(root, job)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'account', 'samples', 'request')
  local samples = tonumber(f[2] or 0)
  if not f[1] or samples == 0 then return end
  local audio_ms, name = math.floor(samples * 1000 / cjson.decode(f[3]).sample_rate + 0.5), nil
  for part in string.gmatch(f[1], '%S+') do
    local quota = root .. ':quota:' .. (name or '') .. ':' .. part
    if name and redis.call('EXISTS', quota) == 1 then redis.call('HINCRBY', quota, 'audio_ms', audio_ms) end
    name = name or part
  end
end

-- the job is over: nothing of it can be claimed, renewed or committed any more
local function terminate(root, job, state, now)
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'model', 'project', 'notify', 'retention_s', 'counted', 'only', 'group_id', 'started',
    'listed')
  withdraw(root, job)
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. job)) do
    local _, _, _, stage = split_task(task)
    release(root, task, job, f[1], stage)
  end
  redis.call('HSET', key, 'state', state, 'finished', now)
  redis.call('HINCRBY', key, 'version', 1)
  redis.call('ZREM', root .. ':live', job)
  if f[5] == '1' and redis.call('HINCRBY', root .. ':projectlive', f[2], -1) <= 0 then
    redis.call('HDEL', root .. ':projectlive', f[2])
  end
  if f[6] and redis.call('GET', root .. ':idem:' .. f[6]) == job then redis.call('DEL', root .. ':idem:' .. f[6]) end
  account_audio(root, job)
  if f[7] then group_job_ended(root, f[7], job, state, f[8], now) end
  announce_end(root, job, state, f[3] == '1' or (f[9] == '1' and is_listening(root, f[2])))
  let_lapse(root, job, f[4], now)
  local tasks_s = state == 'succeeded' and math.min(tonumber(f[4]), SPOKEN_S) or f[4]
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':tasks:' .. job)) do
    redis.call('EXPIRE', root .. ':task:' .. task, tasks_s)
  end
  if state == 'succeeded' then
    for _, part in ipairs({'tasks', 'segments'}) do redis.call('EXPIRE', root .. ':' .. part .. ':' .. job, tasks_s) end
  end
end

-- one compare-and-set; a cancelled job waits for its owners to let go, any other end is at once
local function end_job(root, job, state, problem, now)
  local key = root .. ':job:' .. job
  local was = redis.call('HGET', key, 'state')
  if not was then
    redis.call('ZREM', root .. ':live', job)
    return 'unknown'
  end
  if was ~= 'queued' and was ~= 'running' and was ~= 'cancelling' then return was end
  if problem ~= '' and was ~= 'cancelling' then redis.call('HSET', key, 'error', problem) end
  if state == 'cancelled' and redis.call('SCARD', root .. ':owned:' .. job) > 0 then
    withdraw(root, job)
    if was ~= 'cancelling' then
      redis.call('HSET', key, 'state', 'cancelling')
      redis.call('HINCRBY', key, 'version', 1)
    end
    return 'cancelling'
  end
  if was == 'cancelling' then state = 'cancelled' end
  terminate(root, job, state, now)
  return state
end

local function settle_cancelled(root, job, now)
  if redis.call('HGET', root .. ':job:' .. job, 'state') == 'cancelling'
    and redis.call('SCARD', root .. ':owned:' .. job) == 0 then
    terminate(root, job, 'cancelled', now)
  end
end

-- whether a job can stand for a request that is made again
local function serves(root, job)
  return running(root, job) or redis.call('HGET', root .. ':job:' .. job, 'state') == 'succeeded'
end

-- job, idempotency key ('' for none), how long it counts in s (0 = until the job ends), most queued, most of a project,
-- record, segments… -> {answer, job or depth}
function F.submit(keys, args)
  local root, job, idem, idem_ttl, max_queued, max_project = keys[1], args[1], args[2], args[3], tonumber(args[4]), tonumber(args[5])
  local record = cjson.decode(args[6])
  local key = root .. ':job:' .. job
  if record.line then
    local verdict = line_verdict(root, record.group_id, record.line)
    if verdict == 'done' then return {'ok', job} end
    if verdict ~= 'ok' then return {verdict, 0} end
  end
  if redis.call('EXISTS', key) == 1 then return {'ok', job} end
  if idem ~= '' then
    local earlier = redis.call('GET', root .. ':idem:' .. idem)
    if earlier and serves(root, earlier) then return {'exists', earlier} end
  end
  local depth = redis.call('ZCARD', root .. ':queued:' .. record.model .. ':' .. record.class)
  if depth >= max_queued then return {'full', depth} end
  if max_project > 0 and tonumber(redis.call('HGET', root .. ':projectlive', record.project) or 0) >= max_project then
    return {'quota', max_project}
  end
  local now = now_ms()
  if record.asked ~= '' then redis.call('SET', root .. ':asked:' .. job, record.asked) end
  record.asked = nil
  if record.line then line_submitted(root, record.group_id, job, record.line, record.line_end) end
  record.line, record.line_end = nil, nil
  for field, value in pairs(record) do redis.call('HSET', key, field, value) end
  if record.listed == 1 then redis.call('ZADD', root .. ':jobs:' .. record.project, now, job) end
  redis.call('HSET', key, 'state', 'queued', 'take', 1, 'version', 1, 'created', now, 'segments', #args - 6,
    'next', 0, 'joined', 0, 'waiting', 0, 'first', cjson.decode(record.stages)[1])
  for i = 7, #args do redis.call('HSET', root .. ':segments:' .. job, i - 7, args[i]) end
  if record.open then redis.call('SADD', root .. ':tasks:' .. job, job .. '/1/0/text') end
  if idem ~= '' and idem_ttl == '0' then
    redis.call('SET', root .. ':idem:' .. idem, job, 'PX', record.timeout_ms)  -- no job outlives its deadline
    redis.call('HSET', key, 'only', idem)
  elseif idem ~= '' then
    redis.call('SET', root .. ':idem:' .. idem, job, 'EX', idem_ttl)
  end
  enqueue(root, job, now)
  return {'ok', job}
end

-- job, text, details, the request as it turned out: an open text is complete -> ok unknown
function F.complete_text(keys, args)
  local root, job = keys[1], args[1]
  local key, segments, asked = root .. ':job:' .. job, root .. ':segments:' .. job, root .. ':asked:' .. job
  if redis.call('EXISTS', key, segments) < 2 then return 'unknown' end
  redis.call('HDEL', key, 'open')
  redis.call('HSET', key, 'details', args[3])
  redis.call('HSET', segments, 0, args[2])
  redis.call('SET', asked, args[4], 'XX', 'KEEPTTL')
  return 'ok'
end

function F.dispatch(keys, args)
  dispatch(keys[1], args[1], args[2], args[3], now_ms())
  return 'ok'
end

-- job, state (failed cancelled expired), problem -> the state the job is in now
function F.end_job(keys, args)
  return end_job(keys[1], args[1], args[2], args[3], now_ms())
end

-- job, its request from now on ('' = as before): a failed, cancelled or expired job starts a new take with new logs
-- -> ok, unknown, or the state that forbids it (incomplete: not all of its text ever came)
function F.retry(keys, args)
  local root, job = keys[1], args[1]
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'state', 'take', 'project', 'group_id', 'open')
  if not f[1] or redis.call('EXISTS', root .. ':segments:' .. job) == 0 then return 'unknown' end
  if f[1] ~= 'failed' and f[1] ~= 'cancelled' and f[1] ~= 'expired' then return f[1] end
  if f[5] then return 'incomplete' end
  redis.call('DEL', root .. ':tasks:' .. job, root .. ':owned:' .. job)
  redis.call('ZREM', root .. ':dead', job)
  redis.call('ZREM', root .. ':lapses', f[3] .. '/' .. job)
  redis.call('HDEL', key, 'error', 'finished', 'started', 'first_audio', 'attempt', 'dead_task', 'samples', 'left_ms',
    'lost_with', 'stalled_ms')
  if args[2] ~= '' then redis.call('HSET', key, 'request', args[2]) end
  redis.call('HSET', key, 'state', 'queued', 'take', tonumber(f[2]) + 1, 'next', 0, 'joined', 0, 'waiting', 0)
  redis.call('HINCRBY', key, 'version', 1)
  for _, part in ipairs({'job', 'segments', 'asked'}) do redis.call('PERSIST', root .. ':' .. part .. ':' .. job) end
  if f[4] then group_job_retried(root, f[4], job, f[1], now_ms()) end
  enqueue(root, job, now_ms())
  return 'ok'
end
