#include "tests/sim/scale.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.hpp"
#include "base/random.hpp"
#include "elastic/core/coordinator.hpp"

namespace mayfly::sim {

using namespace elastic;

namespace {

constexpr std::size_t kFrameHeaderBytes = 4;
constexpr std::uint32_t kMicrobatchesEach = 4;

class Driver {
 public:
  Driver(const ScaleOptions& options, double (*now_ms)())
      : random_(CounterRandom(options.seed).split("scale")),
        now_ms_(now_ms),
        microbatches_(std::min(options.members * kMicrobatchesEach, kMicrobatchesMax)),
        coordinator_(options_of(options, microbatches_)) {}

  void begin(const std::string& change) {
    row_ = {};
    row_.change = change;
  }
  ScaleRow end(std::uint32_t changes) {
    row_.members = static_cast<std::uint32_t>(members_.size());
    row_.changes = changes;
    for (double* number : {&row_.messages_in, &row_.messages_out, &row_.bytes_in, &row_.bytes_out,
                           &row_.machine_ms, &row_.encode_ms}) {
      *number /= changes;
    }
    return row_;
  }

  /// Workers connect and load; they are members when the next view is there.
  void connect(std::uint32_t workers) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      Hello hello;
      hello.address = "10.123.45.67:40000;" + std::to_string(random_.bits());
      give(coordinator_event::WorkerConnected{++connections_, std::move(hello)});
      say(newest_, Ready{Step{committed_}});
    }
  }
  void lose(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const MemberId victim = any_member();
      members_.erase(victim);
      give(coordinator_event::ConnectionLost{victim, "reset"});
    }
  }
  void ask_one_to_leave() { say(any_member(), LeaveRequest{"notice"}); }
  /// Everybody does what it was told, until all compute in one view.
  void settle() {
    while (!stopping_.empty() || !starting_.empty()) {
      for (const MemberId member : std::exchange(stopping_, {})) {
        if (members_.contains(member)) {
          say(member, Stopped{view_, Step{committed_}, held_by(member), false, false, {}, "", {}});
        }
      }
      ++committed_;
      for (const MemberId member : std::exchange(starting_, {})) {
        say(member, Formed{view_});
        say(member, Synced{view_});
        say(member, Progress{view_, Step{committed_}, 5.0F});
      }
    }
  }
  [[nodiscard]] std::size_t members() const { return members_.size(); }

 private:
  static CoordinatorOptions options_of(const ScaleOptions& options, std::uint32_t microbatches) {
    CoordinatorOptions core;
    core.microbatches = microbatches;
    core.initial_workers = options.members;
    core.max_workers = kMembersMax;
    core.seed = options.seed;
    return core;
  }

  MemberId any_member() {
    ENSURE(!members_.empty(), "somebody is left");
    const auto place = members_.lower_bound(MemberId{random_.below(value(newest_)) + 1});
    return place == members_.end() ? *members_.begin() : *place;
  }

  /// A loss finds everybody somewhere in the middle of a step.
  MicrobatchSet held_by(MemberId member) {
    const ViewMember* self = member_of(*coordinator_.view(), member);
    if (at_boundary_ || self == nullptr || self->count == 0) {
      return {};
    }
    return MicrobatchSet::range(
        self->first, static_cast<std::uint32_t>(random_.below(std::uint64_t{self->count} + 1)));
  }

  void say(MemberId member, Message message) {
    const Bytes bytes = encode(message);
    ++row_.messages_in;
    row_.bytes_in += static_cast<double>(bytes.size() + kFrameHeaderBytes);
    give(coordinator_event::Received{member, std::move(message)});
  }
  void give(const CoordinatorEvent& event) {
    const double before = now_ms_();
    const std::vector<CoordinatorEffect> effects = coordinator_.handle(now_, event);
    row_.machine_ms += now_ms_() - before;
    now_ = now_ + Duration(1000);
    for (const CoordinatorEffect& effect : effects) {
      carry_out(effect);
    }
  }
  void carry_out(const CoordinatorEffect& effect) {
    using namespace coordinator_effect;
    if (const auto* accept = std::get_if<Accept>(&effect)) {
      newest_ = accept->member;
      members_.insert(newest_);
    } else if (const auto* send = std::get_if<Send>(&effect)) {
      sent(send->message, {send->member});
    } else if (const auto* to_all = std::get_if<SendToAll>(&effect)) {
      sent(to_all->message, to_all->members);
    }
  }
  void sent(const Message& message, const std::vector<MemberId>& members) {
    const double before = now_ms_();
    const Bytes bytes = encode(message);
    row_.encode_ms += now_ms_() - before;
    const auto size = static_cast<double>(bytes.size() + kFrameHeaderBytes);
    row_.messages_out += static_cast<double>(members.size());
    row_.bytes_out += size * static_cast<double>(members.size());
    const auto* view = std::get_if<NewView>(&message);
    const auto* delta = std::get_if<NewViewDelta>(&message);
    if (view != nullptr || delta != nullptr) {
      view_ = view != nullptr ? view->view.id : delta->delta.id;
      starting_.insert(starting_.end(), members.begin(), members.end());
      row_.full_view_bytes = static_cast<double>(encode(NewView{*coordinator_.view()}).size());
      if (delta != nullptr || members.size() > 1) {
        row_.bytes_per_member_max = std::max(row_.bytes_per_member_max, size);
      }
    } else if (const auto* stop = std::get_if<Stop>(&message)) {
      at_boundary_ = stop->at_boundary;
      stopping_.insert(stopping_.end(), members.begin(), members.end());
    } else if (std::holds_alternative<Dismiss>(message)) {
      for (const MemberId member : members) {
        members_.erase(member);
      }
    }
  }

  RandomStream random_;
  double (*now_ms_)();
  std::uint32_t microbatches_;
  Coordinator coordinator_;
  Instant now_ = Instant{} + seconds(1);
  std::uint64_t connections_ = 0;
  std::uint64_t committed_ = 0;
  MemberId newest_{};
  ViewId view_{};
  std::set<MemberId> members_;
  bool at_boundary_ = false;  // nobody has begun a step when it stops
  std::vector<MemberId> stopping_;
  std::vector<MemberId> starting_;
  ScaleRow row_;
};

}  // namespace

std::vector<ScaleRow> measure_scale(const ScaleOptions& options, double (*now_ms)()) {
  Driver driver(options, now_ms);
  std::vector<ScaleRow> rows;
  driver.begin("start");
  driver.connect(options.members);
  driver.settle();
  rows.push_back(driver.end(1));
  const auto each = [&](const std::string& change, auto&& cause) {
    driver.begin(change);
    for (std::uint32_t i = 0; i < options.changes; ++i) {
      cause();
      driver.settle();
    }
    rows.push_back(driver.end(options.changes));
  };
  const auto missing = [&] {
    return options.members - static_cast<std::uint32_t>(driver.members());
  };
  each("loss and join", [&] {
    driver.lose(1);
    driver.settle();
    driver.connect(1);
  });
  each("leave", [&] { driver.ask_one_to_leave(); });
  each("joins", [&] { driver.connect(std::max(1U, missing() / options.changes)); });
  each("loss of a tenth", [&] {
    driver.lose(std::max(1U, options.members / 10));
    driver.settle();
    driver.connect(missing());
  });
  return rows;
}

}  // namespace mayfly::sim
