// What runs inside Redis, where several clients must agree. Numbers are strings in and integers out: Redis
// cuts a Lua number to an integer.
#pragma once

#include <string_view>

namespace crossfade::redis {

// KEYS[1] bucket; ARGV token, rows, rows per second. Returns microseconds to wait before working.
// The bucket is one instant of the server's clock: when the rows promised so far will have been paid for. A
// tenth of a second that nobody used may be caught up. A changed rate stretches what is still owed. An
// instant further away than 64 workers could have promised comes from another clock, and counts as absent.
inline constexpr std::string_view kTakeScript = R"lua(
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rows, rate = tonumber(ARGV[2]), tonumber(ARGV[3])
local cost = rows * 1000000 / rate
local held = redis.call('HMGET', KEYS[1], 'token', 'free_at', 'rate')
local free_at = now
if held[1] == ARGV[1] and tonumber(held[2]) and tonumber(held[3]) then
  local owed = (tonumber(held[2]) - now) * tonumber(held[3]) / rate
  if owed <= 64 * cost + 1000000 then free_at = now + owed end
end
if free_at < now - 100000 then free_at = now - 100000 end
local wait = math.max(0, math.ceil(free_at - now))
free_at = free_at + cost
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'free_at', string.format('%.0f', free_at), 'rate', ARGV[3])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(0, free_at - now) / 1000 + 10000))
return wait
)lua";

// KEYS[1] phase; ARGV value, epoch, seconds to live. A runner that was superseded does not take the hint
// back.
inline constexpr std::string_view kPutPhaseScript = R"lua(
local held = redis.call('GET', KEYS[1])
local epoch = held and tonumber(string.match(held, '^%S+ %S+ (%d+) '))
if epoch and epoch > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return 1
)lua";

}  // namespace crossfade::redis
