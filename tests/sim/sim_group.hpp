#pragma once

// The gradient group of one view. Everybody enters; each all-reduce is the product's own
// (collectives/tcp/exchange over collectives/plan), message by message over simulated
// connections, so that anything may happen between any two messages; whoever leaves ends its
// connections, and the others notice when they next need it, each at its own moment.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "collectives/tcp/exchange.hpp"
#include "elastic/core/view.hpp"
#include "tests/sim/sim_channel.hpp"
#include "tests/sim/toy_model.hpp"

namespace mayfly::sim {

class SimWorld;

struct Contribution {
  elastic::MicrobatchSet microbatches;
  ToySum sum;
  std::optional<std::uint64_t> state_check;  ///< see check_of(); an observer has none
  bool boundary = false;                     ///< this member was told to stop at a boundary
};

class SimGroup {
 public:
  SimGroup(SimWorld& world, elastic::View view);

  void enter(MemberId member);
  /// Starts the member's part of a step's all-reduces; their end is SimWorker::on_reduced or
  /// on_group_broken, unless it leaves before.
  void contribute(MemberId member, std::uint64_t step, Contribution contribution);
  /// The member has done its part of what follows the last step. All hear of it when all have, each
  /// at its own moment; or the group breaks before.
  void at_end(MemberId member);
  /// The member has heard so: whatever it does now breaks nothing.
  void heard_of_end(MemberId member) { parts_[rank_of(member)].has_heard = true; }
  /// In the all-reduce of this step the member compared its state with the others': who observes
  /// does not, even if it has caught up and takes its state a moment later.
  [[nodiscard]] bool has_compared(MemberId member, std::uint64_t step) const;
  /// The member's connections end after what it has sent, and its buffers are its own again.
  void leave(MemberId member);
  /// The member's host is off the network: nothing reaches the others, not even an end of file.
  void vanish(MemberId member);
  /// Nothing passes between these two any more; both find out late.
  void cut(MemberId one, MemberId other);
  /// Packets between these two stay unanswered.
  [[nodiscard]] bool is_cut(MemberId one, MemberId other) const;

 private:
  static constexpr std::size_t kLanes =
      kGradientLanes + 5;  // samples, boundary, checks, their squares and number

  /// One member's side.
  struct Part {
    MemberId id{};
    bool entered = false;
    bool left = false;
    bool at_end = false;
    bool has_heard = false;                   // that all are there
    std::vector<collectives::TcpPeer> peers;  // by rank; the channels are SimChannels
    std::vector<Instant> last_arrival;        // at the others, by rank: order is kept
    // The step under way.
    std::uint64_t step = 0;
    std::array<std::uint64_t, kLanes> lanes{};
    std::size_t bucket = 0;
    std::uint64_t operations = 0;  // started in this group
    collectives::Operation operation;
    std::unique_ptr<collectives::Exchange> exchange;
    Bytes unsent;  // waits for the bytes that follow at once
    std::size_t unsent_to = 0;
  };

  void connect(Part& part);
  std::size_t accept(std::size_t from, std::size_t to, ByteSpan data, bool more);
  void deliver(std::size_t from, std::size_t to, Bytes data);
  void end_connection(std::size_t from, std::size_t to, Duration late);
  void begin_bucket(std::size_t rank);
  void pump(std::size_t rank);
  void finish_bucket(std::size_t rank);
  [[nodiscard]] bool is_end_broken(std::size_t rank);
  void fail(std::size_t rank, MemberId culprit);
  void hand_over(std::size_t rank);
  void cancel(Part& part);
  void tell_broken(MemberId member, MemberId culprit, Duration grace);
  [[nodiscard]] std::unique_ptr<collectives::Exchange> make_exchange(std::size_t rank);
  [[nodiscard]] std::span<std::uint64_t> bucket_of(Part& part) const;
  [[nodiscard]] std::size_t rank_of(MemberId member) const;
  /// Members that take part in reductions: all, if nobody broke this on purpose.
  [[nodiscard]] std::size_t reducing() const;

  SimWorld& world_;
  elastic::View view_;
  std::vector<Part> parts_;  // by rank
  std::size_t entered_ = 0;
  std::optional<MemberId> gone_;  // the first that left
  std::set<std::pair<std::size_t, std::size_t>> cut_;
  std::map<std::uint64_t, std::vector<elastic::MicrobatchSet>> contributed_;  // by step, then rank
  std::map<std::uint64_t, std::set<MemberId>> compared_;                      // by step
  std::set<std::uint64_t> reduced_;                                           // steps
};

}  // namespace mayfly::sim
