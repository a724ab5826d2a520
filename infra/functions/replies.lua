-- What an idempotency key stands for: one body, who works on it, and then the reply that every repetition gets.

-- scope, digest of the body, holder, ms until its work counts as given up -> {new reused running} or {done, reply}
function F.begin_reply(keys, args)
  local key = keys[1] .. ':reply:' .. args[1]
  local f = redis.call('HMGET', key, 'digest', 'holder', 'reply')
  if not f[1] then
    redis.call('HSET', key, 'digest', args[2], 'holder', args[3])
    redis.call('PEXPIRE', key, args[4])
    return {'new'}
  end
  if f[1] ~= args[2] then return {'reused'} end
  if f[3] then return {'done', f[3]} end
  return {f[2] == args[3] and 'new' or 'running'}
end

-- scope, holder, ms: it is still at it -> ok lost
function F.hold_reply(keys, args)
  local key = keys[1] .. ':reply:' .. args[1]
  if redis.call('HGET', key, 'holder') ~= args[2] then return 'lost' end
  redis.call('PEXPIRE', key, args[3])
  return 'ok'
end

-- scope, holder, reply, s that it counts -> ok lost
function F.put_reply(keys, args)
  local key = keys[1] .. ':reply:' .. args[1]
  if redis.call('HGET', key, 'holder') ~= args[2] then return 'lost' end
  redis.call('HSET', key, 'reply', args[3])
  redis.call('EXPIRE', key, args[4])
  return 'ok'
end

-- scope, holder: there is no reply that counts -> ok lost
function F.drop_reply(keys, args)
  local key = keys[1] .. ':reply:' .. args[1]
  if redis.call('HGET', key, 'holder') ~= args[2] then return 'lost' end
  redis.call('DEL', key)
  return 'ok'
end
