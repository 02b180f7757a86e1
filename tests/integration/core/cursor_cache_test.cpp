#include "crossfade/core/cursor_cache.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "crossfade/core/error.hpp"
#include "support/redis_server.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

const MigrationId kId{"2f1c9a52-6f3e-4a63-9a0e-5f3b4d1c7e21"};
const MigrationId kOther{"9b1c9a52-6f3e-4a63-9a0e-5f3b4d1c7e21"};
const Token kToken{"11111111-2222-4333-8444-555555555555"};
const Token kNewToken{"66666666-2222-4333-8444-555555555555"};
const FastCursor kCursor{kToken, R"({"a b","quo\"te",NULL,"two
lines"})",
                         12345};

const WorkerHeartbeat kHeartbeat{12.25, 7, "2026-01-31T12:00:05Z"};

std::string key(const std::string& rest) { return "crossfade:{" + kId.text + "}:" + rest; }

milliseconds time_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

// Every call of the cache, for faults that must disturb none of them. Returns how many gave a value.
int values_of_every_call(CursorCache& cache) {
  cache.put_cursor(kId, "backfill", 1, kCursor);
  cache.put_phase(kId, {Phase::backfill, Epoch{3}, kToken});
  cache.put_heartbeat(kId, "4711", kToken, kHeartbeat);
  cache.publish_control(kId, "tuning");
  int values = 0;
  values += cache.get_cursor(kId, "backfill", 1, kToken).has_value();
  values += cache.get_phase(kId).has_value();
  values += cache.get_heartbeat(kId, "4711", kToken).has_value();
  values += cache.take(kId, kToken, 10, 1000000).has_value();
  cache.forget(kId);
  return values;
}

// Answers every message with the same line.
class FakeRedis {
 public:
  explicit FakeRedis(std::string answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.path() / "redis.sock";
    std::memcpy(address.sun_path, path.c_str(), path.size());
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 8) != 0) {
      throw std::runtime_error("cannot listen");
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeRedis() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url() const { return "unix://" + (folder_.path() / "redis.sock").string(); }

 private:
  void serve() const {
    for (int client = accept(listener_, nullptr, nullptr); client >= 0;
         client = accept(listener_, nullptr, nullptr)) {
      std::array<char, 4096> bytes{};
      while (recv(client, bytes.data(), bytes.size(), 0) > 0)
        send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      close(client);
    }
  }

  std::string answer_;
  PrivateFolder folder_{"fake"};
  int listener_;
  std::thread thread_;
};

TEST(CursorCacheTest, AnEmptyUrlIsAnAbsentCache) {
  CursorCache cache("");
  EXPECT_EQ(cache.state(), CacheState::absent);
  EXPECT_EQ(values_of_every_call(cache), 0);
  EXPECT_EQ(cache.state(), CacheState::absent);
}

TEST(CursorCacheTest, GivesBackWhatWasPut) {
  RedisServer redis;
  CursorCache cache(redis.url());
  EXPECT_EQ(cache.state(), CacheState::connected);
  cache.put_cursor(kId, "backfill", 7, kCursor);
  const std::optional<FastCursor> cursor = cache.get_cursor(kId, "backfill", 7, kToken);
  ASSERT_TRUE(cursor);
  EXPECT_EQ(cursor->token, kToken);
  EXPECT_EQ(cursor->position, kCursor.position);
  EXPECT_EQ(cursor->rows, 12345);
  EXPECT_FALSE(cache.get_cursor(kId, "backfill", 8, kToken));
  EXPECT_FALSE(cache.get_cursor(kId, "compare", 7, kToken));

  cache.put_phase(kId, {Phase::dual_write, Epoch{4}, kToken});
  const std::optional<PhaseHint> hint = cache.get_phase(kId);
  ASSERT_TRUE(hint);
  EXPECT_EQ(hint->phase, Phase::dual_write);
  EXPECT_EQ(hint->epoch, Epoch{4});
  EXPECT_EQ(hint->token, kToken);
}

