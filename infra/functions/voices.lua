-- Voices and consents of a project. A record names the stored objects that live and die with it.

-- a voice's record stands behind its version: "<version> <json>"
local function voice_record(raw)
  return cjson.decode(string.match(raw, '^%d+ (.*)$'))
end

local function keep_objects(root, record)
  for _, object in ipairs(record.objects) do redis.call('ZREM', root .. ':expiry', object) end
end

-- jobs that know the record already may read its objects for so long
local function release_objects(root, record, after_s)
  local due = math.floor(now_ms() / 1000) + tonumber(after_s)
  for _, object in ipairs(record.objects) do redis.call('ZADD', root .. ':expiry', due, object) end
end

local function announce_voice(root, project, what, record)
  announce(root, project, 'audio.voice.' .. what, {id = record.id, name = record.name})
end

local function remove_voice(root, project, name, record, after_s)
  redis.call('HDEL', root .. ':voices:' .. project, name)
  redis.call('HDEL', root .. ':voiceids:' .. project, record.id)
  redis.call('HDEL', root .. ':embeddings:' .. project, record.id)
  release_objects(root, record, after_s)
  announce_voice(root, project, 'deleted', record)
end

-- what speaks against a voice under this name -> ok exists full
local function verdict_on(root, project, name, policy, most)
  local voices = root .. ':voices:' .. project
  if redis.call('HEXISTS', voices, name) == 1 then return policy == 'immutable' and 'exists' or 'ok' end
  return redis.call('HLEN', voices) >= tonumber(most) and 'full' or 'ok'
end

-- project, name, policy (overwrite immutable), most voices
function F.check_voice(keys, args)
  return verdict_on(keys[1], args[1], args[2], args[3], args[4])
end

-- the same, then record, embedding (float32 or ''), s after which a replaced voice's objects go
-- -> {verdict, version, the voice that it replaced or ''}
function F.put_voice(keys, args)
  local root, project, name, policy, most, raw, embedding, after_s = keys[1], unpack(args)
  local record = cjson.decode(raw)
  local there = redis.call('HGET', root .. ':voices:' .. project, name)
  local old = there and voice_record(there)
  if old and old.id == record.id then return {'ok', tonumber(string.match(there, '^%d+')), ''} end
  local verdict = verdict_on(root, project, name, policy, most)
  if verdict ~= 'ok' then return {verdict, 0, ''} end
  if old then remove_voice(root, project, name, old, after_s) end
  local version = redis.call('INCR', root .. ':voiceversion')
  redis.call('HSET', root .. ':voices:' .. project, name, string.format('%d %s', version, raw))
  redis.call('HSET', root .. ':voiceids:' .. project, record.id, name)
  if embedding ~= '' then redis.call('HSET', root .. ':embeddings:' .. project, record.id, embedding) end
  keep_objects(root, record)
  announce_voice(root, project, 'created', record)
  return {'ok', version, there or ''}
end

-- project, folded name, name or id as given -> {version and record, embedding}, or nothing
function F.find_voice(keys, args)
  local root, project = keys[1], args[1]
  local voices = root .. ':voices:' .. project
  local raw = redis.call('HGET', voices, args[2])
  if not raw then
    local name = redis.call('HGET', root .. ':voiceids:' .. project, args[3])
    raw = name and redis.call('HGET', voices, name)
  end
  if not raw then return false end
  return {raw, redis.call('HGET', root .. ':embeddings:' .. project, voice_record(raw).id) or ''}
end

-- project, id, s after which its objects go -> ok unknown
function F.drop_voice(keys, args)
  local root, project = keys[1], args[1]
  local name = redis.call('HGET', root .. ':voiceids:' .. project, args[2])
  if not name then return 'unknown' end
  local raw = redis.call('HGET', root .. ':voices:' .. project, name)
  remove_voice(root, project, name, voice_record(raw), args[3])
  return 'ok'
end

-- s, objects…: those that are to be deleted some day go after so long at the latest
function F.hasten(keys, args)
  local due = math.floor(now_ms() / 1000) + tonumber(args[1])
  for i = 2, #args do redis.call('ZADD', keys[1] .. ':expiry', 'XX', 'LT', due, args[i]) end
  return 'ok'
end

-- project, id, record, whether it must be there already ('1' or '0') -> ok unknown
function F.put_consent(keys, args)
  local consents = keys[1] .. ':consents:' .. args[1]
  if args[4] == '1' and redis.call('HEXISTS', consents, args[2]) == 0 then return 'unknown' end
  redis.call('HSET', consents, args[2], args[3])
  keep_objects(keys[1], cjson.decode(args[3]))
  return 'ok'
end

-- project, id -> ok unknown
function F.drop_consent(keys, args)
  local consents = keys[1] .. ':consents:' .. args[1]
  local raw = redis.call('HGET', consents, args[2])
  if not raw then return 'unknown' end
  redis.call('HDEL', consents, args[2])
  release_objects(keys[1], cjson.decode(raw), 0)
  return 'ok'
end
