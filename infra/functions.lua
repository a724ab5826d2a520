#!lua name=@LIBRARY@

-- The stage log protocol: every step that must be atomic. KEYS[1] is a shard's root, such as "tts:{0}";
-- every key below starts with it, so all keys of a shard lie on one server. Times are server milliseconds.
--
-- Control server
--   job:<job>            hash   the job record; `state` is queued running cancelling succeeded failed cancelled expired
--   segments:<job>       hash   segment index -> text
--   tasks:<job>          set    every task that was ever made ready
--   owned:<job>          set    tasks that a worker holds now
--   task:<task>          hash   state (ready leased done), epoch, token, worker, attempts, pos, mark, solo, from, rid,
--                               class
--   ready:<pool>:<class> stream tasks that wait for a worker of the pool; an entry is deleted by the claim
--   pass:<pool>          hash   class -> virtual time already served (stride scheduling)
--   leases               zset   task -> end of lease
--   backlog:<model>:<class>:<project> list   jobs not yet dispatched
--   projects:<model>:<class>          zset   projects with a backlog -> when last served
--   queued:<model>       zset   jobs that nobody has started -> when submitted
--   live                 zset   jobs not ended -> deadline
--   projectlive          hash   project -> jobs not ended
--   idem:<key>           string job id of an idempotency key
--   workers:<pool>       zset   worker -> when its registration lapses
--   slots:<pool>         hash   worker -> slots
--   leased               hash   pool -> tasks held now
--   worker:<worker>      hash   last claim per pool, heartbeat report
--   inbox:<reader>       stream hints for one reader process, on each server that it reads from
--   dead                 zset   jobs given up on -> when
--   outbox               stream events to be told to the outside
--   expiry               zset   stored objects -> second at which they are to be deleted
--
-- Either server (a log lives wholly on one)
--   log:<log>            stream chunks; entry <end>-0 is a chunk, <end>-1 its marks, <end>-2 the trailer
--   log:<log>:meta       hash   token, first, end, last (start of the last chunk), crc, cursor, header, trailer, closed
--   log:<log>:subs       set    inboxes that follow the log
--   pressure             string present while memory is above its mark

local CLASSES = {'interactive', 'normal', 'batch'}
local WEIGHT = {interactive = 8, normal = 3, batch = 1}
local AGED_MS = 600000
local HINT_BYTES = 8192
local INBOX_LEN = 4096
local DEAD_S = 604800
local WORKER_S = 60

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function epoch_of(token)
  return tonumber(string.match(token, '^(%d+):'))
end

local function running(root, job)
  local state = redis.call('HGET', root .. ':job:' .. job, 'state')
  return state == 'queued' or state == 'running'
end

local function split_task(task)
  local job, take, segment, stage = string.match(task, '^([^/]+)/([^/]+)/([^/]+)/([^/]+)$')
  return job, take, segment, stage
end

-- whether a task may still be worked on: its job goes on, and with this very take
local function current(root, task)
  local job, take = split_task(task)
  return running(root, job) and redis.call('HGET', root .. ':job:' .. job, 'take') == take
end

-- farm stages serve every model from one pool; a model's stages have pools of their own
local function pool_of(model, stage)
  if stage == 'finish' or stage == 'store' then return 'farm/' .. stage end
  return model .. '/' .. stage
end

local function ready(root, task, model, stage, class, version)
  local key = root .. ':task:' .. task
  local rid = redis.call('XADD', root .. ':ready:' .. pool_of(model, stage) .. ':' .. class, '*', 't', task, 'v', version)
  redis.call('HSET', key, 'state', 'ready', 'rid', rid, 'class', class)
  redis.call('SADD', root .. ':tasks:' .. split_task(task), task)
end

local function ready_first_time(root, task, model, stage, class, version)
  if redis.call('EXISTS', root .. ':task:' .. task) == 0 then ready(root, task, model, stage, class, version) end
end

-- take a task's entry out of its ready queue, if it stands in one
local function unready(root, task, model, stage)
  local entry = redis.call('HMGET', root .. ':task:' .. task, 'rid', 'class', 'state')
  if entry[3] == 'ready' then
    redis.call('XDEL', root .. ':ready:' .. pool_of(model, stage) .. ':' .. entry[2], entry[1])
  end
end