TEST(CursorCacheTest, EveryKeyExpires) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.put_cursor(kId, "backfill", 1, kCursor);
  cache.put_phase(kId, {Phase::backfill, Epoch{1}, kToken});
  cache.put_heartbeat(kId, "4711", kToken, kHeartbeat);
  ASSERT_TRUE(cache.take(kId, kToken, 10, 1000));
  const auto seconds = [&](const std::string& name) { return std::stoi(redis.command({"TTL", key(name)})); };
  EXPECT_GT(seconds("cursor:backfill"), 6 * 86400);
  EXPECT_LE(seconds("cursor:backfill"), 7 * 86400);
  EXPECT_GT(seconds("phase"), 0);
  EXPECT_LE(seconds("phase"), 5);
  EXPECT_GT(seconds("worker:4711"), 0);
  EXPECT_LE(seconds("worker:4711"), 15);
  EXPECT_GT(seconds("bucket"), 0);
  EXPECT_EQ(redis.command({"DBSIZE"}), "4");
}

TEST(CursorCacheTest, AValueOfAnotherTokenOrMigrationIsAbsent) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.put_cursor(kId, "backfill", 1, kCursor);
  EXPECT_FALSE(cache.get_cursor(kId, "backfill", 1, kNewToken));
  redis.command({"COPY", key("cursor:backfill"), "crossfade:{" + kOther.text + "}:cursor:backfill"});
  EXPECT_FALSE(cache.get_cursor(kOther, "backfill", 1, kToken));
  cache.put_phase(kId, {Phase::compare, Epoch{5}, kToken});
  redis.command({"COPY", key("phase"), "crossfade:{" + kOther.text + "}:phase"});
  EXPECT_FALSE(cache.get_phase(kOther));
}

TEST(CursorCacheTest, AHeartbeatIsReadByItsWorkerUnderItsToken) {
  RedisServer redis;
  CursorCache cache(redis.url());
  EXPECT_FALSE(cache.get_heartbeat(kId, "4711", kToken));
  cache.put_heartbeat(kId, "4711", kToken, kHeartbeat);
  const auto beat = cache.get_heartbeat(kId, "4711", kToken);
  ASSERT_TRUE(beat);
  EXPECT_NEAR(beat->rows_per_second, 12.25, 0.06);
  EXPECT_EQ(beat->unit, 7);
  EXPECT_EQ(beat->since, "2026-01-31T12:00:05Z");
  EXPECT_FALSE(cache.get_heartbeat(kId, "4712", kToken));
  EXPECT_FALSE(cache.get_heartbeat(kId, "4711", kNewToken));
  for (const auto& value :
       std::vector<std::string>{"", "x", "12.25", kId.text + " " + kToken.text + " fast 7 then"}) {
    redis.command({"SET", key("worker:4711"), value});
    EXPECT_FALSE(cache.get_heartbeat(kId, "4711", kToken)) << value;
  }
}

TEST(CursorCacheTest, NonsenseInAKeyIsAbsent) {
  RedisServer redis;
  CursorCache cache(redis.url());
  for (const std::string value : {"", "x", "a b c d", "2f1c9a52-6f3e-4a63-9a0e-5f3b4d1c7e21"}) {
    redis.command({"HSET", key("cursor:backfill"), "1", value});
    redis.command({"SET", key("phase"), value});
    EXPECT_FALSE(cache.get_cursor(kId, "backfill", 1, kToken)) << value;
    EXPECT_FALSE(cache.get_phase(kId)) << value;
  }
  redis.command({"HSET", key("cursor:backfill"), "1", kId.text + " " + kToken.text + " 12x {1}"});
  EXPECT_FALSE(cache.get_cursor(kId, "backfill", 1, kToken));
}

