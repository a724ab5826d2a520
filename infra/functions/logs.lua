-- Logs: who may append, what is appended, who hears of it. These run on whichever server the log lives on.

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

-- log, token, trailer, end (-1 = wherever it stands), ttl s at least (0 = as before): nothing follows
-- -> ok fenced closed lost
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
    redis.call('EXPIRE', stream .. ':meta', args[5], 'GT')
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
  local gone = redis.call('XTRIM', stream, 'MINID', '=', string.format('%d-2', upto))
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

-- object, Unix seconds, how: when a stored object is to be deleted; a later word on the same object replaces this one, or
-- where it says "prolong" can only put it off
function F.expire(keys, args)
  if args[3] == 'prolong' then
    redis.call('ZADD', keys[1] .. ':expiry', 'GT', args[2], args[1])
  else
    redis.call('ZADD', keys[1] .. ':expiry', args[2], args[1])
  end
  return 'ok'
end