local function release(root, task, job, model, stage)
  if redis.call('SREM', root .. ':owned:' .. job, task) == 1 then
    redis.call('ZREM', root .. ':leases', task)
    redis.call('HINCRBY', root .. ':leased', pool_of(model, stage), -1)
  end
end

local function tell(root, inbox, ...)
  return redis.call('XADD', root .. ':inbox:' .. inbox, 'NOMKSTREAM', 'MAXLEN', '~', INBOX_LEN, '*', ...)
end

local function tell_followers(root, log, except, ...)
  local subs = root .. ':log:' .. log .. ':subs'
  for _, inbox in ipairs(redis.call('SMEMBERS', subs)) do
    if inbox ~= except and not tell(root, inbox, 'l', log, ...) then redis.call('SREM', subs, inbox) end
  end
end

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
  local ring = root .. ':projects:' .. model .. ':' .. class
  if redis.call('EXISTS', ring) == 0 then return end
  local wanted = math.max(2 * live_slots(root, pool, now), 2) - redis.call('XLEN', queue)
  while wanted > 0 do
    local project = redis.call('ZRANGE', ring, 0, 0)[1]
    if not project then return end
    local backlog = root .. ':backlog:' .. model .. ':' .. class .. ':' .. project
    local job = redis.call('LINDEX', backlog, 0)
    if not job then
      redis.call('ZREM', ring, project)
    elseif running(root, job) and redis.call('HGET', root .. ':job:' .. job, 'first') ~= stage then
      return  -- a later stage's worker asks: what it lacks does not come from here
    else
      redis.call('LPOP', backlog)
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
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'project', 'first', 'timeout_ms')
  local ring = root .. ':projects:' .. f[1] .. ':' .. f[2]
  redis.call('ZADD', root .. ':live', now + tonumber(f[5]), job)
  redis.call('HINCRBY', root .. ':projectlive', f[3], 1)
  redis.call('ZADD', root .. ':queued:' .. f[1], now, job)
  redis.call('RPUSH', root .. ':backlog:' .. f[1] .. ':' .. f[2] .. ':' .. f[3], job)
  if not redis.call('ZSCORE', ring, f[3]) then
    local oldest = redis.call('ZRANGE', ring, 0, 0, 'WITHSCORES')
    redis.call('ZADD', ring, oldest[2] or 0, f[3])
  end
  dispatch(root, f[1], f[2], f[4], now)
end

-- nothing of the job waits any more, and whoever is at it hears that it is over
local function withdraw(root, job)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'project', 'state')
  if f[4] == 'queued' then
    redis.call('LREM', root .. ':backlog:' .. f[1] .. ':' .. f[2] .. ':' .. f[3], 0, job)
    redis.call('ZREM', root .. ':queued:' .. f[1], job)
  end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':tasks:' .. job)) do
    local _, _, _, stage = split_task(task)
    unready(root, task, f[1], stage)
  end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. job)) do
    tell(root, redis.call('HGET', root .. ':task:' .. task, 'worker'), 'closed', task)
  end
end

-- the job is over: nothing of it can be claimed, renewed or committed any more
local function terminate(root, job, state, now)
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'model', 'project', 'notify', 'retention_s')
  withdraw(root, job)
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':owned:' .. job)) do
    local _, _, _, stage = split_task(task)
    release(root, task, job, f[1], stage)
  end
  redis.call('HSET', key, 'state', state, 'finished', now)
  redis.call('HINCRBY', key, 'version', 1)
  redis.call('ZREM', root .. ':live', job)
  if redis.call('HINCRBY', root .. ':projectlive', f[2], -1) <= 0 then
    redis.call('HDEL', root .. ':projectlive', f[2])
  end
  if f[3] == '1' then redis.call('XADD', root .. ':outbox', '*', 'type', 'audio.job.' .. state, 'job', job) end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':tasks:' .. job)) do
    redis.call('EXPIRE', root .. ':task:' .. task, f[4])
  end
  for _, part in ipairs({'job', 'tasks', 'segments', 'owned'}) do
    redis.call('EXPIRE', root .. ':' .. part .. ':' .. job, f[4])
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
  redis.call('HSET', key, 'solo', 1)
  if attempts < tonumber(redis.call('HGET', root .. ':job:' .. job, 'max_attempts')) then return false end
  redis.call('ZADD', root .. ':dead', now, job)
  end_job(root, job, 'failed', problem, now)
  redis.call('HSET', root .. ':job:' .. job, 'dead_task', task)
  redis.call('EXPIRE', root .. ':job:' .. job, DEAD_S)
  redis.call('EXPIRE', root .. ':segments:' .. job, DEAD_S)
  return true