TEST(CursorCacheTest, ASupersededRunnerDoesNotTakeThePhaseBack) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.put_phase(kId, {Phase::switched, Epoch{9}, kNewToken});
  cache.put_phase(kId, {Phase::compare, Epoch{8}, kToken});
  ASSERT_TRUE(cache.get_phase(kId));
  EXPECT_EQ(cache.get_phase(kId)->phase, Phase::switched);
  cache.put_phase(kId, {Phase::compare, Epoch{10}, kNewToken});
  EXPECT_EQ(cache.get_phase(kId)->phase, Phase::compare);
}

TEST(CursorCacheTest, ForgetsTheMigrationAndNoOther) {
  RedisServer redis;
  CursorCache cache(redis.url());
  for (int worker = 0; worker < 50; ++worker)
    cache.put_heartbeat(kId, std::to_string(worker), kToken, kHeartbeat);
  cache.put_cursor(kId, "compare", 1, kCursor);
  cache.put_cursor(kOther, "compare", 1, kCursor);
  cache.forget(kId);
  EXPECT_EQ(redis.command({"KEYS", "*"}), "crossfade:{" + kOther.text + "}:cursor:compare");
}

TEST(TokenBucketTest, MakesWorkersWaitForTheirShare) {
  RedisServer redis;
  CursorCache first(redis.url()), second(redis.url());
  EXPECT_EQ(first.take(kId, kToken, 1000, 1000), milliseconds(0));
  const std::optional<milliseconds> wait = second.take(kId, kToken, 1000, 1000);
  ASSERT_TRUE(wait);
  EXPECT_GT(*wait, milliseconds(500));
  EXPECT_LE(*wait, milliseconds(1000));
  const std::optional<milliseconds> third = first.take(kId, kToken, 1000, 1000);
  ASSERT_TRUE(third);
  EXPECT_GT(*third, milliseconds(1500));
  EXPECT_LE(*third, milliseconds(2000));
}

TEST(TokenBucketTest, ARaisedRateShortensWhatIsOwed) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.take(kId, kToken, 1000, 1);  // owes a thousand seconds
  const std::optional<milliseconds> wait = cache.take(kId, kToken, 1000, 1000);
  ASSERT_TRUE(wait);
  EXPECT_LE(*wait, milliseconds(1000));
}

TEST(TokenBucketTest, NoLimitNeedsNoWaiting) {
  RedisServer redis;
  CursorCache cache(redis.url());
  EXPECT_EQ(cache.take(kId, kToken, 1000, 0), milliseconds(0));
  EXPECT_EQ(redis.command({"EXISTS", key("bucket")}), "0");
}

TEST(TokenBucketTest, ABucketOfAnotherTokenOrClockIsAbsent) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.take(kId, kToken, 100000, 1000);
  EXPECT_EQ(cache.take(kId, kNewToken, 10, 1000), milliseconds(0));
  redis.command({"HSET", key("bucket"), "free_at", "99999999999999999"});
  EXPECT_EQ(cache.take(kId, kNewToken, 10, 1000), milliseconds(0));
  redis.command({"HSET", key("bucket"), "free_at", "nonsense"});
  EXPECT_EQ(cache.take(kId, kNewToken, 10, 1000), milliseconds(0));
}

TEST(TokenBucketTest, SurvivesAServerThatForgotTheScript) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ASSERT_TRUE(cache.take(kId, kToken, 1, 1000));
  redis.command({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(cache.take(kId, kToken, 1, 1000));
  EXPECT_EQ(cache.state(), CacheState::connected);
}

// Faults: https://github.com/ybrs/single-beat/pull/21. Redis may fail in any way; the caller never sees an
// exception.

TEST(CursorCacheFaultTest, DownAtTheStartIsLostAndComesBack) {
  RedisServer redis;
  redis.kill();
  CursorCache cache(redis.url());
  EXPECT_EQ(cache.state(), CacheState::lost);
  EXPECT_EQ(values_of_every_call(cache), 0);
  redis.restart();
  wait_until([&] { return cache.state() == CacheState::connected; }, "the cache to reconnect",
             milliseconds(5000));
  EXPECT_EQ(values_of_every_call(cache), 4);
}

TEST(CursorCacheFaultTest, KilledWhileConnectedIsLostAndComesBackEmpty) {
  RedisServer redis;
  CursorCache cache(redis.url());
  cache.put_cursor(kId, "backfill", 1, kCursor);
  redis.kill();
  EXPECT_EQ(values_of_every_call(cache), 0);
  EXPECT_EQ(cache.state(), CacheState::lost);
  redis.restart();
  wait_until([&] { return cache.state() == CacheState::connected; }, "the cache to reconnect",
             milliseconds(5000));
  EXPECT_FALSE(cache.get_cursor(kId, "backfill", 1, kToken));
}

TEST(CursorCacheFaultTest, WritingToAClosedSocketDoesNotKillTheProcess) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ASSERT_EQ(cache.state(), CacheState::connected);
  redis.command({"CLIENT", "KILL", "TYPE", "normal"});
  EXPECT_EQ(values_of_every_call(cache), 0);
}

