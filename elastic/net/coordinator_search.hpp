#pragma once

// A member's search for a coordinator: repeated attempts in the order of ReconnectPlan, on a thread
// of their own, because a handshake may block and the control thread must not. Private to
// elastic/net (its interface uses Asio). Called on the io_context's thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/reconnect.hpp"

namespace mayfly::elastic {

class CoordinatorSearch {
 public:
  /// Makes the Hello of the next attempt.
  using Introduction = std::function<Hello()>;
  /// A coordinator has answered; the search pauses until begin() or try_others().
  using OnAnswer = std::function<void(std::size_t endpoint, Answer answer)>;

  CoordinatorSearch(boost::asio::io_context& io, std::vector<std::string> endpoints, Bytes token,
                    Introduction introduce, OnAnswer on_answer);
  /// Waits for an attempt in progress. To be called after the io_context has stopped.
  ~CoordinatorSearch();

  /// Begins a search, with the coordinator that was lost. `seed` as in ReconnectPlan.
  void begin(std::size_t lost, std::uint64_t seed);
  /// The coordinator that answered cannot be used: the search continues with the others, `skip` as
  /// in NoQuorum.
  void try_others(std::uint32_t skip);
  /// No more attempts.
  void stop();

 private:
  void attempt_next();
  void dial(std::size_t endpoint);

  boost::asio::io_context& io_;
  boost::asio::steady_timer timer_;
  const std::vector<std::string> endpoints_;
  const Bytes token_;
  Introduction introduce_;
  OnAnswer on_answer_;
  std::optional<ReconnectPlan> plan_;
  bool stopped_ = false;
  boost::asio::thread_pool dialer_{1};  // last: its thread uses the rest
};

}  // namespace mayfly::elastic
