// Stands between a client and PostgreSQL and loses what a test tells it to lose: a COMMIT on its way, or its
// answer.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "support/files.hpp"
#include "support/postgres_server.hpp"

namespace crossfade::test {

class LossyProxy {
 public:
  explicit LossyProxy(const PostgresServer& server);
  ~LossyProxy();
  LossyProxy(const LossyProxy&) = delete;
  LossyProxy& operator=(const LossyProxy&) = delete;

  std::string dsn(std::string_view database, std::string_view role) const;
  // Armed for one loss. The next message that holds `text` reaches the server, which answers it completely;
  // both connections are closed instead of passing the answer on.
  void lose_answer_to(std::string_view text);
  // The message does not reach the server; both connections are closed.
  void lose_message(std::string_view text);
  // How often something was lost.
  int losses() const { return losses_; }

 private:
  enum class Loss { nothing, answer, message };
  struct Pair {
    int server = -1;
    bool losing_answer = false;
  };
  void run();
  void accept_client();
  bool pass_to_server(int client, Pair& pair);  // false: the pair is over
  bool pass_to_client(int client, Pair& pair);
  void arm(Loss loss, std::string_view text);
  Loss loss_for(std::string_view message);

  PrivateFolder folder_{"proxy"};
  std::string server_socket_;
  int listener_ = -1;
  int stop_ = -1;
  std::map<int, Pair> pairs_;  // by the client's descriptor; only the thread's
  std::mutex mutex_;
  Loss armed_ = Loss::nothing;
  std::string text_;
  std::atomic<int> losses_ = 0;
  std::thread thread_;
};

}  // namespace crossfade::test
