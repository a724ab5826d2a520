#!lua name=@LIBRARY@

-- The stage log protocol: every step that must be atomic. The files of this folder are loaded as one library.
-- KEYS[1] is a shard's root, such as "tts:{0}"; every key below starts with it, so all keys of a shard lie on one
-- server. Times are server milliseconds.
--
-- Control server
--   job:<job>            hash   the job record; `state` is queued running cancelling succeeded failed cancelled expired;
--                               `open` while its text is still being written
--   segments:<job>       hash   segment index -> text
--   asked:<job>          string the request as the client gave it, without audio
--   jobs:<project>       zset   jobs that the project can list -> when submitted
--   lapses               zset   <project>/<job> -> when the record of an ended job goes
--   tasks:<job>          set    every task that was ever made ready, and <job>/1/0/text where the text was open
--   owned:<job>          set    tasks that a worker holds now
--   task:<task>          hash   state (ready leased done), epoch, token, worker, attempts, pos, mark, solo, from, rid,
--                               class
--   ready:<pool>:<class> stream tasks that wait for a worker of the pool; an entry is deleted by the claim. Those that are
--                               awaited by somebody who listens already stand in `ongoing`, before all classes
--   pass:<pool>          hash   class -> virtual time already served (stride scheduling)
--   leases               zset   task -> end of lease
--   backlog:<pool>:<class>:<project>  list   jobs not yet dispatched, by the pool of their first stage
--   projects:<pool>:<class>           zset   projects with a backlog -> when last served
--   queued:<model>:<class>  zset  jobs that nobody has started -> when submitted
--   live                 zset   jobs not ended -> deadline
--   projectlive          hash   project -> jobs not ended, without those that the farm gave itself
--   idem:<key>           string id of the job or group of an idempotency key
--   group:<group>        hash   of jobs that were asked for together: record, state, counts, how far it is expanded
--   open:<group>         set    its jobs that have not ended
--   ended:<group>        zset   its jobs in the order in which they ended
--   tending              zset   groups that are not over -> when somebody is to see to them
--   batches:<project>    zset   ids of a project's batches, in the order of their ids
--   workers:<pool>       zset   worker -> when its registration lapses
--   slots:<pool>         hash   worker -> slots
--   leased               hash   pool -> tasks held now
--   worker:<worker>      hash   last claim per pool, heartbeat report
--   inbox:<reader>       stream hints for one reader process, on each server that it reads from
--   dead                 zset   jobs given up on -> when
--   outbox               stream events to be told to the outside; an entry goes when its deliveries are made
--   webhooks:<project>   hash   id of an endpoint -> its record, with its secrets
--   webhooksecrets       hash   project -> secrets that sign what goes to URLs of single jobs
--   delivery:<delivery>  hash   record, state (pending delivered failed), tries, try:<number>
--   deliveries:<target>  zset   the last deliveries to an endpoint, or to the URL of a job, by id
--   due:<target>         zset   deliveries that are to be tried -> when
--   targets              zset   targets with deliveries to be tried -> when somebody is to see to them
--   serving:<target>     string token of the one that makes its deliveries now; empty while nobody has begun
--   webhookoutcomes      hash   outcome -> tries of deliveries
--   apikeys              hash   SHA-256 of a key -> what it may do
--   rate:<key>           hash   requests and characters that a key may still use this minute, and when that was so
--   quota:<key>:<period> hash   characters and milliseconds of audio that a key has used in a day or month
--   seats:<name>         zset   calls or sockets that are open now -> when they lapse
--   voices:<project>     hash   folded name -> version and record of a voice
--   voiceids:<project>   hash   id of a voice -> folded name
--   embeddings:<project> hash   id of a voice -> speaker embedding, float32
--   voiceversion         string the last version of a voice that was given out
--   consents:<project>   hash   id -> record of a consent
--   reply:<scope>        hash   of an idempotency key: digest of the body, who works on it (holder), the reply
--   file:<file>          string record of an uploaded file, as JSON
--   files:<project>      zset   ids of a project's files, in the order of their ids, which is that of their times
--   expiry               zset   stored objects -> second at which they are to be deleted
--
-- Either server (a log lives wholly on one)
--   log:<log>            stream chunks; entry <end>-0 is a chunk, <end>-1 its marks, <end>-2 the trailer
--   log:<log>:meta       hash   token, first, end, last (start of the last chunk), crc, cursor, header, trailer, closed
--   log:<log>:subs       set    inboxes that follow the log
--   pressure             string present while memory is above its mark

local CLASSES = {'interactive', 'normal', 'batch'}
local ONGOING = 'ongoing'
local UNHEARD = 'unheard'
local WEIGHT = {interactive = 8, normal = 3, batch = 1}
local FARM_STAGES = {finish = true, store = true, keep = true}
local AGED_MS = 600000
local SUSPECT_MS = 5000  -- a suspect that somebody hears waits so long for a batch that runs empty by itself
local HINT_BYTES = 8192
local INBOX_LEN = 4096
local DEAD_S = 604800
local SPOKEN_S = 600  -- how long it is known how a job was spoken; of tens of thousands only the results stay
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
  return (FARM_STAGES[stage] and 'farm' or model) .. '/' .. stage
end

-- whether somebody hears the job already and needs the task next: it is for the segment that plays or the one after it
local function is_awaited(root, task)
  local job, _, segment = split_task(task)
  local f = redis.call('HMGET', root .. ':job:' .. job, 'live', 'first_audio', 'joined')
  local index = tonumber(segment) or 0  -- what is done for the whole job is done for its first segment, too
  return f[1] == '1' and (f[2] or index > 0) and index <= tonumber(f[3]) + 1
end

-- whoever hears a job already does not wait behind jobs that have not begun; who is `parked` has nothing to do for them
local function ready(root, task, model, stage, class, version, parked)
  local key = root .. ':task:' .. task
  if not parked and is_awaited(root, task) then class = ONGOING end
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

local F = {}