TEST(CursorCacheFaultTest, AFrozenServerCostsOneCallItsBudgetAndTheNextNothing) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ASSERT_EQ(cache.state(), CacheState::connected);
  redis.sigstop();
  const milliseconds first = time_of([&] { EXPECT_FALSE(cache.get_phase(kId)); });
  EXPECT_GE(first, milliseconds(150));
  EXPECT_LT(first, milliseconds(400));
  EXPECT_LT(time_of([&] { EXPECT_EQ(values_of_every_call(cache), 0); }), milliseconds(150));
  EXPECT_EQ(cache.state(), CacheState::lost);
  CursorCache another(redis.url());  // the kernel accepts; that is no health
  EXPECT_LT(time_of([&] { EXPECT_EQ(another.state(), CacheState::lost); }), milliseconds(400));
  redis.sigcont();
  wait_until([&] { return cache.state() == CacheState::connected; }, "the cache to reconnect",
             milliseconds(5000));
  EXPECT_EQ(values_of_every_call(cache), 4);
}

TEST(CursorCacheFaultTest, AReadOnlyReplicaIsOfNoUse) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ASSERT_EQ(cache.state(), CacheState::connected);
  redis.command({"REPLICAOF", "127.0.0.1", "1"});
  cache.put_cursor(kId, "backfill", 1, kCursor);
  EXPECT_EQ(values_of_every_call(cache), 0);
  redis.command({"REPLICAOF", "NO", "ONE"});
  wait_until([&] { return values_of_every_call(cache) == 4; }, "the cache to be writable",
             milliseconds(5000));
}

TEST(CursorCacheFaultTest, ErrorAnswersTurnTheStateToLost) {
  for (const char* answer :
       {"-LOADING Redis is loading the dataset in memory\r\n", "-NOAUTH Authentication required.\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n", "-OOM command not allowed\r\n",
        "-BUSY Redis is busy running a script\r\n", "no protocol at all\r\n", "*-5\r\n"}) {
    SCOPED_TRACE(answer);
    FakeRedis redis(answer);
    CursorCache cache(redis.url());
    EXPECT_EQ(cache.state(), CacheState::lost);
    EXPECT_EQ(values_of_every_call(cache), 0);
    EXPECT_FALSE(ControlListener(redis.url(), kId).wait(milliseconds(10)));
  }
}

TEST(CursorCacheFaultTest, AnswersOfTheWrongKindReadAsAbsent) {
  FakeRedis redis(":7\r\n");
  CursorCache cache(redis.url());
  EXPECT_FALSE(cache.get_cursor(kId, "backfill", 1, kToken));
  EXPECT_FALSE(cache.get_phase(kId));
  EXPECT_NO_THROW(cache.forget(kId));
}

