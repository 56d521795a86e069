#pragma once

// The records of steps, made of a first shard's updates. On that shard's thread.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <variant>

#include "base/time.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/run/records.hpp"
#include "engine/server_roles/server_address.hpp"

namespace mayfly::engine {

/// Sends the records of steps and keeps the last ones: a leader may be lost with what it had not
/// sent, a coordinator with what it had taken. The receiver drops what it has.
class StepRecorder {
 public:
  StepRecorder(const Job& job, const PsJob& ps) : job_(job), ps_(ps) {}

  /// The steps after this one are done again.
  void fall_back(const FallBackRecord& record) {
    record_ = {};
    hash_ = {};
    microbatches_ = 0;
    loss_ = 0;
    // Said again after this record they would count as done.
    std::erase_if(recent_, [&](const Record& recent) {
      const auto* step = std::get_if<StepRecord>(&recent);
      return step != nullptr && step->step > record.step;
    });
    send(record);
  }

  /// The client's life is longer than that of the shards.
  void begin(elastic::MemberClient& client, const PsLink& link) {
    link_ = &link;
    client_ = &client;
  }

  void lead() {
    leads_ = true;
    repeat();
  }

  void add(const parameter_server::UpdateFacts& facts) {
    record_.samples += facts.samples;
    record_.correct += facts.correct;
    microbatches_ += facts.microbatches;
    loss_ += facts.loss;
    for (std::size_t lane = 0; lane < hash_.size(); ++lane) {
      hash_[lane] += facts.sample_hash[lane];
    }
    if (facts.update.steps_after >= facts.update.step) {
      finish(facts);
    }
  }

 private:
  static constexpr std::size_t kRecentRecords = 64;

  void finish(const parameter_server::UpdateFacts& facts) {
    record_.step = facts.update.steps_after;
    record_.loss = loss_ / microbatches_;
    record_.learning_rate = ps_.rate_of(job_, facts.update, facts.microbatches);
    record_.sample_hash =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", hash_[3], hash_[2], hash_[1], hash_[0]);
    if (const std::optional<elastic::View> view = link_->view()) {
      record_.view = value(view->id);
      record_.members = static_cast<std::uint32_t>(
          std::count_if(view->members.begin(), view->members.end(),
                        [](const auto& m) { return is_worker(m.address); }));
    }
    const Instant now = monotonic_now();
    record_.seconds = last_.ns == 0 ? 0 : to_seconds(now - last_);
    last_ = now;
    send(record_);
    record_ = {};
    hash_ = {};
    microbatches_ = 0;
    loss_ = 0;
  }

  void repeat() {
    if (client_ == nullptr) {
      return;  // nothing has happened yet
    }
    told_connection_ = client_->connections();
    for (const Record& record : recent_) {
      client_->send_report(encode_record(record));
    }
  }

  void send(const Record& record) {
    if (leads_ && client_->connections() != told_connection_) {
      repeat();
    }
    if (leads_) {
      client_->send_report(encode_record(record));
    }
    recent_.push_back(record);
    if (recent_.size() > kRecentRecords) {
      recent_.pop_front();
    }
  }

  const Job& job_;
  const PsJob& ps_;
  const PsLink* link_ = nullptr;
  elastic::MemberClient* client_ = nullptr;
  bool leads_ = false;
  std::deque<Record> recent_;
  std::uint64_t told_connection_ = 0;  // MemberClient::connections() when they were last repeated
  StepRecord record_;
  std::array<std::uint32_t, 4> hash_{};
  std::uint32_t microbatches_ = 0;
  double loss_ = 0;
  Instant last_;
};

}  // namespace mayfly::engine