end

local function again(root, task, job, stage)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'model', 'class', 'payload')
  ready(root, task, f[1], stage, f[2], f[3])
end

local F = {}

-- record ['field', value, …], segments [text, …], limits -> {answer, job or depth}
function F.submit(keys, args)
  local root, job, idem, idem_ttl, max_queued, max_project = keys[1], args[1], args[2], args[3], tonumber(args[4]), tonumber(args[5])
  local record = cjson.decode(args[6])
  local key = root .. ':job:' .. job
  if redis.call('EXISTS', key) == 1 then return {'ok', job} end
  if idem ~= '' then
    local earlier = redis.call('GET', root .. ':idem:' .. idem)
    if earlier then return {'exists', earlier} end
  end
  local depth = redis.call('ZCARD', root .. ':queued:' .. record.model)
  if depth >= max_queued then return {'full', depth} end
  if max_project > 0 and tonumber(redis.call('HGET', root .. ':projectlive', record.project) or 0) >= max_project then
    return {'quota', max_project}
  end
  local now = now_ms()
  for field, value in pairs(record) do redis.call('HSET', key, field, value) end
  redis.call('HSET', key, 'state', 'queued', 'take', 1, 'version', 1, 'created', now, 'segments', #args - 6,
    'next', 0, 'joined', 0, 'waiting', 0, 'first', cjson.decode(record.stages)[1])
  for i = 7, #args do redis.call('HSET', root .. ':segments:' .. job, i - 7, args[i]) end
  if idem ~= '' then redis.call('SET', root .. ':idem:' .. idem, job, 'EX', idem_ttl) end
  enqueue(root, job, now)
  return {'ok', job}
end

function F.dispatch(keys, args)
  dispatch(keys[1], args[1], args[2], args[3], now_ms())
  return 'ok'
end

-- classes with something ready: those whose oldest entry has aged go first, then the one with the least virtual time
local function classes_in_order(root, pool, now)
  local waiting = {}
  for rank, class in ipairs(CLASSES) do
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

local function successor(root, job, take, stage, stages)
  if stage == 'store' then return nil end
  if stage == 'finish' then return job .. '/' .. take .. '/j/store', 'store' end
  for i, name in ipairs(stages) do
    if name == stage and i < #stages then return nil, stages[i + 1] end
  end
  return job .. '/' .. take .. '/j/finish', 'finish'
end

local function claim_answer(root, task, token)
  local job, take, segment, stage = split_task(task)
  local t = redis.call('HMGET', root .. ':task:' .. task, 'attempts', 'solo', 'from')
  local j = redis.call('HMGET', root .. ':job:' .. job, 'model', 'stages', 'segments', 'joined', 'request', 'live',
    'retention_s', 'class', 'created', 'samples')
  local text = redis.call('HGET', root .. ':segments:' .. job, segment) or ''
  local now = now_ms()
  local left = tonumber(redis.call('ZSCORE', root .. ':live', job) or 0) - now
  return {'task', task, token, text, t[1] or '0', t[2] or '0', t[3] or '-1', j[1], j[2], j[3], j[4], j[5], j[6], j[7],
    tostring(left), j[8], tostring(now - tonumber(j[9])), j[10] or '0'}
end

-- the first entry that this worker's version can read; its place in the queue is given up for good
local function take_entry(root, pool, class, version, open_slots)
  local queue, from = root .. ':ready:' .. pool .. ':' .. class, '-'
  while from do
    local entries = redis.call('XRANGE', queue, from, '+', 'COUNT', 16)
    for _, entry in ipairs(entries) do
      local task = entry[2][2]
      if not current(root, task) or redis.call('HGET', root .. ':task:' .. task, 'state') ~= 'ready' then
        redis.call('XDEL', queue, entry[1])
      elseif tonumber(entry[2][4]) <= version then
        if open_slots > 0 and redis.call('HGET', root .. ':task:' .. task, 'solo') == '1' then return nil, true end
        redis.call('XDEL', queue, entry[1])
        return task
      end
    end
    from = #entries == 16 and '(' .. entries[16][1]
  end
