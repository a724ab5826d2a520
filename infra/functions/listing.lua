-- A project's jobs: found by what is known of them, and deleted.

local SCANNED = 500  -- records that one call looks at

local function is_in(list, wanted)
  if #list == 0 then return true end
  return index_of(list, wanted) ~= nil
end

local function matches(root, job, wanted)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'state', 'model', 'group_id', 'custom_id', 'metadata',
    'dead_task')
  if not f[1] then return false end
  for i, name in ipairs({'status', 'model', 'group_id', 'custom_id'}) do
    if not is_in(wanted[name], f[i]) then return false end
  end
  if wanted.dead and not f[6] then return false end
  if not next(wanted.metadata) then return true end
  local metadata = cjson.decode(f[5] or '{}')
  for name, value in pairs(wanted.metadata) do
    if metadata[name] ~= value then return false end
  end
  return true
end

-- project, order (desc asc), job to go on behind ('' for none), oldest ms, newest ms (exclusive), most, what is wanted
-- -> {verdict (ok unknown), job to go on behind ('' when there are no more), jobs…}
function F.list_jobs(keys, args)
  local root, order, low, high, most = keys[1], args[2], tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  local index, wanted, at = root .. ':jobs:' .. args[1], cjson.decode(args[7]), 0
  local rank, range = 'ZRANK', 'ZRANGE'
  if order == 'desc' then rank, range = 'ZREVRANK', 'ZREVRANGE' end
  if args[3] ~= '' then
    local found = redis.call(rank, index, args[3])
    if not found then return {'unknown', ''} end
    at = found + 1
  end
  if order == 'desc' then
    at = math.max(at, redis.call('ZCOUNT', index, args[5], '+inf'))
  else
    at = math.max(at, redis.call('ZCOUNT', index, '-inf', '(' .. args[4]))
  end
  local entries = redis.call(range, index, at, at + SCANNED - 1, 'WITHSCORES')
  local answer = {'ok', ''}
  for i = 1, #entries, 2 do
    local job, created = entries[i], tonumber(entries[i + 1])
    if created < low or created >= high then return answer end
    if matches(root, job, wanted) then answer[#answer + 1] = job end
    if #answer - 2 == most then
      answer[2] = job
      return answer
    end
  end
  if #entries == 2 * SCANNED then answer[2] = entries[#entries - 1] end
  return answer
end

-- s, then jobs…: records of ended jobs that nobody will ask for go by then
function F.fade_jobs(keys, args)
  for i = 2, #args do
    for _, part in ipairs(RECORD) do redis.call('EXPIRE', keys[1] .. ':' .. part .. ':' .. args[i], args[1], 'LT') end
  end
  return 'ok'
end

-- job, force ('1' ends it first) -> ok unknown, running (and no force), ended (meanwhile, and nobody has seen its result)
function F.delete_job(keys, args)
  local root, job = keys[1], args[1]
  local f = redis.call('HMGET', root .. ':job:' .. job, 'state', 'project', 'finished')
  if not f[1] then return 'unknown' end
  if f[3] and args[2] == '1' then return 'ended' end
  if not f[3] then
    if args[2] ~= '1' then return 'running' end
    terminate(root, job, 'cancelled', now_ms())
  end
  for _, task in ipairs(redis.call('SMEMBERS', root .. ':tasks:' .. job)) do
    redis.call('DEL', root .. ':task:' .. task)
  end
  for _, part in ipairs(RECORD) do redis.call('DEL', root .. ':' .. part .. ':' .. job) end
  redis.call('ZREM', root .. ':jobs:' .. f[2], job)
  redis.call('ZREM', root .. ':lapses', f[2] .. '/' .. job)
  redis.call('ZREM', root .. ':dead', job)
  return 'ok'
end
