#pragma once

// The gradient group of one view. All members enter. Each all-reduce is the product's
// (collectives/tcp/exchange over collectives/plan), message by message over simulated connections,
// so that faults may occur between any two messages. A member that leaves ends its connections.
// Another member notices that when it needs the connection the next time.

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
  /// Starts the member's part of a step's all-reduces. When they end, SimWorker::on_reduced or
  /// on_group_broken is called, unless the member leaves before.
  void contribute(MemberId member, std::uint64_t step, Contribution contribution);
  /// The member has done its work after the last step. When all members have, each of them learns
  /// that after a separate delay, unless the group breaks first.
  void at_end(MemberId member);
  /// The member has learned that all are done: from now on it may leave without breaking the group.
  void heard_of_end(MemberId member) { parts_[rank_of(member)].has_heard = true; }
  /// Whether the member compared its state with those of other members in the all-reduce of this
  /// step. An observer does not, even if it has caught up and uses its state a moment later.
  [[nodiscard]] bool has_compared(MemberId member, std::uint64_t step) const;
  /// Ends the member's connections after the bytes that it has sent. The group does not use the
  /// member's buffers any more.
  void leave(MemberId member);
  /// Cuts the member's host from the network: other members do not even get an end of file.
  void vanish(MemberId member);
  /// Cuts the link between these two members; both notice it late.
  void cut(MemberId one, MemberId other);
  /// Whether the link between these two members is cut.
  [[nodiscard]] bool is_cut(MemberId one, MemberId other) const;

 private:
  static constexpr std::size_t kLanes =
      kGradientLanes + 5;  // samples, boundary, checks, their squares and number

  /// One member's side of the group.
  struct Part {
    MemberId id{};
    bool entered = false;
    bool left = false;
    bool at_end = false;
    bool has_heard = false;                   // see heard_of_end()
    std::vector<collectives::TcpPeer> peers;  // by rank; the channels are SimChannels
    std::vector<Instant> last_arrival;        // at the other members, by rank: order is kept
    // The step in progress.
    std::uint64_t step = 0;
    std::array<std::uint64_t, kLanes> lanes{};
    std::size_t bucket = 0;
    std::uint64_t operations = 0;  // started in this group
    collectives::Operation operation;
    std::unique_ptr<collectives::Exchange> exchange;
    Bytes unsent;  // kept until the bytes that follow immediately are added
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
  /// The number of members in reductions: all, except with Sabotage::kReducesTooEarly.
  [[nodiscard]] std::size_t reducing() const;

  SimWorld& world_;
  elastic::View view_;
  std::vector<Part> parts_;  // by rank
  std::size_t entered_ = 0;
  std::optional<MemberId> gone_;  // the first member that left
  std::set<std::pair<std::size_t, std::size_t>> cut_;
  std::map<std::uint64_t, std::vector<elastic::MicrobatchSet>> contributed_;  // by step, then rank
  std::map<std::uint64_t, std::set<MemberId>> compared_;                      // by step
  std::set<std::uint64_t> reduced_;                                           // steps
};

}  // namespace mayfly::sim