end

-- a task of the pool by class and age, or nil; also whether a suspect stands first and must wait
local function pick(root, pool, version, open_slots, now)
  local waiting = classes_in_order(root, pool, now)
  for _, candidate in ipairs(waiting) do
    local task, alone = take_entry(root, pool, candidate.class, version, open_slots)
    if task then charge(root, pool, candidate, waiting) end
    if task or alone then return task, alone end
  end
end

-- pool, worker, nonce, lease ms, version, open slots -> {'task', …} or {'none'} or {'alone'} (a suspect waits for an empty batch)
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
  local task, alone = pick(root, pool, version, open_slots, now)
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
  local f = redis.call('HMGET', job_key, 'state', 'stages', 'model', 'class', 'first', 'payload')
  if f[1] == 'queued' then
    redis.call('HSET', job_key, 'state', 'running', 'started', now)
    redis.call('HINCRBY', job_key, 'version', 1)
    redis.call('ZREM', root .. ':queued:' .. f[3], job)
  end
  local follower, follower_stage = successor(root, job, take, stage, cjson.decode(f[2]))
  if follower_stage then
    follower = follower or (job .. '/' .. take .. '/' .. segment .. '/' .. follower_stage)
    ready_first_time(root, follower, f[3], follower_stage, f[4], f[6])
  end
  if stage == f[5] and epoch == 1 then
    redis.call('HSET', job_key, 'waiting', 0)
    next_segment(root, job)
  end
  return claim_answer(root, task, token)
end