TEST(CursorCacheFaultTest, LogsInWithThePasswordOfTheUrl) {
  RedisOptions options;
  options.password = "p@ss/word";
  RedisServer redis(options);
  const std::string host = "127.0.0.1:" + std::to_string(redis.port());
  CursorCache raw("redis://:p@ss/word@" + host);
  EXPECT_EQ(values_of_every_call(raw), 4);
  CursorCache encoded("redis://:p%40ss%2Fword@" + host + "/3");
  EXPECT_EQ(values_of_every_call(encoded), 4);
  CursorCache named("redis://default:p%40ss%2Fword@" + host);
  EXPECT_EQ(values_of_every_call(named), 4);
  CursorCache by_name("redis://:p%40ss%2Fword@localhost:" + std::to_string(redis.port()));
  EXPECT_EQ(values_of_every_call(by_name), 4);
  CursorCache without("redis://" + host);
  EXPECT_EQ(without.state(), CacheState::lost);
  CursorCache wrong("redis://:wrong@" + host);
  EXPECT_EQ(wrong.state(), CacheState::lost);
  EXPECT_EQ(values_of_every_call(wrong), 0);
}

TEST(CursorCacheFaultTest, AnUnresolvableHostIsLostWithinTheBudget) {
  CursorCache cache("redis://no-such-host.invalid");
  EXPECT_LT(time_of([&] { EXPECT_EQ(cache.state(), CacheState::lost); }), milliseconds(400));
}

TEST(RedisUrlTest, MalformedIsAUsageErrorThatRepeatsNoPassword) {
  for (const std::string url :
       {"localhost:6379", "rediss://h", "redis://", "redis://:Hunter2Xyz@", "redis://:Hunter2Xyz@h:port",
        "redis://:Hunter2Xyz@h:99999", "redis://:Hunter2Xyz@h/db", "redis://:Hunter2Xyz%4@h",
        "redis://Hunter2Xyz@h", "unix://relative", "redis://[::1", "redis://[::1]x"}) {
    try {
      CursorCache cache(url);
      ADD_FAILURE() << url << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage_error);
      EXPECT_EQ((error.message() + error.hint()).find("Hunter2Xyz"), std::string::npos) << error.message();
    }
  }
}

// The control channel.

TEST(ControlListenerTest, HearsItsMigrationAndNoOther) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ControlListener listener(redis.url(), kId);
  cache.publish_control(kOther, "tuning");
  EXPECT_FALSE(listener.wait(milliseconds(50)));
  cache.publish_control(kId, "tuning");
  EXPECT_TRUE(listener.wait(milliseconds(5000)));
  EXPECT_FALSE(listener.wait(milliseconds(20)));
}

TEST(ControlListenerTest, SeveralMessagesAreOneHint) {
  RedisServer redis;
  CursorCache cache(redis.url());
  ControlListener listener(redis.url(), kId);
  for (int i = 0; i < 100; ++i) cache.publish_control(kId, "pause");
  int hints = 0;
  while (listener.wait(milliseconds(50))) ++hints;
  EXPECT_GE(hints, 1);
  EXPECT_LT(hints, 100);
}

TEST(ControlListenerTest, WakeEndsAWaitOfAnotherThread) {
  for (const std::string& url : {std::string(), std::string("unix:///nonexistent/redis.sock")}) {
    ControlListener listener(url, kId);
    std::thread waker([&] { listener.wake(); });
    EXPECT_LT(time_of([&] { EXPECT_FALSE(listener.wait(milliseconds(60000))); }), milliseconds(10000));
    waker.join();
  }
}

TEST(ControlListenerTest, WithoutRedisItJustWaits) {
  ControlListener listener("", kId);
  EXPECT_GE(time_of([&] { EXPECT_FALSE(listener.wait(milliseconds(30))); }), milliseconds(30));
}

TEST(ControlListenerTest, SubscribesAgainAfterTheServerCameBack) {
  RedisServer redis;
  ControlListener listener(redis.url(), kId);
  redis.restart();
  CursorCache cache(redis.url());
  wait_until(
      [&] {
        cache.publish_control(kId, "phase");
        return listener.wait(milliseconds(20));
      },
      "the listener to hear again", milliseconds(10000));
}

}  // namespace
}  // namespace crossfade::test
