-- What an API key may use: rates per minute, quotas per day and month, and seats that are taken at the same time.

-- a bucket that holds at most a minute's worth and fills evenly; who wants more than that takes it from a full one, and
-- what follows waits for longer
local function level(key, name, per_minute, now)
  local f = redis.call('HMGET', key, name, name .. '_at')
  local held = tonumber(f[1] or per_minute)
  return math.min(per_minute, held + (now - tonumber(f[2] or now)) * per_minute / 60000)
end

local function bucket(key, name, per_minute, cost, now)
  if per_minute == 0 then return {limit = 0, short = false} end
  local held = level(key, name, per_minute, now)
  return {limit = per_minute, held = held, cost = cost, name = name, short = held < math.min(cost, per_minute),
    wait = math.ceil((math.min(cost, per_minute) - held) * 60000 / per_minute)}
end

local function draw(key, taken, now)
  if taken.limit == 0 then return end
  taken.held = taken.held - taken.cost
  redis.call('HSET', key, taken.name, tostring(taken.held), taken.name .. '_at', now)
  local full_ms = math.ceil((taken.limit - taken.held) * 60000 / taken.limit) + 60000
  redis.call('PEXPIRE', key, full_ms, 'NX')
  redis.call('PEXPIRE', key, full_ms, 'GT')
end

local function remaining(taken)
  if taken.limit == 0 then return '', '' end
  return math.floor(math.max(taken.held, 0)), math.ceil((taken.limit - taken.held) * 60000 / taken.limit)
end

-- key, requests, characters, requests a minute, characters a minute, then (period, seconds left of it, characters
-- allowed, audio seconds allowed)… ; 0 allowed is no limit
-- -> {verdict (ok requests characters quota), wait ms, requests left, ms until all are back, the same of characters}
function F.charge(keys, args)
  local root, name, now = keys[1], args[1], now_ms()
  local key = root .. ':rate:' .. name
  local requests = bucket(key, 'requests', tonumber(args[4]), tonumber(args[2]), now)
  local characters = bucket(key, 'characters', tonumber(args[5]), tonumber(args[3]), now)
  local verdict, wait = 'ok', 0
  if requests.short then verdict, wait = 'requests', requests.wait end
  if verdict == 'ok' and characters.short then verdict, wait = 'characters', characters.wait end
  for i = 6, #args, 4 do
    local used = redis.call('HMGET', root .. ':quota:' .. name .. ':' .. args[i], 'characters', 'audio_ms')
    local most_characters, most_audio_ms = tonumber(args[i + 2]), tonumber(args[i + 3]) * 1000
    local over = most_characters > 0 and tonumber(used[1] or 0) + tonumber(args[3]) > most_characters
    over = over or (most_audio_ms > 0 and tonumber(used[2] or 0) >= most_audio_ms)
    if verdict == 'ok' and over and (tonumber(args[2]) > 0 or tonumber(args[3]) > 0) then verdict, wait = 'quota', tonumber(args[i + 1]) * 1000 end
  end
  if verdict == 'ok' then
    draw(key, requests, now)
    draw(key, characters, now)
    for i = 6, #args, 4 do
      local quota = root .. ':quota:' .. name .. ':' .. args[i]
      redis.call('HINCRBY', quota, 'characters', args[3])
      redis.call('EXPIRE', quota, args[i + 1])
    end
  end
  local left, reset = remaining(requests)
  local left_characters, reset_characters = remaining(characters)
  return {verdict, wait, left, reset, left_characters, reset_characters}
end

-- key, characters given back, audio ms used, then periods…
function F.account(keys, args)
  local root, name, back = keys[1], args[1], tonumber(args[2])
  local key = root .. ':rate:' .. name
  if back > 0 and redis.call('HEXISTS', key, 'characters') == 1 then
    redis.call('HINCRBYFLOAT', key, 'characters', back)
  end
  for i = 4, #args do
    local quota = root .. ':quota:' .. name .. ':' .. args[i]
    if redis.call('EXISTS', quota) == 1 then
      redis.call('HINCRBY', quota, 'characters', -back)
      redis.call('HINCRBY', quota, 'audio_ms', args[3])
    end
  end
  return 'ok'
end

-- name, who, most, ms until it lapses: take or keep a seat -> {1 or 0, seats taken}
function F.sit(keys, args)
  local seats, who, most, now = keys[1] .. ':seats:' .. args[1], args[2], tonumber(args[3]), now_ms()
  redis.call('ZREMRANGEBYSCORE', seats, '-inf', now)
  local taken = redis.call('ZCARD', seats)
  local seated = redis.call('ZSCORE', seats, who)
  if not seated and taken >= most then return {0, taken} end
  redis.call('ZADD', seats, now + tonumber(args[4]), who)
  redis.call('PEXPIRE', seats, args[4])
  return {1, seated and taken or taken + 1}
end

function F.rise(keys, args)
  redis.call('ZREM', keys[1] .. ':seats:' .. args[1], args[2])
  return 'ok'
end