-- lease ms, then (task, token, position)… -> one of ok fenced closed done for each, each followed by segments joined
function F.renew(keys, args)
  local root, until_ms, answers = keys[1], now_ms() + tonumber(args[1]), {}
  for i = 2, #args, 3 do
    local task = args[i]
    local job = split_task(task)
    local verdict = standing(root, task, args[i + 1])
    if verdict == 'ok' then
      redis.call('HSET', root .. ':task:' .. task, 'pos', args[i + 2])
      redis.call('ZADD', root .. ':leases', until_ms, task)
    end
    answers[#answers + 1] = verdict
    answers[#answers + 1] = tonumber(redis.call('HGET', root .. ':job:' .. job, 'joined') or 0)
  end
  return answers
end

-- task, token, problem ('' = drained or preempted: no attempt counted) -> ok fenced closed failed
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
  if args[3] ~= '' and count_attempt(root, task, job, args[3], now) then return 'failed' end
  again(root, task, job, stage)
  return 'ok'
end

-- task, token, result ('' except for store: the job's result record) -> ok fenced closed
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

-- finish's task, token, segments joined, samples in out: lets the next segments start -> ok fenced closed done
function F.advance(keys, args)
  local root, task = keys[1], args[1]
  local job = split_task(task)
  local verdict = standing(root, task, args[2])
  if verdict ~= 'ok' then return verdict end
  redis.call('HSET', root .. ':job:' .. job, 'joined', args[3], 'samples', args[4])
  redis.call('HINCRBY', root .. ':job:' .. job, 'version', 1)
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
  return ended
end

-- job, state (failed cancelled expired), problem -> the state the job is in now
function F.end_job(keys, args)
  return end_job(keys[1], args[1], args[2], args[3], now_ms())
end

-- a failed, cancelled or expired job starts a new take with new logs -> ok, unknown, or the state that forbids it
function F.retry(keys, args)
  local root, job = keys[1], args[1]
  local key = root .. ':job:' .. job
  local f = redis.call('HMGET', key, 'state', 'take')
  if not f[1] or redis.call('EXISTS', root .. ':segments:' .. job) == 0 then return 'unknown' end
  if f[1] ~= 'failed' and f[1] ~= 'cancelled' and f[1] ~= 'expired' then return f[1] end
  redis.call('DEL', root .. ':tasks:' .. job, root .. ':owned:' .. job)
  redis.call('ZREM', root .. ':dead', job)
  redis.call('HDEL', key, 'error', 'finished', 'started', 'dead_task', 'samples')
  redis.call('HSET', key, 'state', 'queued', 'take', tonumber(f[2]) + 1, 'next', 0, 'joined', 0, 'waiting', 0)
  redis.call('HINCRBY', key, 'version', 1)
  redis.call('PERSIST', key)
  redis.call('PERSIST', root .. ':segments:' .. job)
  enqueue(root, job, now_ms())
  return 'ok'
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

-- log, token, base (-1, or where a reader wants it from), ttl s, header -> {ok, end, crc, cursor, trailer} or fenced closed
function F.fence(keys, args)
  local root, log, token, base = keys[1], args[1], args[2], tonumber(args[3])
  local stream = root .. ':log:' .. log
  local meta = stream .. ':meta'
  local f = redis.call('HMGET', meta, 'token', 'first', 'closed')
  if f[1] then
    if f[3] then return {'closed'} end
    if f[1] ~= token and epoch_of(token) <= epoch_of(f[1]) then return {'fenced'} end
  end
  if not f[1] or (base >= 0 and base < tonumber(f[2])) then
    base = math.max(base, 0)
    redis.call('DEL', stream, meta)
    redis.call('HSET', meta, 'first', base, 'end', base, 'last', -1, 'crc', 0, 'cursor', '', 'header', args[5])
  end
  redis.call('HSET', meta, 'token', token)
  redis.call('EXPIRE', meta, args[4])
  redis.call('EXPIRE', stream, args[4])
  local m = redis.call('HMGET', meta, 'end', 'crc', 'cursor', 'trailer')
  return {'ok', tonumber(m[1]), tonumber(m[2]), m[3], m[4] or ''}
end

-- log, token, start, end, crc, urgent, ttl s, cursor, marks, payload, inbox that has it already
-- -> ok fenced closed full lost
function F.emit(keys, args)
  local root, log, token, start, stop, crc = keys[1], args[1], args[2], args[3], args[4], args[5]
  local stream = root .. ':log:' .. log
  local meta = stream .. ':meta'
  local f = redis.call('HMGET', meta, 'token', 'end', 'last', 'crc', 'closed', 'trailer')
  if not f[1] then return 'lost' end
  if f[1] ~= token then return 'fenced' end
  if f[5] then return 'closed' end
  if f[2] == stop and f[3] == start and f[4] == crc then return 'ok' end
  if f[2] ~= start or f[6] then return 'lost' end
  if args[6] == '0' and redis.call('EXISTS', root .. ':pressure') == 1 then return 'full' end
  local marks, payload = args[9], args[10]
  redis.call('XADD', stream, stop .. '-0', 's', start, 'd', payload)
  if marks ~= '' then redis.call('XADD', stream, stop .. '-1', 'm', marks) end
  redis.call('HSET', meta, 'end', stop, 'last', start, 'crc', crc, 'cursor', args[8])
  if f[3] == '-1' then redis.call('EXPIRE', stream, args[7]) end
  if #payload > HINT_BYTES then payload = '' end
  tell_followers(root, log, args[11], 's', start, 'e', stop, 'd', payload, 'm', marks)
  return 'ok'
end

local function write_trailer(root, log, stop, trailer)
  local stream = root .. ':log:' .. log
  redis.call('XADD', stream, stop .. '-2', 't', trailer)
  redis.call('HSET', stream .. ':meta', 'trailer', trailer)
  tell_followers(root, log, '', 'e', stop, 't', trailer)
end

-- log, token, trailer, end (-1 = wherever it stands): nothing follows -> ok fenced closed lost
function F.seal(keys, args)
  local root, log = keys[1], args[1]
  local f = redis.call('HMGET', root .. ':log:' .. log .. ':meta', 'token', 'end', 'trailer', 'closed')
  if not f[1] then return 'lost' end
  if f[1] ~= args[2] then return 'fenced' end
  if f[4] then return 'closed' end
  if args[4] ~= '-1' and args[4] ~= f[2] then return 'lost' end  -- not the log that the writer knew
  if not f[3] then
    local stream = root .. ':log:' .. log
    write_trailer(root, log, f[2], args[3])
    redis.call('PEXPIRE', stream, redis.call('PTTL', stream .. ':meta'))  -- a log without chunks begins with this entry
  end
  return 'ok'
end

-- log, trailer, ttl s: the job has ended; whoever follows hears why, and nobody can append any more
function F.close(keys, args)
  local root, log = keys[1], args[1]
  local stream = root .. ':log:' .. log
  local meta = stream .. ':meta'
  local f = redis.call('HMGET', meta, 'token', 'end', 'trailer')
  if f[3] then return 'ok' end
  if not f[1] then redis.call('HSET', meta, 'token', '0:', 'first', 0, 'end', 0, 'last', -1, 'crc', 0, 'cursor', '') end
  redis.call('HSET', meta, 'closed', 1)
  write_trailer(root, log, f[2] or '0', args[2])
  redis.call('EXPIRE', meta, args[3])
  redis.call('EXPIRE', stream, args[3])
  return 'ok'
end

-- log, inbox, ttl s -> {first, end, trailer, header}, or {} while there is no such log
function F.follow(keys, args)
  local stream = keys[1] .. ':log:' .. args[1]
  redis.call('SADD', stream .. ':subs', args[2])
  redis.call('EXPIRE', stream .. ':subs', args[3])
  local f = redis.call('HMGET', stream .. ':meta', 'first', 'end', 'trailer', 'header')
  if not f[1] then return {} end
  return {tonumber(f[1]), tonumber(f[2]), f[3] or '', f[4] or ''}
end

function F.unfollow(keys, args)
  return redis.call('SREM', keys[1] .. ':log:' .. args[1] .. ':subs', args[2])
end

-- log, position: chunks that end there or before are not needed any more
function F.trim(keys, args)
  local stream, upto = keys[1] .. ':log:' .. args[1], tonumber(args[2])
  local first = redis.call('HGET', stream .. ':meta', 'first')
  if not first or tonumber(first) >= upto then return 0 end
  local gone = redis.call('XTRIM', stream, 'MINID', '=', string.format('%d-0', upto + 1))
  redis.call('HSET', stream .. ':meta', 'first', upto)
  return gone
end

-- ttl s (0 = at once), then logs…: how long ended logs stay
function F.retire(keys, args)
  local ttl = tonumber(args[1])
  for i = 2, #args do
    local stream = keys[1] .. ':log:' .. args[i]
    for _, key in ipairs({stream, stream .. ':meta', stream .. ':subs'}) do
      if ttl == 0 then redis.call('UNLINK', key) else redis.call('EXPIRE', key, ttl) end
    end
  end
  return #args - 1
end

-- ttl s, log: a reader still needs it for so long
function F.keep(keys, args)
  local stream = keys[1] .. ':log:' .. args[2]
  for _, key in ipairs({stream, stream .. ':meta', stream .. ':subs'}) do redis.call('EXPIRE', key, args[1], 'GT') end
  return 'ok'
end

-- inbox, what, ttl s: wakes its reader, and makes the inbox if there is none -> id of the entry
function F.poke(keys, args)
  local inbox = keys[1] .. ':inbox:' .. args[1]
  local id = redis.call('XADD', inbox, 'MAXLEN', '~', INBOX_LEN, '*', 'poke', args[2])
  redis.call('EXPIRE', inbox, args[3])
  return id
end

-- ttl s: memory is short
function F.press(keys, args)
  redis.call('SET', keys[1] .. ':pressure', 1, 'EX', args[1])
  return 'ok'
end

-- object, Unix seconds: when a stored object is to be deleted; a later word on the same object replaces this one
function F.expire(keys, args)
  redis.call('ZADD', keys[1] .. ':expiry', args[2], args[1])
  return 'ok'
end

-- Only what adds work is refused when memory is full; what moves work on or ends it may always run.
local ADDS_WORK = {'submit', 'retry'}
local MOVES_WORK = {'dispatch', 'claim', 'renew', 'handback', 'commit', 'advance', 'reopen', 'reap', 'end_job', 'beat', 'leave',
  'fence', 'emit', 'seal', 'close', 'follow', 'unfollow', 'trim', 'retire', 'keep', 'poke', 'press', 'expire'}
for i = 1, #ADDS_WORK do
  redis.register_function('@PREFIX@' .. ADDS_WORK[i], F[ADDS_WORK[i]])
end
for i = 1, #MOVES_WORK do
  redis.register_function{function_name = '@PREFIX@' .. MOVES_WORK[i], callback = F[MOVES_WORK[i]], flags = {'allow-oom'}}
end
