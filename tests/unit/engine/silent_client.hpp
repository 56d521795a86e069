#pragma once

// A worker's control connection without a coordinator, for tests of code that uses one.

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "elastic/net/member_client.hpp"

namespace mayfly::test_support {

class SilentClient final : public elastic::MemberClient {
 public:
  explicit SilentClient(MemberId id = MemberId{1}) : id_(id) {}

  [[nodiscard]] MemberId id() const override { return id_; }
  [[nodiscard]] std::uint64_t job() const override { return 1; }
  [[nodiscard]] bool joins_late() const override { return is_late; }
  void start(elastic::MemberHandler& /*handler*/) override {}
  void post(elastic::MemberEvent event) override {
    stops += std::holds_alternative<elastic::member_event::TrainerStopped>(event) ? 1 : 0;
    requests_to_leave += std::holds_alternative<elastic::member_event::LeaveAsked>(event) ? 1 : 0;
  }
  void send_progress(const elastic::Progress& /*progress*/) override {}
  using MemberClient::send_report;
  void send_report(Bytes payload, Instant /*happened*/) override {
    {
      const std::lock_guard lock(mutex_);
      last_report_ = std::move(payload);
    }
    ++reports;
  }
  [[nodiscard]] Bytes last_report() const {
    const std::lock_guard lock(mutex_);
    return last_report_;
  }
  Result<void> store_set(ViewId /*view*/, const std::string& /*key*/, ByteSpan /*v*/) override {
    ++store_writes;
    return {};
  }
  Result<Bytes> store_get(ViewId /*view*/, const std::string& /*key*/,
                          Instant /*deadline*/) override {
    return Error{Errc::kPeerLost, "nobody is there"};
  }
  std::atomic<int> reports = 0;
  std::atomic<int> stops = 0;
  std::atomic<int> requests_to_leave = 0;
  std::atomic<int> store_writes = 0;
  bool is_late = false;

 private:
  const MemberId id_;
  mutable std::mutex mutex_;
  Bytes last_report_;  // guarded by mutex_
};

}  // namespace mayfly::test_support
